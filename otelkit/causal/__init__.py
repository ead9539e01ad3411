"""Which change moved P99: effects, attribution, verdicts, mechanism. Pure functions on arrays, no I/O."""

from otelkit.causal.engine import explain
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict
from otelkit.causal.jumps import Candidate, Jump, find_jumps

__all__ = [
    "Candidate",
    "Explanation",
    "Finding",
    "Interval",
    "Jump",
    "Verdict",
    "explain",
    "find_jumps",
]
