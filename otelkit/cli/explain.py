"""``otelkit explain``: which parameter change moved P99, by how much, and through what."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from otelkit.cli.options import DEFAULT_PROMETHEUS, Moment, SpecOption, prometheus_option, spec_option
from otelkit.errors import DataError, UsageError

if TYPE_CHECKING:
    from otelkit.causal import Explanation
    from otelkit.query.bundle import Bundle

_FINDING: Final = 3
_MOST_STEPS: Final = 20_000
"""Steps of the grid; a longer span is read at a multiple of the scrape interval."""


@click.command()
@spec_option
@prometheus_option
@click.option(
    "--service",
    "services",
    metavar="NAME",
    multiple=True,
    help="Service to explain; may be repeated. [default: every one that was changed]",
)
@click.option(
    "--since", type=Moment(), default="6h", show_default=True, help="Age or time at which the data begins."
)
@click.option(
    "--until", type=Moment(), default="now", show_default=True, help="Age or time at which the data ends."
)
@click.option(
    "--step",
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="Step of the series. [default: the scrape interval]",
)
@click.option(
    "--bundle",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Read an incident bundle instead of Prometheus.",
)
@click.option(
    "--save", metavar="DIR", type=click.Path(path_type=Path), help="Keep what was read as an incident bundle."
)
@click.option(
    "--page",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a self-contained HTML page about one service.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    spec: SpecOption,
    prometheus: str | None,
    services: Sequence[str],
    since: float,
    until: float,
    step: float | None,
    bundle: Path | None,
    save: Path | None,
    page: Path | None,
    form: str,
) -> None:
    """Say which parameter change moved P99.

    Other services in the data serve as controls. Exits with 3 when a change is found to have made P99 worse.
    """
    from otelkit import report
    from otelkit.causal import explain
    from otelkit.query.bundle import write_bundle
    from otelkit.query.bundle_reader import read_bundle

    if bundle is not None:
        _refuse_with_bundle(context)
        data = read_bundle(bundle)
    else:
        data = _from_prometheus(spec, prometheus, since, until, step)
    for warning in data.warnings:
        click.echo(f"warning: {warning}", err=True)
    wanted = _wanted(data, services)
    if page is not None and len(wanted) != 1:
        raise UsageError(
            f"--page {page}: a page is about one service, and there are {len(wanted)}: {', '.join(wanted)}",
            hint=f"Name one, for instance --service {wanted[0]}.",
        )
    if save is not None:
        write_bundle(save, data.panel, data.changes)
        click.echo(f"bundle: {save}", err=True)
    explanations = [explain(data.panel, service, data.changes) for service in wanted]
    if page is not None:
        _write(page, report.render_page(explanations[0], data.panel))
        click.echo(f"page: {page}", err=True)
    if form == "json":
        click.echo(json.dumps(report.to_json(explanations), ensure_ascii=False, allow_nan=False))
    else:
        click.echo(report.render_table(explanations))
    if _regression(explanations):
        sys.exit(_FINDING)


def _refuse_with_bundle(context: click.Context) -> None:
    """A bundle has its own span and step: options that would choose them must not be ignored silently."""
    given = [
        f"--{name}"
        for name in ("prometheus", "since", "until", "step", "spec")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"--bundle holds all data; {', '.join(given)} can't be given with it")


def _from_prometheus(
    spec: SpecOption, prometheus: str | None, since: float, until: float, step: float | None
) -> Bundle:
    """Series and changes of every service that the server knows.

    Raises:
        BackendUnreachable: Prometheus did not answer.
        DataError: it has no service in that time.
        UsageError: the span is empty.
    """
    from otelkit.query import PrometheusSource
    from otelkit.query.bundle import Bundle

    if until <= since:
        raise UsageError("--until lies before --since", hint="Swap them.")
    read = spec.load()
    step = step or _step(read.scrape_interval.seconds, until - since)
    start = math.ceil(since / step) * step
    with PrometheusSource(prometheus or read.prometheus or DEFAULT_PROMETHEUS, read) as source:
        names = source.service_names(start, until)
        if not names:
            raise DataError(
                f"{source.address} has no latency of any service in that time",
                hint="Is it scraped, and is its preset in otelkit.yaml the right one? `otelkit check` helps.",
            )
        panel = source.panel(names, start, until, step)
        return Bundle(panel, source.changes(start, until), source.warnings)


def _step(scrape_seconds: float, span: float) -> float:
    return scrape_seconds * max(1, math.ceil(span / scrape_seconds / _MOST_STEPS))


def _wanted(data: Bundle, services: Sequence[str]) -> list[str]:
    """The services to explain: those asked for, else those with a change, else all."""
    known = sorted(data.panel.services)
    unknown = sorted(set(services) - set(known))
    if unknown:
        raise DataError(
            f"no series of service {', '.join(map(repr, unknown))} in that time",
            hint=f"Services with data then: {', '.join(known)}.",
        )
    if services:
        return list(dict.fromkeys(services))
    changed = {change.service for change in data.changes}
    return [name for name in known if name in changed] or known


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--page {path}: can't be written: {error.strerror}", hint="Name a file in a folder that exists."
        ) from error


def _regression(explanations: Sequence[Explanation]) -> bool:
    from otelkit.causal import Verdict

    return any(
        finding.verdict is Verdict.CAUSAL and finding.effect is not None and finding.effect.value > 0
        for explanation in explanations
        for finding in explanation.findings
    )
