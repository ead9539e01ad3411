"""Runs first in every Python process that ``otelkit run`` starts, and hands over to the user's own file.

Recording begins when the client of a provider is imported, or ``otelkit.watch`` or ``otelkit.parameters`` is
used, not before: child processes that call no model (a package manager, a process manager that starts the
workers) load nothing and take no port.

The folder of this file is on PYTHONPATH, ahead of everything, and so would hide another ``sitecustomize``
that the interpreter would have run. That one is looked for further down the path and run in our place.
Nothing here may break the program.
"""

from __future__ import annotations


def _wait_for_clients() -> None:
    try:
        import otelkit
        from otelkit.record.imports import when_imported
        from otelkit.record.providers.registry import client_modules

        for name in client_modules():
            when_imported(name, lambda client: _instrument())
        otelkit._when_used = _instrument
    except Exception as error:
        _say(error)


def _instrument() -> None:
    try:
        import otelkit

        otelkit.instrument(defer_providers=True)
    except Exception as error:
        _say(error)


def _say(error: Exception) -> None:
    import sys

    print(f"otelkit: this process is not recorded: {type(error).__name__}: {error}", file=sys.stderr)


def _run_hidden_sitecustomize() -> None:
    import importlib.util
    import sys
    from importlib.machinery import PathFinder
    from pathlib import Path

    here = Path(__file__).resolve().parent
    path = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    spec = PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    # Errors in it are the user's: ``site`` reports them just as it would without us.
    spec.loader.exec_module(module)


_wait_for_clients()
_run_hidden_sitecustomize()
