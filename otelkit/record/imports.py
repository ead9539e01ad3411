"""Runs a function when a module is imported for the first time, without importing it early.

Clients of providers take up to a second to import; a program that does not use them must not pay for that.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Final

from otelkit.record.guard import fault

if TYPE_CHECKING:
    from importlib.abc import Loader

Hook = Callable[[ModuleType], None]


class _Finder:
    """First on ``sys.meta_path``; only answers for modules that are waited for."""

    def __init__(self) -> None:
        self.hooks: dict[str, list[Hook]] = {}
        self.executed: set[str] = set()
        """Modules whose code has run, though the import system may not have finished with them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hooks = self.hooks.pop(fullname, None)
        if hooks is None:
            return None
        # The name is off the list now, so that this finds the real module.
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            self.hooks[fullname] = hooks
            return spec
        _run_after_execution(spec.loader, hooks)
        return spec


_finder: Final = _Finder()


def _run_after_execution(loader: Loader, hooks: list[Hook]) -> None:
    """Hook this one loader object; its type, which the import system and others look at, stays what it is."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        execute(module)
        _finder.executed.add(module.__name__)
        _run(hooks, module)

    loader.exec_module = exec_module  # type: ignore[method-assign]


def _run(hooks: list[Hook], module: ModuleType) -> None:
    for hook in hooks:
        try:
            hook(module)
        except Exception:
            fault(f"instrument {module.__name__}")


def when_imported(name: str, hook: Hook) -> None:
    """Run ``hook`` with module ``name``: now if it is imported already, else right after it is."""
    module = sys.modules.get(name)
    initializing = getattr(getattr(module, "__spec__", None), "_initializing", False)
    if module is not None and (name in _finder.executed or not initializing):
        _run([hook], module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.hooks.setdefault(name, []).append(hook)


def forget() -> None:
    """Drop the hooks that have not run."""
    _finder.hooks.clear()
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
