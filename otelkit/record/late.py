"""Spans that are made, or only ended, off the request's path: where nobody can tell the difference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from opentelemetry.context import Context

from otelkit.model import SpanIdentity


class LateSpans(Protocol):
    """What ``record`` asks of whoever exports its spans. The questions are asked in the request's path."""

    def can_begin(self) -> bool:
        """Whether a span that begins now may be made when it has ended, unless it is needed before."""

    def can_end(self) -> bool:
        """Whether a span may be ended a moment later, where its generation's record is built."""

    def make(
        self,
        name: str,
        surrounding: Context,
        sent: Mapping[str, Any],
        others: Mapping[str, Any],
        *,
        start_ns: int,
        end_ns: int,
        error: str | None,
    ) -> SpanIdentity | None:
        """Make and end a whole span of a call, off the request's path.

        Args:
            surrounding: context in which the call began.
            sent: attributes of the request, of clean types, lists as tuples.
            others: the other attributes, alike; one of the same name comes in the place of one of ``sent``.
            start_ns, end_ns: since the Unix epoch.
            error: type of the error that ended the call; None for none.

        Returns:
            None where that can't be: the tracer has to make the span.
        """


class NeverLate:
    """For a tracer provider of which nothing is known."""

    def can_begin(self) -> bool:
        return False

    def can_end(self) -> bool:
        return False

    def make(
        self,
        name: str,
        surrounding: Context,
        sent: Mapping[str, Any],
        others: Mapping[str, Any],
        *,
        start_ns: int,
        end_ns: int,
        error: str | None,
    ) -> SpanIdentity | None:
        return None
