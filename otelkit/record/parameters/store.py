"""The parameters of a process: layers of values, and the snapshot of those in force.

Readers take one reference and need no lock. Writers make a whole new set under a lock and put it in place
with one assignment, so that a reader sees the old set or the new one, never a mix.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

from opentelemetry import trace

from otelkit.errors import ConfigError
from otelkit.model import UNSET, ChangeSource, Generation, ParameterChange, ParameterValue
from otelkit.record.location import caller
from otelkit.record.parameters import counts
from otelkit.record.parameters.limits import Limits, NotAllowedError, kind_of
from otelkit.record.parameters.reporting import Reporter
from otelkit.record.parameters.snapshot import Act, Entry, FirstUse, Key, Layer, Snapshot
from otelkit.record.redaction import exported
from otelkit.record.stable import stable_text

MAX_PARAMETERS: Final = 1000
ENVIRONMENT_PREFIX: Final = "OTELKIT_PARAMETER_"

_Layers = dict[Layer, dict[Key, Entry]]


class ParameterStore:
    """Parameters with their limits, values and history; safe for threads.

    What is in force, from the weakest to the strongest: the default given to ``register``, configuration
    files, the environment at start, and ``set``. A file that is edited after a ``set`` of the same parameter
    is the newer word and wins.

    A change is reported once a value that was in use is replaced: as long as no call has begun and nothing
    has read the parameter, the set is still being put together, and a restarted worker reports nothing.

    Args:
        reporter: takes the changes.
        now: Unix seconds.
    """

    def __init__(self, reporter: Reporter, now: Callable[[], float] = time.time) -> None:
        self._reporter = reporter
        self._now = now
        self._lock = threading.RLock()
        self._limits: dict[Key, Limits] = {}
        self._layers: _Layers = {layer: {} for layer in Layer if layer is not Layer.REQUEST}
        self._snapshot = Snapshot({}, 0, self._used)
        self._held: ContextVar[Snapshot | None] = ContextVar("otelkit_parameters", default=None)
        self.calls_begun = False
        self.counts = counts.InputCounts()

    # --- reading --------------------------------------------------
    def snapshot(self) -> Snapshot:
        """The set in force here: the one held by this request, else the newest."""
        return self._held.get() or self._snapshot

    def get(self, name: str, default: ParameterValue = UNSET, *, scope: str = "") -> ParameterValue:
        """The value in force, or ``default``; lists and mappings are copies.

        Args:
            scope: a model or route; a parameter that has no value for it has that of the whole service.
        """
        return (self._held.get() or self._snapshot).get(name, default, scope=scope)

    @contextmanager
    def hold(self, snapshot: Snapshot | None = None) -> Iterator[Snapshot]:
        """Within the block, ``get`` reads one set, whatever is set or reloaded meanwhile.

        For the time of a generation or a request; other threads and tasks are not concerned.
        """
        held = snapshot or self.snapshot()
        token = self._held.set(held)
        try:
            yield held
        finally:
            with suppress(ValueError):  # left in another context, which has its own value
                self._held.reset(token)

    def keep(self, snapshot: Snapshot) -> None:
        """``hold`` until the end of the context that this is called in, which is one made for a request."""
        self._held.set(snapshot)

    def overriding(self, values: Mapping[str, ParameterValue], act: Act) -> Snapshot:
        """The set in force here with values that only one request sees; pass it to ``hold``."""
        at = self._now()
        return self.snapshot().overriding(
            {name: Entry(value, Layer.REQUEST, act, at) for name, value in values.items()}
        )

    def layers(self) -> Mapping[Layer, Mapping[Key, Entry]]:
        """Every value of every layer, those that a stronger layer covers included."""
        with self._lock:
            return {layer: dict(entries) for layer, entries in self._layers.items()}

    # --- writing --------------------------------------------------
    def register(
        self,
        name: str,
        default: ParameterValue = UNSET,
        *,
        scope: str = "",
        kind: type | None = None,
        minimum: float | None = None,
        maximum: float | None = None,
        choices: Sequence[ParameterValue] = (),
        env: str = "",
    ) -> ParameterValue:
        """Declare a parameter, its default and its limits; returns the value in force.

        The environment is read once, here: the variable ``env``, else ``OTELKIT_PARAMETER_<NAME>``. A value
        there that is not allowed is logged and counted, and does not count.

        Args:
            kind: ``int``, ``float`` (any number), ``bool``, ``str``, ``list`` or ``dict``; where it is None,
                that of the default.

        Raises:
            ConfigError: the default, or a value that was set before, is outside the limits.
        """
        limits = Limits(kind or kind_of(default), minimum, maximum, choices)
        key = (scope, name)
        with self._lock:
            present = {entry.act.origin or layer.name.lower(): entry.value
                       for layer, entries in self._layers.items()
                       if layer is not Layer.DEFAULT and (entry := entries.get(key))}  # fmt: skip
            problems = [
                f"{where}: {name}: {problem}"
                for where, value in {"default": default, **present}.items()
                if value is not UNSET and (problem := _problem(limits, value))
            ]
            if problems:
                raise ConfigError(problems, hint="Give the parameter other limits or another value.")
            self._limits[key] = limits
            act = Act(ChangeSource.DECLARED, caller("otelkit"))
            # The environment first: the default that it covers is then never in force.
            changes = self._read_environment(key, env or ENVIRONMENT_PREFIX + _variable(name), limits)
            changes += self._write(Layer.DEFAULT, {key: default}, act, report_new=False)[0]
            entry = self._snapshot.entry(name, scope)
        self._report(changes)
        return entry.value if entry else UNSET

    def set(
        self,
        name: str,
        value: ParameterValue,
        *,
        scope: str = "",
        source: ChangeSource = ChangeSource.DECLARED,
        origin: str = "",
    ) -> None:
        """Put one value in force; UNSET takes back what ``set`` gave, so that file and default count again.

        Args:
            source: ``CONTROL`` for an automatic action.
            origin: who or what does it; the calling code where it is empty.

        Raises:
            ConfigError: the value is outside the parameter's limits; nothing has changed.
        """
        self.update({name: value}, scope=scope, source=source, origin=origin or caller("otelkit"))

    def update(
        self,
        values: Mapping[str, ParameterValue],
        *,
        scope: str = "",
        source: ChangeSource = ChangeSource.DECLARED,
        origin: str = "",
    ) -> None:
        """``set`` for several parameters at once: readers see all of them or none."""
        act = Act(source, origin or caller("otelkit"))
        self.apply(Layer.CODE, {(scope, name): value for name, value in values.items()}, act)

    def replace(
        self,
        values: Mapping[str, ParameterValue],
        *,
        scope: str = "",
        source: ChangeSource = ChangeSource.DECLARED,
        origin: str = "",
    ) -> None:
        """``update``, and take back every other value that ``set`` gave for this scope."""
        act = Act(source, origin or caller("otelkit"))
        with self._lock:
            absent = {key: UNSET for key in self._layers[Layer.CODE] if key[0] == scope}
            self.apply(Layer.CODE, absent | {(scope, name): value for name, value in values.items()}, act)

    def apply(
        self, layer: Layer, values: Mapping[Key, ParameterValue], act: Act, *, report_new: bool = True
    ) -> bool:
        """Put values of one layer in force at once; UNSET removes one. Returns whether the set has changed.

        Args:
            report_new: whether a parameter that had no value at all has changed by getting one.

        Raises:
            ConfigError: values outside limits, one problem each; nothing has changed.
        """
        with self._lock:
            checked, problems = self.checked(values)
            if problems:
                raise ConfigError([f"{name}: {problem}" for (_, name), problem in problems.items()])
            changes, changed = self._write(layer, checked, act, report_new=report_new)
        self._report(changes)
        return changed

    def checked(
        self, values: Mapping[Key, ParameterValue]
    ) -> tuple[dict[Key, ParameterValue], dict[Key, str]]:
        """Values in the form in which they are kept, and what is wrong with the others."""
        result: dict[Key, ParameterValue] = {}
        problems: dict[Key, str] = {}
        for key, value in values.items():
            limits = self._limits.get(key) or self._limits.get(("", key[1]))
            try:
                result[key] = value if limits is None or value is UNSET else limits.checked(value)
            except NotAllowedError as error:
                problems[key] = str(error)
        if values and len(self._snapshot.entries.keys() | result.keys()) > MAX_PARAMETERS:
            problems[next(iter(values))] = f"there would be more than {MAX_PARAMETERS} parameters"
        return result, problems

    def registered(self) -> Mapping[Key, Limits]:
        """Limits of the parameters that were declared."""
        with self._lock:
            return dict(self._limits)

    # --- what calls tell --------------------------------------------------
    def call_begins(self) -> None:
        """A generation begins: from now on replaced values are changes. In the request's path."""
        self.calls_begun = True

    def call_used(self, generation: Generation) -> None:
        """A generation carried parameters: values that equal them are in use. Off the request's path."""
        entries = self._snapshot.entries
        if not entries:
            return
        for name, value in generation.parameters.items():
            entry = entries.get(("", name))
            if entry is None or entry.first_use is not None:
                continue
            at, span = generation.start_ns / 1e9, generation.span
            if entry.loaded_at <= at and stable_text(entry.value) == stable_text(value):
                self._first_use(entry, FirstUse(at, f"{span.trace_id:032x}" if span else ""))

    def _used(self, entry: Entry) -> None:
        context = trace.get_current_span().get_span_context()
        self._first_use(entry, FirstUse(self._now(), f"{context.trace_id:032x}" if context.is_valid else ""))

    def _first_use(self, entry: Entry, use: FirstUse) -> None:
        with self._lock:
            if entry.first_use is not None:
                return
            entry.first_use = use
            change = entry.change
        if change is not None:
            self._reporter.in_use(change, use.at)

    def after_fork(self) -> None:
        """In the child: a lock that no other thread holds."""
        self._lock = threading.RLock()
        self.counts.after_fork()

    # --- within --------------------------------------------------
    def _write(
        self, layer: Layer, values: Mapping[Key, ParameterValue], act: Act, *, report_new: bool
    ) -> tuple[list[ParameterChange], bool]:
        """Under the lock: change one layer, and put the set that results in force."""
        at = self._now()
        entries = dict(self._layers[layer])
        for key, value in values.items():
            known = entries.get(key)
            if value is UNSET:
                entries.pop(key, None)
            elif known is None or stable_text(known.value) != stable_text(value):
                entries[key] = Entry(value, layer, act, at)
            if layer is Layer.FILE:
                self._layers[Layer.CODE].pop(key, None)
        self._layers[layer] = entries
        resolved: dict[Key, Entry] = {}
        for weaker in sorted(self._layers):
            resolved.update(self._layers[weaker])
        before = self._snapshot
        reported = [key for key in values if report_new or key in before.entries]
        changes = self._changes(before.entries, resolved, reported, act, at)
        changed = any(before.entries.get(key) is not resolved.get(key) for key in values)
        if changed:
            self._snapshot = Snapshot(resolved, before.version + 1, self._used)
        return changes, changed

    def _changes(
        self,
        before: Mapping[Key, Entry],
        after: Mapping[Key, Entry],
        keys: Sequence[Key],
        act: Act,
        at: float,
    ) -> list[ParameterChange]:
        changes = []
        for key in keys:
            old, new = before.get(key), after.get(key)
            if old is new:
                continue
            if old is not None and new is not None and stable_text(old.value) == stable_text(new.value):
                new.first_use = new.first_use or old.first_use  # the same value, from elsewhere
                continue
            if self.calls_begun or (old is not None and old.first_use is not None):
                scope, name = key
                change = ParameterChange(
                    service="",
                    parameter=name,
                    old=UNSET if old is None else exported(name, old.value),
                    new=UNSET if new is None else exported(name, new.value),
                    first_seen=at,
                    last_seen=at,
                    scope=scope,
                    source=act.source,
                    origin=act.origin,
                )
                changes.append(change)
                if new is not None:
                    new.change = change
        return changes

    def _report(self, changes: Sequence[ParameterChange]) -> None:
        for change in changes:
            self._reporter.changed(change)

    def _read_environment(self, key: Key, variable: str, limits: Limits) -> list[ParameterChange]:
        text = os.environ.get(variable)
        if text is None:
            return []
        try:
            value = limits.checked(_from_text(text, limits.kind))
        except NotAllowedError as error:
            self.counts.add(counts.ENVIRONMENT, counts.REFUSED)
            self._reporter.problem(f"{variable}: {key[1]}: {error}; the variable is ignored")
            return []
        self.counts.add(counts.ENVIRONMENT, counts.APPLIED)
        act = Act(ChangeSource.DECLARED, f"environment variable {variable}")
        return self._write(Layer.ENVIRONMENT, {key: value}, act, report_new=False)[0]


def _problem(limits: Limits, value: ParameterValue) -> str:
    try:
        limits.checked(value)
    except NotAllowedError as error:
        return str(error)
    return ""


def _variable(name: str) -> str:
    return "".join(letter if letter.isalnum() else "_" for letter in name).upper()


def _from_text(text: str, kind: type | None) -> ParameterValue:
    """The value behind an environment variable: JSON where it is, else the text itself."""
    if kind is str:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
