"""All that one process has of parameters: the store, its files, the signal, and the way to the sink."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from otelkit.model import Generation, Sink
from otelkit.record.call_sites import CallSiteParameters
from otelkit.record.parameters.calls import CallObserver
from otelkit.record.parameters.flags import FlagValues
from otelkit.record.parameters.reporting import Reporter
from otelkit.record.parameters.signals import ReloadSignal
from otelkit.record.parameters.store import ParameterStore
from otelkit.record.parameters.watching import FileWatcher
from otelkit.record.parameters.wishes import Wishes
from otelkit.record.traces import TraceRing

FILES_VARIABLE: Final = "OTELKIT_PARAMETERS_FILE"
"""Files to watch, separated as in PATH; ``conf.yaml#llm.parameters`` for a section of one."""
SIGNAL_VARIABLE: Final = "OTELKIT_PARAMETERS_SIGNAL"
"""``0`` keeps SIGUSR2 as it is."""


class ProcessParameters:
    """The parts, wired up."""

    def __init__(self) -> None:
        self.reporter = Reporter()
        self.store = ParameterStore(self.reporter)
        self.watcher = FileWatcher(self.store, self.reporter)
        self.signal = ReloadSignal(self.watcher.request_reload)
        self.traces = TraceRing()
        self.call_sites = CallSiteParameters()
        self.flags = FlagValues()
        self.wishes = Wishes()

    def watch(
        self,
        path: str | Path,
        *,
        section: str = "",
        scope: str = "",
        strict: bool = False,
        on_signal: bool = True,
    ) -> None:
        """Load parameters from a file (JSON, TOML, YAML), and again whenever it changes or SIGUSR2 arrives.

        Of several files that set one parameter, the one watched last counts.

        Args:
            section: keys separated by dots that lead to the parameters in the file; empty for the whole file.
            scope: the model or route that the values are for; empty for the whole service.
            strict: refuse parameters that were not registered.
            on_signal: reload on SIGUSR2 too; needs the main thread. A handler that is there keeps working.

        Raises:
            ConfigError: the file is bad now. Later the old values stay in force instead.
        """
        self.watcher.watch(path, section=section, scope=scope, strict=strict)
        if on_signal:
            self.signal.install()

    def watch_from_environment(self) -> None:
        """Watch the files that ``OTELKIT_PARAMETERS_FILE`` names; what is wrong with them is logged."""
        if self.watcher.files:
            return
        for part in filter(None, os.environ.get(FILES_VARIABLE, "").split(os.pathsep)):
            path, _, section = part.partition("#")
            self.watcher.watch(path, section=section, required=False)
        if self.watcher.files and os.environ.get(SIGNAL_VARIABLE, "1").strip() != "0":
            self.signal.install()

    def attach(self, sink: Sink, service: str) -> Sink:
        """Report changes to ``sink``; returns the sink to hand generations to, which passes them on to it."""
        observer = CallObserver(sink, self.store, self.reporter, self.wishes, self._keep)
        self.reporter.attach(sink, service)
        return observer

    def _keep(self, generation: Generation) -> None:
        if self.traces.capacity:
            self.traces.add(generation)
            self.call_sites.add(generation)

    def input_counts(self) -> Mapping[tuple[str, str], int]:
        """How often parameters came from outside: ``semconv.METRIC_PARAMETER_INPUTS`` by (input, outcome)."""
        return self.store.counts.read()

    def after_fork(self) -> None:
        """In a forked child: own locks, own thread."""
        self.reporter.after_fork()
        self.store.after_fork()
        self.wishes.after_fork()
        self.traces.after_fork()
        self.call_sites.after_fork()
        self.watcher.after_fork()


process: Final = ProcessParameters()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=process.after_fork)
