"""Exporters for the providers that otelkit sets up itself: encode, then leave the rest to a ``Delivery``.

The SDK's own exporters block their processor while a collector is down, and the end of the process with it,
for up to ten seconds; these return at once, and the delivery's buffer, retries and bounded shutdown apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from otelkit.emit import notices, self_metrics
from otelkit.emit.otlp.delivery import Delivery
from otelkit.emit.otlp.span_encoder import SpanEncoder


class BufferedSpanExporter(SpanExporter):
    """Leaves spans with a delivery, in requests of at most ``batch_bytes``."""

    def __init__(self, delivery: Delivery, batch_bytes: int) -> None:
        self.delivery = delivery
        self._batch_bytes = batch_bytes
        self._encoder = SpanEncoder()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            body = self._encoder.encode(spans)
        except Exception:  # text with half a surrogate pair, as JSON allows: that span alone is lost
            if len(spans) > 1:
                self._export_halves(spans)
            else:
                self._give_up()
            return SpanExportResult.SUCCESS
        if len(body) > self._batch_bytes and len(spans) > 1:
            self._export_halves(spans)
        else:
            self.delivery.put(body, len(spans))
        return SpanExportResult.SUCCESS

    def _export_halves(self, spans: Sequence[ReadableSpan]) -> None:
        half = len(spans) // 2
        self.export(spans[:half])
        self.export(spans[half:])

    def _give_up(self) -> None:
        self.delivery.counts.written(1)
        self.delivery.counts.dropped(1, self_metrics.EXPORT_FAILED)
        notices.say_once(
            "otelkit: a span can't be encoded and is dropped, as are further ones like it, counted in "
            "otelkit_spans_dropped_total. Check names and attributes for text that is no valid Unicode."
        )


class BufferedLogExporter(LogRecordExporter):
    """Leaves log records with a delivery."""

    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def export(self, batch: Sequence[ReadableLogRecord]) -> LogRecordExportResult:
        self.delivery.put(encode_logs(batch).SerializeToString(), len(batch))
        return LogRecordExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here; the delivery is flushed by whoever made it."""
        return True

    def shutdown(self) -> None:
        """The delivery is shut down by whoever made it."""
