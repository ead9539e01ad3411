"""A web server that is ended by SIGTERM delivers what it holds, and still dies of the signal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from emit_collector import HttpCollector

SERVICE = """
    import sys
    import uvicorn
    import otelkit

    async def app(scope, receive, send):
        if scope["type"] != "http":
            return
        for _ in otelkit.watch(iter("tokens"), model="tiny"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    otelkit.instrument()
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def served(endpoint: str) -> Iterator[subprocess.Popen[str]]:
    """The service in a process of its own, after one request."""
    pytest.importorskip("uvicorn")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("OTEL", "PYTEST", "PROMETHEUS"))}
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SERVICE), str(port)],
        env={
            **clean,
            "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint,
            "OTEL_BSP_SCHEDULE_DELAY": "3600000",
            "OTELKIT_SHUTDOWN_SECONDS": "1",
        },
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(600):
            if process.poll() is not None:
                pytest.fail(f"the service ended with status {process.returncode}: {process.communicate()[1]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=30) as answer:
                    assert answer.read() == b"done"
                break
            except (ConnectionError, urllib.error.URLError):
                time.sleep(0.1)
        yield process
    finally:
        process.kill()
        process.wait()


def test_sigterm_delivers_and_kills() -> None:
    """Broken: the last seconds before each deployment are lost, or the exit status is no longer the
    signal's."""
    with HttpCollector() as collector, served(collector.url) as process:
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGTERM, errors
        names = [span.name for span in collector.spans()]
    assert sorted(names) == ["text_completion tiny", *["token_step"] * 6]


def test_sigterm_kills_soon_when_the_collector_is_down() -> None:
    """Broken: a collector that is down keeps servers from ending, so that deployments hang."""
    with served(f"http://127.0.0.1:{free_port()}") as process:
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGTERM
        assert time.monotonic() - begun < 30
