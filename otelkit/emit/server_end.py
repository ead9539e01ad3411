"""Delivers what is left when a web server ends, where the process then dies of the signal that ended it.

uvicorn catches SIGTERM, shuts down, and lets the signal do what it did before: by default that kills the
process without any exit handler. No signal handler is installed here: what a signal does to a program, and
when, stays as it is without otelkit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

from otelkit.record import guard, imports
from otelkit.record.patches import Patches


def deliver_at_the_end(deliver: Callable[[], object], patches: Patches) -> None:
    """Have every uvicorn server call ``deliver`` as the last thing of a shutdown that a signal asked for.

    Args:
        deliver: ends and delivers everything, in bounded time; called in another thread, as the event loop
            may have other work.
        patches: undone when otelkit is taken off.
    """
    imports.when_imported("uvicorn.server", partial(_patch, deliver, patches))


def _patch(deliver: Callable[[], object], patches: Patches, module: ModuleType) -> None:
    patches.wrap(module.Server, "shutdown", lambda original: _delivering(original, deliver))


def _delivering(original: Any, deliver: Callable[[], object]) -> Any:
    async def shutdown(server: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return await original(server, *args, **kwargs)
        finally:
            # Without a signal the program goes on, or ends as others do.
            if getattr(server, "_captured_signals", None):
                try:
                    await asyncio.to_thread(deliver)
                except Exception:
                    guard.fault("deliver at the end of a server")

    return shutdown
