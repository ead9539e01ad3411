"""What the environment asks for when a process starts: files to watch, and a port for debug pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from otelkit.errors import OtelkitError
from otelkit.record.parameters.process import process
from otelkit.record.parameters.reporting import logger
from otelkit.record.web.pages import PORT_VARIABLE

if TYPE_CHECKING:
    from otelkit.record.web.server import DebugServer

_servers: Final[list[DebugServer]] = []


def start_from_environment() -> None:
    """Watch the files and serve the pages that the environment asks for; a mistake is logged, not raised."""
    process.watch_from_environment()
    if _servers or not os.environ.get(PORT_VARIABLE, "").strip():
        return
    from otelkit.record.web.server import serve_debug_pages  # loads an HTTP server

    try:
        server = serve_debug_pages()
    except OtelkitError as error:
        logger.warning("%s", error)
    else:
        if server is not None:
            _servers.append(server)
            logger.info("debug pages: %s/debug/vars", server.url)


def stop() -> None:
    """Close the pages and stop watching; values stay in force."""
    while _servers:
        _servers.pop().close()
    process.watcher.close()
    process.signal.uninstall()
