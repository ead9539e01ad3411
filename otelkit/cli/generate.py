"""``otelkit generate``: write what Prometheus and its company run on."""

from __future__ import annotations

from pathlib import Path

import click

from otelkit.cli import generate_dashboards, outputs
from otelkit.cli.options import SpecOption, spec_option

_FINDING = 3


@click.group()
def command() -> None:
    """Write rule files and the like from otelkit.yaml. The same spec gives the same bytes."""


@command.command()
@spec_option
@click.option(
    "-o",
    "--output",
    metavar="DIR|-",
    default="rules",
    show_default=True,
    help="Folder to write to; - writes one rule file to standard output.",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 3 and show the differences if there are any."
)
@click.pass_context
def rules(context: click.Context, spec: SpecOption, output: str, check: bool) -> None:
    """Prometheus rules: P99 per service and what goes with it."""
    from otelkit.rules import HEADER, as_one_file, generate

    files = generate(spec.load())
    if output == "-":
        if check:
            raise click.UsageError("--check compares with a folder; leave out -o -, or name the folder")
        click.echo(as_one_file(files), nl=False)
        return
    directory = Path(output)
    if check:
        drift = outputs.differences(directory, files, header=HEADER)
        if drift:
            click.echo(drift, nl=False)
            click.echo(f"{directory} is not what {spec.path} gives; run `otelkit generate rules`", err=True)
            context.exit(_FINDING)
        click.echo(f"{directory} is up to date", err=True)
        return
    for path in outputs.write(directory, files, header=HEADER):
        click.echo(path)


command.add_command(generate_dashboards.command)
