"""A generation's span may end off the request's path, where nobody can tell; where one can, it ends at
once."""

from __future__ import annotations

import pytest
from emit_collector import HttpCollector
from emit_process import run

NAMES = ["text_completion tiny", *["token_step"] * 3]
STREAM = """
        provider = trace.get_tracer_provider()
        for _ in otelkit.watch(iter("abc"), model="tiny"):
            pass
"""


@pytest.mark.parametrize("end", ["provider.force_flush()", "provider.shutdown()", "handle.flush()", "pass"])
def test_no_span_is_missed_at_the_end(end: str) -> None:
    """Broken: a program that flushes or shuts down the provider right after a stream, as one in a lambda
    does, has no span for it."""
    with HttpCollector() as collector:
        done = run(
            f"""
        handle = otelkit.instrument()
        {STREAM}
        {end}
        {"os._exit(0)" if "flush" in end else ""}
        """,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"},
        )
        assert done.returncode == 0, done.stderr
        assert sorted(span.name for span in collector.spans()) == NAMES


def test_a_processor_of_the_programs_own_sees_the_span_at_once() -> None:
    """Broken: a user's processor, or a test with an exporter in memory, finds no span when the stream has
    ended."""
    with HttpCollector() as collector:
        done = run(
            f"""
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        handle = otelkit.instrument()
        exporter = InMemorySpanExporter()
        trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(exporter))
        {STREAM}
        print([span.name for span in exporter.get_finished_spans() if span.name != "token_step"])
        """,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url},
        )
        assert done.stdout.splitlines() == ["['text_completion tiny']"], done.stderr


@pytest.mark.parametrize(
    ("made", "end"),
    [
        ("TracerProvider()", "processor.force_flush()"),
        ("TracerProvider()", "processor.shutdown()"),
        ("TracerProvider(active_span_processor=ConcurrentMultiSpanProcessor())", "provider.shutdown()"),
    ],
)
def test_a_program_that_flushes_its_own_processor_misses_no_span(made: str, end: str) -> None:
    """Broken: a program that flushes its own processor past the provider, or a provider that shuts down all
    processors at once, has no span for generations that have just ended."""
    with HttpCollector() as collector:
        done = run(
            f"""
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        trace.set_tracer_provider({made})
        handle = otelkit.instrument()
        processor = BatchSpanProcessor(OTLPSpanExporter())
        trace.get_tracer_provider().add_span_processor(processor)
        for _ in range(100):
            {STREAM.replace(chr(10), chr(10) + "    ")}
        {end}
        os._exit(0)
        """,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "3600000"},
        )
        assert done.returncode == 0, done.stderr
        assert [span.name for span in collector.spans()].count("text_completion tiny") == 100


def test_a_full_queue_loses_no_span() -> None:
    """Broken: generations that find no room in the queue leave spans that never end."""
    with HttpCollector() as collector:
        done = run(
            f"""
        handle = otelkit.instrument()
        handle.sink._working.acquire()  # the background thread is held up
        for _ in range(20):
            {STREAM.replace(chr(10), chr(10) + "    ")}
        handle.sink._working.release()
        handle.flush()
        """,
            {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTELKIT_QUEUE_SIZE": "4"},
        )
        assert done.returncode == 0, done.stderr
        assert [span.name for span in collector.spans()].count("text_completion tiny") == 20
