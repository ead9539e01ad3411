"""Turns recording on and off for this process."""

from __future__ import annotations

import atexit
import os
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Final

from opentelemetry import trace

from otelkit.model import Sink
from otelkit.record import imports
from otelkit.record.clock import SYSTEM_CLOCK, Clock
from otelkit.record.late import LateSpans
from otelkit.record.parameters.process import process as parameters
from otelkit.record.patches import Patches
from otelkit.record.providers.base import Provider
from otelkit.record.providers.registry import client_modules, load
from otelkit.record.runtime import Runtime, service_name_from_environment

_runtime: Runtime | None = None
_patches: Final = Patches()


def runtime() -> Runtime | None:
    """The installation in force, if any."""
    return _runtime


def install(
    sink: Sink,
    providers: Sequence[Provider] | None = None,
    *,
    service: str | None = None,
    tracer_provider: trace.TracerProvider | None = None,
    clock: Clock = SYSTEM_CLOCK,
    late_spans: LateSpans | None = None,
) -> None:
    """Record the generations of all providers' clients in this process, imported already or later.

    A second call replaces the sink and doubles nothing.

    Args:
        sink: takes generations and changes; its methods must be quick, reentrant (a stream may be collected
            anywhere), and must not raise.
        providers: adapters to install; None for all that are registered.
        service: ``service.name``; None to take it from OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES.
        tracer_provider: None for the global one.
        clock: for tests.
        late_spans: as for ``Runtime``.
    """
    global _runtime
    named = service or service_name_from_environment()
    _runtime = Runtime(
        parameters.attach(sink, named),
        named,
        tracer_provider=tracer_provider,
        clock=clock,
        late_spans=late_spans,
    )
    if providers is None:
        for module, reference in client_modules().items():
            imports.when_imported(module, partial(_instrument_registered, reference))
    else:
        for provider in providers:
            imports.when_imported(provider.module, partial(_instrument, provider))


def _instrument_registered(reference: str, module: ModuleType) -> None:
    _instrument(load(reference), module)


def _instrument(provider: Provider, module: ModuleType) -> None:
    provider.instrument(module, _patches, runtime)


def uninstall() -> None:
    """End open generations, and leave the clients as they were found."""
    global _runtime
    imports.forget()
    _patches.undo()
    finished, _runtime = _runtime, None
    if finished is not None:
        finished.finish_open()
        parameters.reporter.detach()
        atexit.unregister(finished.finish_open)


def flush() -> None:
    """End every open generation at its last step, for the end of the process; the sink has all of them
    afterwards."""
    if _runtime is not None:
        _runtime.finish_open()


def _after_fork() -> None:
    if _runtime is not None:
        _runtime.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
