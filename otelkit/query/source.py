"""The one protocol by which the causal engine gets its data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from otelkit.model import ParameterChange
from otelkit.query.panel import Panel


class Source(Protocol):
    """Where series and changes are read from."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know of the data read so far, each once."""

    def service_names(self, start: float, end: float) -> tuple[str, ...]:
        """Services with latency between two Unix times, sorted: those that the spec lists, and any others."""

    def panel(self, services: Sequence[str] | None, start: float, end: float, step: float) -> Panel:
        """Series of services (all where None) on the grid ``start, start + step, ... <= end`` (Unix seconds).

        Raises:
            BackendUnreachable: the backend did not answer, or answered with an error.
            DataError: a service has no latency series in that time.
            UsageError: times or step make no grid.
        """

    def changes(self, start: float, end: float, service: str | None = None) -> tuple[ParameterChange, ...]:
        """Parameter changes first seen between two Unix times, oldest first; reports of one are merged.

        Raises:
            BackendUnreachable: the backend did not answer, or answered with an error.
        """
