"""Where ``otelkit explain`` gets its data: a PromQL API, or /metrics pages scraped meanwhile."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Final

import click

from otelkit.cli.options import DEFAULT_PROMETHEUS, SpecOption
from otelkit.errors import DataError, UsageError
from otelkit.query import PrometheusSource, ScrapeSource, Source
from otelkit.query.bundle import Bundle
from otelkit.query.units import contradictions
from otelkit.spec import Spec

_MOST_STEPS: Final = 20_000
"""Steps of the grid; a longer span is read at a multiple of the scrape interval."""
SCRAPE_SECONDS: Final = 1.0
_TICK_SECONDS: Final = 0.5


def from_prometheus(
    spec: SpecOption,
    prometheus: str | None,
    since: float,
    until: float,
    step: float | None,
    headers: Mapping[str, str],
) -> Bundle:
    """Series and changes of every service that the server knows.

    Raises:
        BackendUnreachable: Prometheus did not answer.
        DataError: it has no service in that time.
        UsageError: the span is empty.
    """
    if until <= since:
        raise UsageError("--until lies before --since", hint="Swap them.")
    read = spec.load()
    step = step or _step(read.scrape_interval.seconds, until - since)
    start = math.ceil(since / step) * step
    with open_prometheus(read, prometheus, headers) as source:
        return _read(source, read, source.address, start, until, step)


def open_prometheus(spec: Spec, prometheus: str | None, headers: Mapping[str, str]) -> PrometheusSource:
    """The server that was asked for, else that of the spec, else the usual one."""
    return PrometheusSource(prometheus or spec.prometheus or DEFAULT_PROMETHEUS, spec, headers=headers)


def from_pages(spec: SpecOption, urls: Sequence[str], seconds: float, step: float | None) -> Bundle:
    """Series and changes from pages scraped every second for some time, or until Ctrl-C.

    Raises:
        BackendUnreachable: a page did not answer.
        DataError: the pages showed no call of any service.
    """
    read = spec.load()
    with ScrapeSource(urls, read, interval=SCRAPE_SECONDS) as source:
        start = time.time()
        source.scrape()
        source.demand_an_answer()
        click.echo(
            f"scraping {source.address} every {SCRAPE_SECONDS:g} s for {seconds:g} s; "
            "Ctrl-C ends that early and explains what was read",
            err=True,
        )
        _wait(seconds)
        source.stop()
        return _read(source, read, source.address, start, time.time(), step or SCRAPE_SECONDS)


def _wait(seconds: float) -> None:
    end = time.monotonic() + seconds
    terminal = sys.stderr.isatty()
    try:
        while (left := end - time.monotonic()) > 0:
            if terminal:
                click.echo(f"\r{left:.0f} s left ", err=True, nl=False)
            time.sleep(min(left, _TICK_SECONDS))
    except KeyboardInterrupt:
        pass
    if terminal:
        click.echo("\r" + " " * 20 + "\r", err=True, nl=False)


def _read(source: Source, spec: Spec, address: str, start: float, end: float, step: float) -> Bundle:
    names = source.service_names(start, end)
    if not names:
        raise DataError(
            f"{address} has no latency of any service in that time",
            hint="Is it scraped, and is its preset in otelkit.yaml the right one? `otelkit check` helps.",
        )
    panel = source.panel(names, start, end, step)
    changes = source.changes(start, end)
    warnings = list(source.warnings)
    for series in panel.services.values():
        warnings += [f"service {series.service}: {one.sentence}" for one in contradictions(series)]
    return Bundle(panel, changes, tuple(warnings), _thresholds(spec, names))


def _thresholds(spec: Spec, names: Sequence[str]) -> dict[str, dict[str, float]]:
    stated = {
        name: {one.name: one.threshold for one in spec.service(name).parameters if one.threshold is not None}
        for name in names
    }
    return {name: some for name, some in stated.items() if some}


def _step(scrape_seconds: float, span: float) -> float:
    return scrape_seconds * max(1, math.ceil(span / scrape_seconds / _MOST_STEPS))
