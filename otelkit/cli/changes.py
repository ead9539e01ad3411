"""``otelkit changes``: the parameter changes that are on record."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import datetime

import click

from otelkit.cli.columns import columns
from otelkit.cli.options import (
    DEFAULT_PROMETHEUS,
    Moment,
    SpecOption,
    demand_numpy,
    prometheus_option,
    spec_option,
)
from otelkit.model import ParameterChange, canonical, shares_note

_FORMAT_VERSION = 1


@click.command()
@spec_option
@prometheus_option
@click.option(
    "--metrics", metavar="URL", multiple=True, help="Read this /metrics page instead; may be repeated."
)
@click.option("--service", metavar="NAME", help="Only changes of this service.")
@click.option(
    "--since", type=Moment(), default="6h", show_default=True, help="Age or time of the oldest change."
)
@click.option(
    "--until", type=Moment(), default="now", show_default=True, help="Age or time of the newest change."
)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def command(
    spec: SpecOption,
    prometheus: str | None,
    metrics: Sequence[str],
    service: str | None,
    since: float,
    until: float,
    form: str,
) -> None:
    """List parameter changes, oldest first; what several workers report of one change is one line."""
    demand_numpy("otelkit changes")
    from otelkit.query import PrometheusSource, ScrapeSource

    if metrics and prometheus:
        raise click.UsageError("--metrics and --prometheus are two places to read from; give one of them")
    read = spec.load()
    if metrics:
        pages = ScrapeSource(metrics, read)
        pages.scrape()
        found = pages.changes(since, until, service)
        pages.close()
        warnings = pages.warnings
    else:
        with PrometheusSource(prometheus or read.prometheus or DEFAULT_PROMETHEUS, read) as server:
            found = server.changes(since, until, service)
            warnings = server.warnings
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)
    if form == "json":
        document = {"version": _FORMAT_VERSION, "changes": [_as_json(change) for change in found]}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
    elif found:
        click.echo(_table(found))
    else:
        click.echo("no parameter changes in that time", err=True)


def _as_json(change: ParameterChange) -> dict[str, object]:
    fields = dataclasses.asdict(change)
    for value in ("old", "new"):
        fields[value] = canonical(getattr(change, value))
    return {"id": change.id, **fields, "source": change.source.value}


def _change_text(change: ParameterChange) -> str:
    values = f"{change.parameter} {canonical(change.old)} -> {canonical(change.new)}"
    return values + shares_note(change.shares)


def _table(changes: Sequence[ParameterChange]) -> str:
    rows = [("at", "service", "change", "scope", "source", "workers", "rollout")]
    for change in changes:
        at = datetime.fromtimestamp(change.first_seen).astimezone()
        rollout = change.last_seen - change.first_seen
        rows.append(
            (
                at.isoformat(sep=" ", timespec="seconds"),
                change.service,
                _change_text(change),
                change.scope or "-",
                change.source.value,
                str(change.workers),
                f"{rollout:.0f} s" if rollout else "-",
            )
        )
    return columns(rows)
