"""``otelkit check``: is the spec sound, are the rules up to date, and does promtool accept them?"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from otelkit.cli import outputs
from otelkit.cli.options import SpecOption, spec_option

_FINDING = 3


@click.command()
@spec_option
@click.option(
    "--rules",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default="rules",
    show_default=True,
    help="Folder with the generated rules; compared only if it exists.",
)
@click.option(
    "--promtool",
    metavar="PATH",
    envvar="OTELKIT_PROMTOOL",
    show_envvar=True,
    help="promtool 3.5 or later; else the one on PATH, if any.",
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def command(
    context: click.Context, spec: SpecOption, directory: Path, promtool: str | None, files: Sequence[Path]
) -> None:
    """Check the spec and its rules, or the rule FILES given. Findings go to standard output; exit code 3."""
    from otelkit.rules import HEADER, generate

    findings = ""
    tool = promtool or shutil.which("promtool")
    if files:
        findings += _promtool(tool, files)
    else:
        generated = generate(spec.load())
        if directory.is_dir():
            findings += outputs.differences(directory, generated, header=HEADER)
        with tempfile.TemporaryDirectory() as scratch:
            written = [Path(scratch, name) for name in generated]
            outputs.write(Path(scratch), generated, header=HEADER)
            findings += _promtool(tool, written)
    if findings:
        click.echo(findings, nl=False)
        context.exit(_FINDING)
    click.echo("no findings", err=True)


def _promtool(tool: str | None, files: Sequence[Path]) -> str:
    if tool is None:
        click.echo("promtool is not on PATH: its checks are left out (--promtool PATH names it)", err=True)
        return ""
    try:
        done = subprocess.run(
            [tool, "check", "rules", "--lint=all", "--lint-fatal", *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise click.UsageError(
            f"{tool} can't be run: {error.strerror}; --promtool PATH names another"
        ) from None
    return "" if done.returncode == 0 else done.stdout + done.stderr
