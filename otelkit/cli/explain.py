"""``otelkit explain``: which parameter change moved P99, by how much, and through what."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
from click.core import ParameterSource

from otelkit.cli.options import (
    Moment,
    Span,
    SpecOption,
    demand_numpy,
    header_option,
    prometheus_option,
    spec_option,
)
from otelkit.errors import DataError, UsageError

if TYPE_CHECKING:
    from otelkit.causal import Explanation
    from otelkit.model import Generation
    from otelkit.query.bundle import Bundle

_FINDING: Final = 3


@click.command()
@spec_option
@prometheus_option
@header_option
@click.option(
    "--metrics",
    metavar="URL",
    multiple=True,
    help="Scrape this /metrics page instead of asking Prometheus; may be repeated.",
)
@click.option(
    "--for",
    "seconds",
    type=Span(),
    default="20m",
    show_default=True,
    help="With --metrics: how long to scrape. Ctrl-C ends it early and explains what was read.",
)
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
    "--save-as",
    "save_form",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Form of the series that --save keeps.",
)
@click.option(
    "--jumps",
    is_flag=True,
    help="The other direction: find where P99 jumped, and rank the changes before it, of all services.",
)
@click.option("--at", type=Moment(), help="The same for the jump nearest to this time alone.")
@click.option(
    "--page",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a self-contained HTML page about one service.",
)
@click.option(
    "--traces",
    metavar="WHERE",
    help="Tempo's address, or a file of OTLP JSON lines: calls from before and after for the page.",
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def command(
    context: click.Context,
    spec: SpecOption,
    prometheus: str | None,
    headers: Mapping[str, str],
    metrics: Sequence[str],
    seconds: float,
    services: Sequence[str],
    since: float,
    until: float,
    step: float | None,
    bundle: Path | None,
    save: Path | None,
    save_form: Literal["csv", "parquet"],
    jumps: bool,
    at: float | None,
    page: Path | None,
    traces: str | None,
    form: str,
) -> None:
    """Say which parameter change moved P99.

    Other services in the data serve as controls. Exits with 3 when a change is found to have made P99 worse,
    by its threshold where otelkit.yaml states one.
    """
    demand_numpy("otelkit explain")
    from otelkit.cli import explain_data
    from otelkit.query.bundle import write_bundle
    from otelkit.query.bundle_reader import read_bundle

    _refuse_what_does_nothing(context, bundle, metrics)
    _demand_places(save, save_form, page)
    if bundle is not None:
        data = read_bundle(bundle)
    elif metrics:
        data = explain_data.from_pages(spec, metrics, seconds, step)
    else:
        data = explain_data.from_prometheus(spec, prometheus, since, until, step, headers)
    for warning in (*data.warnings, *_without_series(data)):
        click.echo(f"warning: {warning}", err=True)
    if save is not None:
        write_bundle(
            save,
            data.panel,
            data.changes,
            warnings=data.warnings,
            thresholds=data.thresholds,
            generations=data.generations,
            form=save_form,
        )
        click.echo(f"bundle: {save}", err=True)
    wanted = _wanted(data, services)
    if jumps or at is not None:
        from otelkit.cli.explain_jumps import tell_jumps

        sys.exit(_FINDING if tell_jumps(data, services or sorted(data.panel.services), at, form) else 0)
    if page is not None and len(wanted) != 1:
        if metrics:
            # What took so long to read is told all the same.
            _tell(data, [_explained(data, service, wanted) for service in wanted], form)
        raise UsageError(
            f"--page {page}: a page is about one service, and there are {len(wanted)}: {', '.join(wanted)}",
            hint=f"Name one, for instance --service {wanted[0]}.",
        )
    explanations = [_explained(data, service, wanted) for service in wanted]
    if traces is not None:
        found = [
            one
            for explanation in explanations
            for one in _generations(
                traces, explanation, spec, prometheus, headers, live=not (bundle or metrics)
            )
        ]
        data = replace(data, generations=tuple(found))
        if save is not None:
            _keep(save, data, explanations)
    if page is not None:
        _write_page(page, data, explanations[0])
    _tell(data, explanations, form)
    if any(map(_is_regression, explanations)):
        sys.exit(_FINDING)


def _demand_places(save: Path | None, form: str, page: Path | None) -> None:
    """Say before anything is read, which may take long, that it could not be kept.

    Raises:
        UsageError: a folder or file could not be written.
    """
    from otelkit.query import parquet
    from otelkit.query.bundle import demand_folder

    if save is not None:
        demand_folder(save)
        if form == "parquet":
            parquet.demand()
    if page is not None and not os.access(page.parent, os.W_OK):
        raise UsageError(f"--page {page}: can't be written", hint="Name a file in a folder that exists.")


def _refuse_what_does_nothing(context: click.Context, bundle: Path | None, metrics: Sequence[str]) -> None:
    """Options that would choose what another one has chosen already must not be ignored silently."""
    given = {
        name
        for name, source in ((name, context.get_parameter_source(name)) for name in context.params)
        if source is ParameterSource.COMMANDLINE
    }

    def refuse(reason: str, *names: str) -> None:
        shown = [
            option.opts[0]
            for option in context.command.params
            if option.name in names and option.name in given
        ]
        if shown:
            raise click.UsageError(f"{reason}; {', '.join(shown)} can't be given with it")

    chosen = ("prometheus", "headers", "metrics", "seconds", "since", "until", "step", "spec")
    if bundle is not None:
        refuse("--bundle holds all data", *chosen)
    elif metrics:
        refuse("--metrics reads what is on the pages from now on", "prometheus", "headers", "since", "until")
    else:
        refuse("--for says how long --metrics is scraped, and there is none", "seconds")
    if "save_form" in given and "save" not in given:
        raise click.UsageError("--save-as says how --save keeps the series, and there is no --save")
    if "jumps" in given or "at" in given:
        refuse("--jumps and --at look for causes of jumps, not for effects of changes", "page", "traces")


def _without_series(data: Bundle) -> list[str]:
    """A sentence for each service that was changed and has no series."""
    changed = sorted({change.service for change in data.changes} - set(data.panel.services))
    return [
        f"service {name!r} was changed, but has no series: its changes are not judged" for name in changed
    ]


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


def _explained(data: Bundle, service: str, services: Sequence[str]) -> Explanation:
    """The verdicts with the thresholds that they are held against; those it is too early for say so."""
    from otelkit.analyse.settled import looked_back_since, settled
    from otelkit.report.band import with_band

    since = looked_back_since([change for change in data.changes if change.service in services])
    explanation = settled(data.panel, service, data.changes, since=since)
    thresholds = data.thresholds.get(service, {})
    findings = tuple(
        replace(one, threshold=thresholds.get(one.change.parameter)) for one in explanation.findings
    )
    return with_band(replace(explanation, findings=findings), data.panel)


def _generations(
    where: str,
    explanation: Explanation,
    spec: SpecOption,
    prometheus: str | None,
    headers: Mapping[str, str],
    *,
    live: bool,
) -> tuple[Generation, ...]:
    """Calls of the service from a file or from Tempo; Prometheus is asked for exemplars where it was read."""
    from otelkit.cli import explain_data, explain_traces
    from otelkit.query.tempo import Tempo

    if not where.startswith(("http://", "https://")):
        return explain_traces.from_file(Path(where), explanation.service)
    with Tempo(where, headers=headers) as tempo:
        if not live:
            return explain_traces.from_tempo(tempo, explanation, None)
        with explain_data.open_prometheus(spec.load(), prometheus, headers) as source:
            return explain_traces.from_tempo(tempo, explanation, source.exemplars)


def _keep(save: Path, data: Bundle, explanations: Sequence[Explanation]) -> None:
    """Add the calls that are shown to the bundle; all others of a day's file would only make it large."""
    from otelkit.query.bundle import TRACES
    from otelkit.query.traces import write_generations
    from otelkit.report import choose_exemplars

    chosen = [choose_exemplars(one, _of(data, one.service)) for one in explanations]
    kept = [one for pair in chosen if pair for one in (pair.before, pair.after)]
    if kept:
        write_generations(save / TRACES, kept)


def _of(data: Bundle, service: str) -> list[Generation]:
    return [one for one in data.generations if one.call_site.service in ("", service)]


def _write_page(page: Path, data: Bundle, explanation: Explanation) -> None:
    from otelkit import report

    text = report.render_page(
        replace(explanation, warnings=(*data.warnings, *explanation.warnings)),
        data.panel,
        exemplars=report.choose_exemplars(explanation, _of(data, explanation.service)),
    )
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"--page {page}: can't be written: {error.strerror}", hint="Name a file in a folder that exists."
        ) from error
    click.echo(f"page: {page}", err=True)


def _tell(data: Bundle, explanations: Sequence[Explanation], form: str) -> None:
    from otelkit import report

    if form == "json":
        noted = [replace(one, warnings=(*data.warnings, *one.warnings)) for one in explanations]
        click.echo(json.dumps(report.to_json(noted), ensure_ascii=False, allow_nan=False))
    else:
        click.echo(report.render_table(explanations))


def _is_regression(explanation: Explanation) -> bool:
    """Whether a change made P99 worse, by its threshold where there is one."""
    from otelkit.causal import Verdict

    return any(
        finding.verdict is Verdict.CAUSAL
        and finding.effect is not None
        and finding.effect.value > 0
        and (finding.threshold is None or finding.crosses_threshold)
        for finding in explanation.findings
    )
