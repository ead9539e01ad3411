"""Scripts in processes of their own, as a service would run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

CALL = """
    import logging, os, sys
    logging.basicConfig(format="%(levelname)s %(message)s")
    sys.path.insert(0, os.environ["HELPERS"])
    from emit_generations import SITE, generation
    from opentelemetry import trace
    from otelkit.model import ParameterChange, SpanIdentity
    import otelkit

    def call(handle, steps=10):
        span = trace.get_tracer("otelkit").start_span("chat some-model")
        context = span.get_span_context()
        identity = None
        if context.is_valid:
            identity = SpanIdentity(context.trace_id, context.span_id, context.trace_flags.sampled)
        handle.sink.generation_started(lambda: SITE)
        span.end()
        handle.sink.generation(lambda: generation(steps, span=identity))
"""


def run(script: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script after the definitions of ``CALL``, without this process's OTEL_* variables."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL", "PYTEST", "PROMETHEUS"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(CALL) + textwrap.dedent(script)],
        env={**clean, "HELPERS": str(Path(__file__).parent), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=60,
    )
