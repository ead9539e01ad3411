"""``otelkit generate dashboards``: Grafana JSON of otelkit's dashboards, or of a user's ``*.dashboard.py``
files."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from otelkit.cli import outputs
from otelkit.cli.options import SpecOption, header_option, spec_option
from otelkit.errors import ConfigError

if TYPE_CHECKING:
    from otelkit.dashboards import UserDashboard

_FINDING = 3
_FOLDER = "dashboards"
_NEVER_LEFT_OVER = "\0"
"""JSON has no room for the line that tells generated files from others, so leftovers are told by name."""


@click.command("dashboards")
@spec_option
@click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write the dashboards of your own *.dashboard.py files (grafanalib) instead of otelkit's.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR|-",
    default=_FOLDER,
    show_default=True,
    help="Folder to write to; - writes a JSON array of dashboards to standard output.",
)
@click.option(
    "--check", is_flag=True, help="Write nothing; exit with 3 and show the differences if there are any."
)
@click.option("--lint", "with_lint", is_flag=True, help="Also check your dashboards by otelkit's own rules.")
@click.option(
    "--prometheus",
    metavar="URL",
    help="Also ask this Prometheus for every metric, query and variable of your dashboards.",
)
@header_option
@click.pass_context
def command(
    context: click.Context,
    spec: SpecOption,
    source: Path | None,
    output: str,
    check: bool,
    with_lint: bool,
    prometheus: str | None,
    headers: Mapping[str, str],
) -> None:
    """Grafana dashboards: provisioning folder and importable JSON in one."""
    if source is None and (with_lint or prometheus):
        raise click.UsageError("--lint and --prometheus check your own dashboards: name them with --from DIR")
    if source is None:
        files = _own(spec)
    else:
        loaded = _loaded(spec, source)
        if prometheus is None:
            _demand_known_names(loaded)
        else:
            _demand_answers(loaded, prometheus, headers)
        if with_lint and _lint(loaded):
            context.exit(_FINDING)
        files = _of_user(loaded)
    if output == "-":
        if check:
            raise click.UsageError("--check compares with a folder; leave out -o -, or name the folder")
        dashboards = [json.loads(text) for name, text in files.items() if name.endswith(".json")]
        click.echo(json.dumps(dashboards, indent=2, sort_keys=True, ensure_ascii=False))
        return
    directory = Path(output)
    stale = _stale(directory, files) if source is None else []
    if check:
        drift = outputs.differences(directory, files, header=_NEVER_LEFT_OVER)
        drift += "".join(f"{path}: is left over; nothing generates it\n" for path in stale)
        if drift:
            click.echo(drift, nl=False)
            again = "otelkit generate dashboards" + (f" --from {source}" if source else "")
            again += f" -o {output}" if output != _FOLDER else ""
            click.echo(f"{directory} is not what it should be; run `{again}`", err=True)
            context.exit(_FINDING)
        click.echo(f"{directory} is up to date", err=True)
        return
    changed = outputs.write(directory, files, header=_NEVER_LEFT_OVER)
    for path in stale:
        path.unlink()
    for path in [*changed, *stale]:
        click.echo(path)


def _own(spec: SpecOption) -> dict[str, str]:
    from otelkit.dashboards import generate

    return generate(spec.load())


def _loaded(spec: SpecOption, source: Path) -> list[UserDashboard]:
    from otelkit.dashboards import documents, load_dashboards

    return load_dashboards(source, taken=documents(spec.load()))


def _demand_known_names(loaded: Sequence[UserDashboard]) -> None:
    from otelkit.dashboards import unknown_metrics

    unknown = [f"{one.path}: {text}" for one in loaded for text in unknown_metrics(one.document)]
    if unknown:
        raise ConfigError(
            unknown,
            hint="`otelkit generate rules -o -` shows what is recorded; "
            "--prometheus URL judges by what a Prometheus has.",
        )


def _demand_answers(loaded: Sequence[UserDashboard], prometheus: str, headers: Mapping[str, str]) -> None:
    from otelkit.dashboards import findings_at
    from otelkit.dashboards.preview import PrometheusApi

    with PrometheusApi(prometheus, headers=headers) as api:
        now = time.time()
        findings = [f"{one.path}: {text}" for one in loaded for text in findings_at(one.document, api, now)]
        if findings:
            raise ConfigError(
                findings, hint=f"That is what {api.url} answers; without --prometheus it is not asked."
            )


def _lint(loaded: Sequence[UserDashboard]) -> bool:
    """Whether there are findings, which are printed."""
    from otelkit.dashboards import lint

    findings = [f"{one.path}: {text}" for one in loaded for text in lint(one.document)]
    for finding in findings:
        click.echo(finding)
    return bool(findings)


def _of_user(loaded: Sequence[UserDashboard]) -> dict[str, str]:
    from otelkit.dashboards import dashboard_text

    return {one.file_name: dashboard_text(one.document) for one in loaded}


def _stale(directory: Path, files: Mapping[str, str]) -> list[Path]:
    """Dashboards of an earlier release that is no longer generated."""
    return [path for path in sorted(directory.glob("otelkit-*.json")) if path.name not in files]
