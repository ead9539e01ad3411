"""``otelkit generate``: write what Prometheus and its company run on."""

from __future__ import annotations

from pathlib import Path

import click

from otelkit.cli import generate_compose, generate_dashboards, outputs
from otelkit.cli.options import SpecOption, demand_numpy, spec_option
from otelkit.errors import UsageError

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
@click.option("--with-tests", is_flag=True, help="Also write tests/*.test.yaml for `promtool test rules`.")
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
    templates: Path | None,
) -> None:
    """Prometheus rules: P99 per service, objectives with their alerts, and what goes with them."""
    from otelkit.rules import HEADER, as_one_file, generate_with_warnings, runbooks

    read = spec.load()
    generated = generate_with_warnings(read, templates)
    for warning in generated.warnings:
        click.echo(f"warning: {warning}", err=True)
    files = dict(generated.files)
    if output == "-":
        if check or with_tests:
            raise click.UsageError("-o - writes rules only; name a folder for --check and --with-tests")
        click.echo(as_one_file(files), nl=False)
        return
    files |= runbooks(read, generated.files)
    if with_tests:
        demand_numpy("--with-tests")
        from otelkit.rules.unit_tests import unit_tests

        files |= {f"tests/{name}": text for name, text in unit_tests(read, generated.files).items()}
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


@command.command("all")
@spec_option
@click.option(
    "--check", is_flag=True, help="Write nothing; show differences and exit with 3 if there are any."
)
@click.pass_context
def everything(context: click.Context, spec: SpecOption, check: bool) -> None:
    """Rules with their tests, dashboards and the stack, each into its usual folder."""
    findings = False
    parts: tuple[tuple[click.Command, dict[str, bool]], ...] = (
        (rules, {"with_tests": True}),
        (generate_dashboards.command, {}),
        (generate_compose.command, {}),
    )
    for part, options in parts:
        try:
            context.invoke(part, spec=spec, check=check, **options)
        except click.exceptions.Exit as stopped:
            findings = findings or bool(stopped.exit_code)
    if findings:
        context.exit(_FINDING)


_TO_FILE = click.option(
    "-o",
    "--output",
    metavar="FILE|-",
    default="-",
    show_default=True,
    help="File to write, which must be new.",
)


@command.command()
@spec_option
@_TO_FILE
def alertmanager(spec: SpecOption, output: str) -> None:
    """A configuration of Alertmanager to begin with: put your receivers into it."""
    from otelkit.rules import generate_alertmanager

    _write_new(output, generate_alertmanager(spec.load()))


@command.command()
@_TO_FILE
def schema(output: str) -> None:
    """JSON Schema of otelkit.yaml, for editors."""
    from otelkit.spec import json_schema_text

    _write_new(output, json_schema_text())


def _write_new(output: str, text: str) -> None:
    """Write to a file that is not there yet: what people have edited since is theirs."""
    if output == "-":
        click.echo(text, nl=False)
        return
    try:
        with Path(output).open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(
            f"{output}: is there already", hint="Remove it first, or write to - and compare."
        ) from None
    except OSError as error:
        raise UsageError(
            f"{output}: can't be written: {error.strerror}", hint="Name another file."
        ) from error
    click.echo(output)


command.add_command(generate_compose.command)
command.add_command(generate_dashboards.command)
