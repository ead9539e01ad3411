"""The other direction of ``otelkit explain``: where P99 jumped, and which changes came before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import click

from otelkit import report
from otelkit.causal import find_jumps
from otelkit.query.bundle import Bundle

_WITHIN_SECONDS: Final = 900.0
_LIKELY: Final = 0.5
"""Probability from which a change counts as what made a jump."""


def tell_jumps(data: Bundle, services: Sequence[str], at: float | None, form: str) -> bool:
    """Print the jumps of services, or the one nearest to a time.

    Returns:
        Whether one that made P99 worse is put down to a change.
    """
    found = {service: find_jumps(data.panel, service, data.changes) for service in services}
    if at is not None:
        distances = [abs(jump.at - at) for some in found.values() for jump in some]
        near = min((one for one in distances if one <= _WITHIN_SECONDS), default=None)
        found = {
            service: tuple(jump for jump in some if near is not None and abs(jump.at - at) <= near)
            for service, some in found.items()
        }
    every = [jump for some in found.values() for jump in some]
    if form == "json":
        click.echo(json.dumps(report.jumps_to_json(found), ensure_ascii=False, allow_nan=False))
    elif every:
        times = data.panel.times
        click.echo(report.render_jumps(found, float(times[0]) - data.panel.step_seconds, float(times[-1])))
    else:
        within = f" within {_WITHIN_SECONDS / 60:.0f} min of that time" if at is not None else ""
        click.echo(
            f"no jump of P99 beyond load and the rest of the fleet{within}: {', '.join(services)}", err=True
        )
    return any(
        jump.effect.value > 0 and jump.candidates and jump.candidates[0].probability >= _LIKELY
        for jump in every
    )
