"""Going round: one round after another, never two at once, and a page that tells all of it."""

from __future__ import annotations

import logging
import socketserver
import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

from otelkit.analyse.page import OwnMetrics
from otelkit.analyse.state import State
from otelkit.errors import BackendUnreachable, OtelkitError, UsageError

logger = logging.getLogger("otelkit.analyse")

_REST: Final = 0.25
"""Rest after a round, as a share of its length, however much there is to do: others use the processor too."""
_LONGEST_PAUSE_SECONDS: Final = 300.0
"""Between two attempts while Prometheus does not answer."""
_HUNG_SECONDS: Final = 900.0
"""A round that takes longer than this is taken for stuck."""

_StartResponse = Callable[[str, list[tuple[str, str]]], Any]


class Rounds:
    """Calls a round again and again in one thread, so that a slow one delays the next and never overlaps it.

    Args:
        do: One round; gives what is known after it.
        interval: Seconds from the beginning of one round to that of the next.
        metrics: Where rounds are counted.
    """

    def __init__(self, do: Callable[[], State], interval: float, metrics: OwnMetrics) -> None:
        self._do, self._interval, self._metrics = do, interval, metrics
        self.after: Callable[[State], None] | None = None
        """Called with what is known after each round that was done."""
        self._failures = 0
        self._began = time.monotonic()
        self.ready = False
        """Whether a round was done."""

    def run(self, stop: threading.Event) -> None:
        """Go round until ``stop`` is set."""
        while not stop.is_set():
            stop.wait(self.once())
        self._began = time.monotonic()

    def once(self) -> float:
        """One round; seconds to wait before the next."""
        self._began = began = time.monotonic()
        cpu = time.process_time()
        waiting = False
        try:
            state = self._do()
            if self.after is not None:
                self.after(state)
            waiting = state.waiting > 0
            self._succeeded(state)
        except BackendUnreachable as error:
            self._failed("unreachable", error)
        except OtelkitError as error:
            self._failed("failed", error)
        except Exception as error:
            # Verdicts of before are worth more than no page at all.
            logger.exception("a round failed")
            self._failed("failed", error)
        took = time.monotonic() - began
        self._metrics.round_seconds.set(took)
        self._metrics.cpu.inc(time.process_time() - cpu)
        rest = _REST * took
        if self._failures:
            pause: float = self._interval * 2 ** (self._failures - 1)
            return max(rest, min(pause, _LONGEST_PAUSE_SECONDS))
        return rest if waiting else max(rest, self._interval - took)

    @property
    def hung(self) -> bool:
        """Whether the round under way takes longer than any should."""
        return time.monotonic() - self._began > max(_HUNG_SECONDS, _LONGEST_PAUSE_SECONDS + self._interval)

    def _succeeded(self, state: State) -> None:
        if self._failures:
            logger.info("Prometheus answers again")
        self._failures = 0
        self.ready = True
        self._metrics.rounds.labels("done").inc()
        self._metrics.data_until.set(state.data_until)
        self._metrics.waiting.set(state.waiting)
        self._metrics.stale.set(0)

    def _failed(self, outcome: str, error: Exception) -> None:
        if not self._failures:
            logger.warning("%s; verdicts stay as they are until it works again", error)
        # Beyond 2 ** 20 intervals the pause is the longest one anyway.
        self._failures = min(self._failures + 1, 20)
        self._metrics.rounds.labels(outcome).inc()
        self._metrics.stale.set(1)


class Page:
    """``/metrics``, ``/-/healthy`` (the rounds go on) and ``/-/ready`` (one was done).

    Args:
        host, port: Where it listens; port 0 takes any free one.

    Raises:
        UsageError: the port is taken, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, rounds: Rounds) -> None:
        self._metrics = make_wsgi_app(registry)
        self._rounds = rounds
        try:
            self._server = make_server(host, port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise UsageError(
                f"{host}:{port}: can't listen there: {error.strerror or error}",
                hint="Name another with --host and --port.",
            ) from error
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="page", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: _StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            found: Iterable[bytes] = self._metrics(environ, start_response)
            return found
        status, text = {
            "/-/healthy": ("503 Service Unavailable", "a round is stuck") if self._rounds.hung else _OK,
            "/-/ready": _OK if self._rounds.ready else ("503 Service Unavailable", "no round was done yet"),
        }.get(path, ("404 Not Found", "there are /metrics, /-/healthy and /-/ready"))
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{text}\n".encode()]


_OK: Final = ("200 OK", "ok")


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """A line a scrape helps nobody."""
