"""``otelkit analyse``: verdicts on all parameter changes, once or again and again as metrics."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import datetime
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from otelkit.cli.columns import columns
from otelkit.cli.options import (
    DEFAULT_PROMETHEUS,
    Span,
    SpecOption,
    demand_numpy,
    prometheus_option,
    spec_option,
)
from otelkit.errors import UsageError
from otelkit.model import canonical

if TYPE_CHECKING:
    from otelkit.analyse import Analyser, Judgement
    from otelkit.analyse.annotations import Grafana
    from otelkit.analyse.page import OwnMetrics, Verdicts

_FINDING: Final = 3
_FORMAT_VERSION: Final = 1
_TOKEN: Final = "GRAFANA_TOKEN"


@click.command()
@spec_option
@prometheus_option
@click.option("--serve", is_flag=True, help="Go on for ever, with the verdicts on a /metrics page.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address that the page listens on.")
@click.option("--port", type=click.IntRange(0, 65535), default=9465, show_default=True, help="Its port.")
@click.option(
    "--interval", type=Span(), default="15s", show_default=True, help="Time from one round to the next."
)
@click.option("--keep", type=Span(), default="6h", show_default=True, help="Age at which a change is let go.")
@click.option(
    "--changes",
    "changes",
    type=click.IntRange(1, 100),
    default=20,
    show_default=True,
    help="How many changes of a service are kept, the newest.",
)
@click.option("--grafana", metavar="URL", help=f"Annotate changes in this Grafana; {_TOKEN} has the token.")
@click.option("--dry-run", is_flag=True, help="Only say what would be written to Grafana.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    spec: SpecOption,
    prometheus: str | None,
    serve: bool,
    host: str,
    port: int,
    interval: float,
    keep: float,
    changes: int,
    grafana: str | None,
    dry_run: bool,
    form: str,
) -> None:
    """Judge every parameter change that Prometheus knows of.

    A change is judged by and by: until enough is known its verdict is "too early", with the time of the next
    look. Without --serve the verdicts are printed once, and the exit code is 3 when a change made P99 worse.
    """
    demand_numpy("otelkit analyse")
    if dry_run and grafana is None:
        raise UsageError(
            "--dry-run says what would be written to Grafana, and there is none",
            hint="Name it: --grafana URL",
        )
    from otelkit.analyse import Analyser, Limits
    from otelkit.analyse.annotations import Grafana
    from otelkit.analyse.page import OwnMetrics, Verdicts
    from otelkit.query import PrometheusSource
    from otelkit.query.connection import Api

    # httpx would say a line a query.
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s", stream=sys.stderr)
    logging.getLogger("otelkit.analyse").setLevel(logging.INFO)
    read = spec.load()
    url = prometheus or read.prometheus or DEFAULT_PROMETHEUS
    metrics = OwnMetrics()
    with ExitStack() as stack:
        source = stack.enter_context(PrometheusSource(url, read))
        api = Api(url, source.warn)
        stack.callback(api.close)
        limits = Limits(changes_of_a_service=changes, keep_seconds=keep)
        analyser = Analyser(source, api, read, limits=limits, watcher=metrics)
        told = None
        if grafana is not None:
            told = stack.enter_context(Grafana(grafana, os.environ.get(_TOKEN, ""), dry_run=dry_run))
        if serve:
            _serve(analyser, Verdicts(lambda: analyser.state, read), metrics, told, (host, port), interval)
            return
        state = analyser.round()
        while state.waiting:
            state = analyser.round()
        if told is not None:
            for outcome in told.show(state):
                metrics.annotations.labels(outcome).inc()
        for warning in source.warnings:
            click.echo(f"warning: {warning}", err=True)
    judgements = [one for some in state.judgements.values() for one in some]
    if form == "json":
        document = {"version": _FORMAT_VERSION, "changes": [_as_json(one, state.step) for one in judgements]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False))
    elif judgements:
        click.echo(_table(judgements, state.step))
    else:
        click.echo("no parameter changes in that time", err=True)
    if any(_is_regression(one) for one in judgements):
        sys.exit(_FINDING)


def _serve(
    analyser: Analyser,
    verdicts: Verdicts,
    metrics: OwnMetrics,
    grafana: Grafana | None,
    listen: tuple[str, int],
    interval: float,
) -> None:
    """Go round until a signal says to end."""
    from otelkit.analyse.annotations import Teller
    from otelkit.analyse.serve import Page, Rounds

    stop = threading.Event()

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    metrics.registry.register(verdicts)
    rounds = Rounds(analyser.round, interval, metrics)
    if grafana is not None:
        rounds.after = Teller(grafana, lambda outcome: metrics.annotations.labels(outcome).inc())
    with Page(*listen, metrics.registry, rounds) as page:
        click.echo(f"verdicts: http://{listen[0]}:{page.port}/metrics", err=True)
        rounds.run(stop)


def _is_regression(one: Judgement) -> bool:
    finding = one.finding
    is_causal = finding is not None and finding.verdict.value == "causal"
    return is_causal and finding is not None and finding.effect is not None and finding.effect.value > 0


def _table(judgements: Sequence[Judgement], step: float) -> str:
    from otelkit.report.wording import change_text, interval_text, probability_text

    rows = [("at", "service", "change", "verdict", "effect ms", "q", "next look")]
    for one in judgements:
        finding = one.finding
        rows.append(
            (
                _moment(one.change.first_seen),
                one.change.service,
                change_text(one.change),
                one.verdict,
                interval_text(finding.effect if finding else None),
                probability_text(finding.q_value if finding else None),
                _moment(one.due(step)),
            )
        )
    return columns(rows)


def _moment(at: float | None) -> str:
    """Local time of a Unix time."""
    return "-" if at is None else datetime.fromtimestamp(at).astimezone().isoformat(" ", "seconds")


def _as_json(one: Judgement, step: float) -> dict[str, Any]:
    change, finding = one.change, one.finding
    effect = finding and finding.effect
    return {
        "id": change.id,
        "service": change.service,
        "parameter": change.parameter,
        "old": canonical(change.old),
        "new": canonical(change.new),
        "first_seen": change.first_seen,
        "verdict": one.verdict,
        "reason": finding.reason if finding else "",
        "effect_seconds": effect and {"value": effect.value, "low": effect.low, "high": effect.high},
        "q_value": finding and finding.q_value,
        "judged_at": one.judged_at,
        "next_look": one.due(step),
    }
