"""``otelkit generate``: write what Prometheus and its company run on."""

from __future__ import annotations

from pathlib import Path

import click

from otelkit.cli import outputs
from otelkit.cli.options import SpecOption, spec_option

_FINDING = 3
_ALERTMANAGER = "alertmanager.yml"


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
@click.option("--with-tests", is_flag=True, help="Also write tests/*.test.yaml for `promtool test rules`.")
@click.option(
    "--with-alertmanager", is_flag=True, help=f"Also write {_ALERTMANAGER}, to put your receivers into."
)
@click.option(
    "--templates",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder with templates that replace those of the same name.",
)
@click.pass_context
def rules(
    context: click.Context,
    spec: SpecOption,
    output: str,
    check: bool,
    with_tests: bool,
    with_alertmanager: bool,
    templates: Path | None,
) -> None:
    """Prometheus rules: P99 per service, objectives with their alerts, and what goes with them."""
    from otelkit.rules import HEADER, as_one_file, generate_alertmanager, generate_with_warnings, unit_tests

    read = spec.load()
    generated = generate_with_warnings(read, templates)
    for warning in generated.warnings:
        click.echo(f"warning: {warning}", err=True)
    files = dict(generated.files)
    if output == "-":
        if check or with_tests or with_alertmanager:
            raise click.UsageError("-o - writes rules only; name a folder for --check and --with-...")
        click.echo(as_one_file(files), nl=False)
        return
    if with_tests:
        files |= {f"tests/{name}": text for name, text in unit_tests(read, generated.files).items()}
    if with_alertmanager:
        files[_ALERTMANAGER] = generate_alertmanager(read, templates)
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


@command.command()
@click.option("-o", "--output", metavar="FILE|-", default="-", show_default=True, help="File to write to.")
def schema(output: str) -> None:
    """JSON Schema of otelkit.yaml, for editors."""
    from otelkit.spec import json_schema_text

    if output == "-":
        click.echo(json_schema_text(), nl=False)
        return
    target = Path(output)
    for path in outputs.write(target.parent, {target.name: json_schema_text()}, header=""):
        click.echo(path)
