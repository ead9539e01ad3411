"""``otelkit check``: is the spec sound, are the rules up to date, and would they work?"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from otelkit.cli import outputs
from otelkit.cli.options import SpecOption, demand_numpy, spec_option
from otelkit.errors import UsageError
from otelkit.spec import Spec

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
@click.option(
    "--prometheus",
    metavar="URL",
    help="Metrics found there count as known, besides those of the presets.",
)
@click.option(
    "--templates",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Folder with templates that replace those of the same name, as for `otelkit generate rules`.",
)
@click.option(
    "--lint/--no-lint",
    default=None,
    help="Read every expression for mistakes that promtool accepts; done where promql-parser is installed.",
)
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.pass_context
def command(
    context: click.Context,
    spec: SpecOption,
    directory: Path,
    promtool: str | None,
    prometheus: str | None,
    templates: Path | None,
    lint: bool | None,
    files: Sequence[Path],
) -> None:
    """Check the spec and its rules, or the rule FILES given. Findings go to standard output; exit code 3."""
    demand_numpy("otelkit check")
    from otelkit.rules import HEADER, generate_with_warnings, runbooks
    from otelkit.rules.unit_tests import tested_part, unit_tests

    read = spec.load()
    generated = generate_with_warnings(read, templates)
    found = shutil.which(promtool or "promtool")
    tool = str(Path(found).absolute()) if found else None
    if promtool and tool is None:
        raise UsageError(f"{promtool}: is no program that can be run", hint="--promtool PATH names another.")
    if tool is None:
        click.echo("promtool is not on PATH: its checks are left out (--promtool PATH names it)", err=True)
    findings = ""
    if files:
        texts = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in files}
        findings += _promtool(tool, ["check", "rules", "--lint=all", "--lint-fatal", *texts])
    else:
        texts = dict(generated.files)
        findings += "".join(f"{spec.path}: {warning}\n" for warning in generated.warnings)
        tests = {f"tests/{name}": text for name, text in unit_tests(read, texts).items()}
        if directory.is_dir():
            committed = texts | runbooks(read, texts) | (tests if (directory / "tests").is_dir() else {})
            findings += outputs.differences(directory, committed, header=HEADER)
        with tempfile.TemporaryDirectory() as scratch:
            outputs.write(Path(scratch), texts, header=HEADER)
            refused = _promtool(tool, ["check", "rules", "--lint=all", "--lint-fatal", *texts], scratch)
            findings += refused
            # Tests of rules that can't be loaded would only repeat why, once for each test.
            if not refused:
                part = tested_part(read)
                rules = generate_with_warnings(part, templates).files
                tests = {f"tests/{name}": text for name, text in unit_tests(part, rules).items()}
                outputs.write(Path(scratch), rules | tests, header=HEADER)
                findings += _promtool(tool, ["test", "rules", *tests], scratch)
    if lint is None:
        lint = importlib.util.find_spec("promql_parser") is not None
        if not lint:
            click.echo(
                "promql-parser is not installed: lint is left out (pip install 'otelkit[lint]')", err=True
            )
    if lint:
        findings += _lint(read, texts, generated.files, prometheus)
    if findings:
        click.echo(findings, nl=False)
        context.exit(_FINDING)
    click.echo("no findings", err=True)


def _lint(spec: Spec, texts: Mapping[str, str], generated: Mapping[str, str], prometheus: str | None) -> str:
    from otelkit.rules.lint import known_metrics, lint, metrics_read, read_rules

    known = known_metrics(spec) | {rule.name for rule in read_rules(generated) if rule.records}
    if prometheus:
        from otelkit.query import PrometheusSource

        with PrometheusSource(prometheus, spec) as server:
            there = server.metric_names()
        # A preset's metric that is not there yet is no mistake: it appears with the first call.
        for name, where in metrics_read(texts).items():
            if name in known - there:
                click.echo(f"{prometheus} has no {name} yet, which {where} reads", err=True)
        known |= there
    return "".join(f"{finding}\n" for finding in lint(texts, known))


def _promtool(tool: str | None, arguments: Sequence[str], folder: str | None = None) -> str:
    """What promtool finds, run in a folder; empty if nothing, or without promtool."""
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False, cwd=folder)
    except OSError as error:
        raise UsageError(
            f"{tool}: can't be run: {error.strerror}", hint="--promtool PATH names another."
        ) from error
    if done.returncode == 0:
        return ""
    told = (line for line in (done.stdout + done.stderr).splitlines() if line.strip())
    kept = [line for line in dict.fromkeys(told) if "SUCCESS" not in line]
    return "".join(f"{line}\n" for line in kept)
