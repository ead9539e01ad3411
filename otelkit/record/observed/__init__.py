"""Finds observed parameter changes: at one call site, the settled value of a parameter moved to another
settled value, or the shares of its values did.

Pure logic: values and times in, changes out; no clock, no I/O. ``keys`` makes values comparable,
``evidence`` is the statistics, ``series`` is one parameter at one call site, ``detector`` is all of them in
bounded memory.
"""

from otelkit.record.observed.detector import ChangeDetector, Evictions, SettledValue

__all__ = ["ChangeDetector", "Evictions", "SettledValue"]
