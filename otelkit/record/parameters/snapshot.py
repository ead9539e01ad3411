"""A set of parameters as it stood at one moment."""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from otelkit.model import UNSET, ChangeSource, ParameterChange, ParameterValue
from otelkit.record.parameters.fingerprint import fingerprint

Key = tuple[str, str]
"""(scope, name); the scope is empty for the whole service."""


class Layer(enum.IntEnum):
    """Where a value comes from. The highest layer that has a value is in force."""

    DEFAULT = 0
    FILE = 1
    ENVIRONMENT = 2
    CODE = 3
    REQUEST = 4


LAYER_NAMES: Final = {
    Layer.DEFAULT: "default",
    Layer.FILE: "config_file",
    Layer.ENVIRONMENT: "environment",
    Layer.CODE: "declared",
    Layer.REQUEST: "request",
}


@dataclass(frozen=True, slots=True)
class Act:
    """Who or what sets values."""

    source: ChangeSource
    origin: str = ""


@dataclass(frozen=True, slots=True)
class FirstUse:
    """The first call that used a value."""

    at: float
    """Unix seconds."""
    trace_id: str = ""
    """32 hexadecimal digits; empty when there was no span."""


class Entry:
    """One value of one layer. All but its first use and its change is fixed."""

    __slots__ = ("act", "change", "first_use", "layer", "loaded_at", "mutable", "value")

    def __init__(self, value: ParameterValue, layer: Layer, act: Act, loaded_at: float) -> None:
        self.mutable = isinstance(value, list | dict | set | bytearray)
        self.value = _copied(value) if self.mutable else value
        self.layer = layer
        self.act = act
        self.loaded_at = loaded_at
        """Unix seconds."""
        self.first_use: FirstUse | None = None
        """None while the value is loaded but not in use."""
        self.change: ParameterChange | None = None
        """The change that the value was reported by, if it was."""

    @property
    def source(self) -> str:
        """Name of the source for people."""
        return LAYER_NAMES[self.layer] if self.layer < Layer.CODE else self.act.source.value


def _copied(value: ParameterValue) -> ParameterValue:
    """A copy, so that what one holder does to a list or mapping is not seen by others."""
    try:
        return copy.deepcopy(value)
    except Exception:  # something inside can't be copied, such as a lock
        return copy.copy(value)


class Snapshot(Mapping[str, ParameterValue]):
    """An unchanging set of parameters. Whoever keeps one sees neither later changes nor half of one.

    As a mapping it has the parameters of the whole service by name; ``get`` finds those of a scope too.
    """

    __slots__ = ("_entries", "_fingerprint", "_overrides", "_used", "version")

    def __init__(
        self,
        entries: Mapping[Key, Entry],
        version: int,
        used: Callable[[Entry], None],
        overrides: Mapping[str, Entry] | None = None,
    ) -> None:
        self._entries = entries
        self._used = used
        self._overrides = overrides or {}
        self._fingerprint: str | None = None
        self.version = version
        """Grows by one with every change of the set in this process."""

    def entry(self, name: str, scope: str = "") -> Entry | None:
        """The entry in force: of this request, else of the scope, else of the whole service."""
        if self._overrides and (found := self._overrides.get(name)) is not None:
            return found
        if scope and (found := self._entries.get((scope, name))) is not None:
            return found
        return self._entries.get(("", name))

    def get(self, name: str, default: ParameterValue = UNSET, *, scope: str = "") -> ParameterValue:
        """The parameter's value, or ``default``. Reading a value is what makes it count as in use."""
        entry = self.entry(name, scope)
        if entry is None:
            return default
        if entry.first_use is None:
            self._used(entry)
        return _copied(entry.value) if entry.mutable else entry.value

    def __getitem__(self, name: str) -> ParameterValue:
        entry = self.entry(name)
        if entry is None:
            raise KeyError(name)
        return self.get(name)

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys((*(name for scope, name in self._entries if not scope), *self._overrides))

    def __len__(self) -> int:
        return len(list(iter(self)))

    @property
    def entries(self) -> Mapping[Key, Entry]:
        """Every entry in force, of all scopes; those of a request are not among them."""
        return self._entries

    @property
    def overrides(self) -> Mapping[str, Entry]:
        """What this request sets for itself."""
        return self._overrides

    @property
    def fingerprint(self) -> str:
        """``fingerprint`` of the set, without what a request sets for itself: few values, fit for a label."""
        if self._fingerprint is None:
            named = {"@".join(filter(None, key[::-1])): entry.value for key, entry in self._entries.items()}
            self._fingerprint = fingerprint(named)
        return self._fingerprint

    def overriding(self, overrides: Mapping[str, Entry]) -> Snapshot:
        """The same set, with values that only this request sees."""
        return Snapshot(self._entries, self.version, self._used, {**self._overrides, **overrides})
