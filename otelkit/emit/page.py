"""The /metrics page of a process."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.multiprocess import MultiProcessCollector

from otelkit.emit import notices
from otelkit.emit.settings import PROMETHEUS_PORT


class MetricsPage:
    """A server of one page, in OpenMetrics with exemplars for whoever asks for that format.

    Args:
        host, port: where it listens; port 0 takes any free one.
        registry: what it shows; with ``multiprocess`` the files of all processes instead.

    Raises:
        OSError: the port is taken, or the address is not one of this machine.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, *, multiprocess: bool) -> None:
        if multiprocess:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        self._server: Any
        self._server, self._thread = start_http_server(port, addr=host, registry=registry)
        self.port: int = self._server.server_port
        self._process = os.getpid()

    def close(self) -> None:
        """Stop listening. In a forked child there is only the socket to close."""
        if os.getpid() == self._process:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_page(host: str, port: int, registry: CollectorRegistry, *, multiprocess: bool) -> MetricsPage | None:
    """The page, or None and one warning when it can't be served: a service must not fail to start over it."""
    try:
        return MetricsPage(host, port, registry, multiprocess=multiprocess)
    except OSError as error:
        notices.logger.warning(
            "otelkit can't serve /metrics on %s:%d (%s). The service goes on without the page; "
            "set %s to a free port, or to 0 for any. If another worker of this service has it: set "
            "PROMETHEUS_MULTIPROC_DIR to an empty directory before the start to have all on one page.",
            host,
            port,
            error.strerror or error,
            PROMETHEUS_PORT,
        )
        return None
