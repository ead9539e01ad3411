"""``otelkit doctor``: what keeps the stack from running here, and the next step."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from otelkit.cli.stack_options import directory_option, files_option, format_option, profile_option

if TYPE_CHECKING:
    from otelkit.compose.doctor import Finding

_FINDING: Final = 3


@click.command("doctor")
@directory_option
@profile_option
@files_option
@click.option("--local", is_flag=True, help="Ask what `otelkit stack up --local` needs instead of Docker.")
@click.option(
    "--memory",
    "memory_mib",
    type=click.IntRange(min=1),
    metavar="MIB",
    help="Memory that the stack may have [default: what the engine's machine has].",
)
@format_option("findings")
@click.pass_context
def command(
    context: click.Context,
    directory: Path,
    profiles: tuple[str, ...],
    files: tuple[Path, ...],
    local: bool,
    memory_mib: int | None,
    output_format: str,
) -> None:
    """Find what keeps the stack from running, before it is started.

    Exits with 3 when there is a problem.
    """
    from otelkit.compose.doctor import Level, examine, to_json
    from otelkit.compose.settings import Settings

    settings = Settings(directory, os.environ)
    if local and files:
        raise click.UsageError("--file changes what Docker Compose does; it has no meaning with --local")
    if local:
        from otelkit.demo.local import examine as examine_local

        findings = examine_local(directory, settings, profiles=profiles, memory_mib=memory_mib)
    else:
        findings = examine(
            directory, settings, environment=os.environ, profiles=profiles, files=files, memory_mib=memory_mib
        )
    if output_format == "json":
        click.echo(json.dumps(to_json(findings), ensure_ascii=False))
    else:
        click.echo(as_text(findings), nl=False)
    if any(one.level is Level.PROBLEM for one in findings):
        context.exit(_FINDING)


def as_text(findings: Iterable[Finding]) -> str:
    """A line for each finding, and the next step under those that need one."""
    lines = []
    for one in findings:
        lines.append(f"{one.level.value:<8} {one.check:<8} {one.message}")
        if one.next_step:
            lines.append(f"{'':<18}{one.next_step}")
    return "".join(f"{line}\n" for line in lines)
