"""otelkit: which parameter change moved this service's P99, by how much, and through what?"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from otelkit.emit.setup import Instrumentation as Instrumentation
    from otelkit.emit.setup import instrument as instrument
    from otelkit.emit.setup import uninstrument as uninstrument
    from otelkit.record import parameters as parameters
    from otelkit.record.generic import watch as watch

__version__ = "0.1.0"

_EXPORTS: Final = {
    "Instrumentation": "otelkit.emit.setup",
    "instrument": "otelkit.emit.setup",
    "uninstrument": "otelkit.emit.setup",
    "watch": "otelkit.record.generic",
}
"""Where each public name lives. It is loaded at its first use, so that ``import otelkit`` costs next to
nothing."""


_MODULES: Final = {"parameters": "otelkit.record.parameters"}
"""Public modules by their public name."""


_USED_BY_SERVICES: Final = frozenset({"parameters", "watch"})
_when_used: Callable[[], None] | None = None
"""Called when a program first uses one of them, which shows that it is a service; ``otelkit run`` sets it."""


def __getattr__(name: str) -> Any:
    global _when_used
    if name in _USED_BY_SERVICES and _when_used is not None:
        used, _when_used = _when_used, None
        used()
    if name in _MODULES:
        return globals().setdefault(name, import_module(_MODULES[name]))
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS, *_MODULES})
