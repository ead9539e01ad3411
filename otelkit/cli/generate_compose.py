"""``otelkit generate compose``: the stack's files, from the same spec as rules and dashboards."""

from __future__ import annotations

from pathlib import Path

import click

from otelkit.cli import outputs
from otelkit.cli.options import SpecOption, spec_option
from otelkit.errors import UsageError
from otelkit.spec import Spec, parse_spec

_FINDING = 3


@click.command("compose")
@spec_option
@click.option(
    "-o", "--output", metavar="DIR", default="compose", show_default=True, help="Folder to write to."
)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 3 and show the differences if there are any."
)
@click.pass_context
def command(context: click.Context, spec: SpecOption, output: str, check: bool) -> None:
    """The stack: Docker Compose files and the configuration of all that they start.

    Files that are yours to change (.env, Alertmanager's receivers, scrape targets) are written only where
    they are missing.
    """
    from otelkit import compose, rules
    from otelkit.compose.generate import ALERTMANAGER_FILE, RULES

    if output == "-":
        raise UsageError(
            "the stack is many files, which can't go to standard output", hint="Name a folder: -o DIR"
        )
    directory = Path(output)
    read, text = _spec(spec)
    files = compose.generate(read, text)
    rule_files = rules.generate(read)
    rule_files |= rules.runbooks(read, rule_files)
    starters = {**compose.starters(), ALERTMANAGER_FILE: rules.generate_alertmanager(read)}
    if check:
        drift = outputs.differences(directory, files, header=compose.HEADER)
        drift += outputs.differences(directory / RULES, rule_files, header=rules.HEADER)
        drift += "".join(
            f"{directory / name}: is missing\n" for name in starters if not (directory / name).is_file()
        )
        if drift:
            click.echo(drift, nl=False)
            click.echo(f"{directory} is not what it should be; run `otelkit generate compose`", err=True)
            context.exit(_FINDING)
        click.echo(f"{directory} is up to date", err=True)
        return
    try:
        missing = {name: text for name, text in starters.items() if not (directory / name).exists()}
    except PermissionError as error:
        raise UsageError(
            f"{error.filename}: can't be looked at: {error.strerror}", hint="Name another folder with -o DIR."
        ) from error
    changed = outputs.write(directory, {**files, **missing}, header=compose.HEADER)
    changed += outputs.write(directory / RULES, rule_files, header=rules.HEADER)
    for path in changed:
        click.echo(path)


def _spec(spec: SpecOption) -> tuple[Spec, str]:
    """The user's spec, else the stack's own, with its text."""
    from otelkit.compose import default_spec_text

    if spec.asked_for or spec.path.exists():
        return spec.load(), spec.path.read_text(encoding="utf-8")
    text = default_spec_text()
    return parse_spec(text), text
