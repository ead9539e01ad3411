"""Which change moved P99: effects, attribution, verdicts, mechanism. Pure functions on arrays, no I/O."""

from otelkit.causal.engine import explain
from otelkit.causal.explanation import Explanation, Finding, Interval, Verdict

__all__ = ["Explanation", "Finding", "Interval", "Verdict", "explain"]
