"""What the analyser knows between two rounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from otelkit.analyse.looks import Judgement
from otelkit.causal import Verdict


@dataclass(frozen=True, slots=True)
class Movement:
    """What is said of a service as a whole; None where nothing is known."""

    p99_before: float | None = None
    """Seconds, as the next two."""
    p99_after: float | None = None
    unexplained: float | None = None
    p99_now: float | None = None
    """The last one that was known."""

    def with_causes(self, judgements: Iterable[Judgement]) -> Movement:
        """As it is where a change moved P99; else there is no movement to speak of."""
        moved = any(one.finding is not None and one.finding.verdict is Verdict.CAUSAL for one in judgements)
        return self if moved else Movement(p99_now=self.p99_now)


@dataclass(frozen=True)
class State:
    """What the analyser knows after a round; never changed, only replaced."""

    judgements: Mapping[str, tuple[Judgement, ...]] = field(default_factory=dict)
    """Service -> its newest changes, oldest first."""
    movements: Mapping[str, Movement] = field(default_factory=dict)
    data_until: float = 0.0
    """Unix seconds up to which the newest round had data."""
    step: float = 15.0
    """Of the series, seconds."""
    waiting: int = 0
    """Services with due changes that the newest round had no time for."""

    def counterfactual(self, service: str) -> float | None:
        """P99 (seconds) as it would be now without the causal changes; None where P99 is not known."""
        now = self.movements.get(service, Movement()).p99_now
        if now is None:
            return None
        for one in self.judgements.get(service, ()):
            if one.finding is not None and one.finding.verdict is Verdict.CAUSAL:
                if one.finding.effect_ratio is not None:
                    now /= 1 + one.finding.effect_ratio.value
                elif one.finding.effect is not None:
                    now -= one.finding.effect.value
        return max(now, 0.0)


@dataclass(frozen=True, slots=True)
class Restored:
    """What an earlier analyser had found."""

    judgements: Mapping[str, Judgement] = field(default_factory=dict)
    """By change id."""
    movements: Mapping[str, Movement] = field(default_factory=dict)
    """By service."""
