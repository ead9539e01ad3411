"""Calls to show beside a verdict: from a file of spans, or from Tempo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from otelkit.causal import Explanation
from otelkit.errors import UsageError
from otelkit.model import Generation
from otelkit.query.bundle import TRACES
from otelkit.query.prometheus import Exemplar
from otelkit.query.tempo import Tempo
from otelkit.query.traces import read_generations
from otelkit.report.exemplars import compared_spans

_TRIES: Final = 5
"""Traces asked for on each side: Tempo may have dropped some, or sampled them away."""
_NEAR: Final = 0.3
"""Share of P99 by which a call that stands for it may differ."""

ExemplarsOf = Callable[[str, float, float], Sequence[Exemplar]]
"""Exemplars of a service between two Unix times."""


def from_file(path: Path, service: str) -> tuple[Generation, ...]:
    """Generations of a service from OTLP JSON lines, or from the folder of a run that has them.

    Raises:
        UsageError: there is no such file.
        DataError: it holds something else.
    """
    file = path / TRACES if path.is_dir() else path
    if not file.is_file():
        raise UsageError(
            f"--traces {path}: there is no such file",
            hint="Name a file of OTLP JSON lines, or Tempo's address, which begins with http.",
        )
    return read_generations(file, service)


def from_tempo(
    tempo: Tempo, explanation: Explanation, exemplars_of: ExemplarsOf | None
) -> tuple[Generation, ...]:
    """A generation at P99 before the change that moved it most, and one after it, as far as Tempo has them.

    Args:
        exemplars_of: Where ids of traces are known from; Tempo is searched where there are none.

    Raises:
        BackendUnreachable: Tempo does not answer, or not as Tempo does.
    """
    spans = compared_spans(explanation)
    if spans is None:
        return ()
    found = []
    for side, (begin, end), p99 in (
        ("before", (spans.begin, spans.at), explanation.p99_before),
        ("after", (spans.at, spans.end), explanation.p99_after),
    ):
        for trace_id in _ids(tempo, explanation.service, begin, end, p99, exemplars_of):
            inside = [
                one
                for one in tempo.generations(trace_id, explanation.service)
                if begin <= one.start_ns / 1e9 < end
            ]
            if inside:
                found.append(max(inside, key=lambda one: one.duration_seconds))
                break
        else:
            click.echo(
                f"warning: {tempo.shown} has no call of {explanation.service} near P99 {side} the change",
                err=True,
            )
    return tuple(found)


def _ids(
    tempo: Tempo,
    service: str,
    begin: float,
    end: float,
    p99: float | None,
    exemplars_of: ExemplarsOf | None,
) -> Iterator[str]:
    exemplars = list(exemplars_of(service, begin, end)) if exemplars_of else []
    if exemplars:
        level = p99 if p99 is not None else max(one.seconds for one in exemplars)
        exemplars.sort(key=lambda one: abs(one.seconds - level))
        yield from (one.trace_id for one in exemplars[:_TRIES])
    elif p99 is not None:
        yield from tempo.search(service, begin, end, p99 * (1 - _NEAR), p99 * (1 + _NEAR))[:_TRIES]
