"""Parameter changes as OpenTelemetry log events."""

from __future__ import annotations

import time

from opentelemetry._logs import LogRecord, SeverityNumber, get_logger
from opentelemetry.util.types import AnyValue

from otelkit import __version__, semconv
from otelkit.model import ParameterChange, canonical, shares_note


def emit_change(change: ParameterChange) -> None:
    """Emit one change through the global logger provider; nothing happens when none is set up."""
    attributes: dict[str, AnyValue] = {
        semconv.CHANGE_ID: change.id,
        semconv.SERVICE_NAME: change.service,
        semconv.CHANGE_PARAMETER: change.parameter,
        semconv.CHANGE_OLD: canonical(change.old),
        semconv.CHANGE_NEW: canonical(change.new),
        semconv.CHANGE_SOURCE: change.source.value,
        semconv.CHANGE_SCOPE: change.scope,
        semconv.CHANGE_FIRST_SEEN: change.first_seen,
        semconv.CHANGE_LAST_SEEN: change.last_seen,
    }
    if change.origin:
        attributes[semconv.CHANGE_ORIGIN] = change.origin
    if change.shares is not None:
        attributes[semconv.CHANGE_SHARE_BEFORE], attributes[semconv.CHANGE_SHARE_AFTER] = change.shares
    if change.effective_at is not None:
        attributes[semconv.CHANGE_EFFECTIVE_AT] = change.effective_at
    get_logger(semconv.SCOPE, __version__).emit(
        LogRecord(
            timestamp=int(change.first_seen * 1e9),
            observed_timestamp=time.time_ns(),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            event_name=semconv.CHANGE_EVENT,
            body=f"{change.parameter}: {canonical(change.old)} -> {canonical(change.new)}"
            f"{shares_note(change.shares)}",
            attributes=attributes,
        )
    )
