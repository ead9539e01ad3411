"""Rule groups: what is evaluated together, how often, and whether that can keep up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from otelkit.rules.families import Distribution, Family, in_one_rule
from otelkit.spec import Duration, Spec

_LONGEST_INTERVAL: Final = Duration.parse("1m")
_MAX_SELECTED: Final = 100
"""Services picked by selectors of their own that go into one group: each is a rule for each of its series."""

_SECONDS_PER_SAMPLE: Final = 2.5e-7
_SECONDS_PER_SERIES: Final = 1e-5
"""What Prometheus 3.5 spends per raw sample and series of a range on a busy machine: benchmarks/rules.py."""
_CHILDREN: Final = 2
"""Label sets per process and service: calls that succeed and calls that fail."""
_UNKNOWN_BUCKETS: Final = 16


@dataclass(frozen=True, slots=True)
class Step:
    """All rules over one window that are evaluated in one group."""

    window: Duration
    interval: Duration
    families: tuple[Family, ...]
    part: int = 0
    """Groups over one window are numbered from 1 where there are several."""
    rates: bool = True
    """It records rates from raw series."""
    reads: bool = True
    """It records what is read from those rates, of all services."""

    @property
    def suffix(self) -> str:
        return f"-{self.part}" if self.part else ""

    @property
    def rules(self) -> list[tuple[Family, ...]]:
        return in_one_rule(self.families)

    @property
    def distributions(self) -> list[Distribution]:
        """Each kind of histogram that any of the families has."""
        return sorted({one for family in self.families for one in family.distributions})

    @property
    def quantities(self) -> list[tuple[str, list[Distribution]]]:
        """Name of each quantity that quantiles are recorded of, and the distributions that hold it."""
        found: dict[str, list[Distribution]] = {}
        for one in self.distributions:
            found.setdefault(one.quantity, []).append(one)
        return sorted(found.items())

    def rules_of(self, distribution: Distribution) -> list[tuple[Family, ...]]:
        return in_one_rule([family for family in self.families if distribution in family.distributions])

    def rules_with(self, quantity: str) -> list[tuple[Family, ...]]:
        return in_one_rule([family for family in self.families if family.counter(quantity)])


def evaluation_interval(window: Duration, spec: Spec) -> Duration:
    """A sixtieth of the window, at least the spec's interval, at most a minute: it hardly moves in less."""
    wanted = Duration.of(max(1, window.seconds // 60))
    return max(spec.evaluation_interval, min(wanted, _LONGEST_INTERVAL))


def steps(spec: Spec, found: Sequence[Family], window: Duration, members: Iterable[Family]) -> list[Step]:
    """The groups over one window.

    Where many services are picked by selectors of their own, their rates are spread over several groups, as
    rules of a group run one after another; what is read from the rates follows in a group by itself.
    """
    interval = evaluation_interval(window, spec)
    families = list(members)
    together = [family for family in families if family.fixed_name is None]
    alone = [family for family in families if family.fixed_name is not None]
    if len(alone) <= _MAX_SELECTED:
        return [Step(window, interval, tuple(families))]
    parts = [alone[first : first + _MAX_SELECTED] for first in range(0, len(alone), _MAX_SELECTED)]
    parts = [together, *parts] if together else parts
    return [
        *(Step(window, interval, tuple(part), n, reads=False) for n, part in enumerate(parts, start=1)),
        Step(window, interval, tuple(families), rates=False),
    ]


def overruns(spec: Spec, groups: Iterable[Step]) -> Iterator[str]:
    """Warnings of groups that would take Prometheus more than half of their interval, by estimate."""
    for step in groups:
        if not step.rates:
            continue
        series = 0.0
        for family in step.families:
            buckets = 1 if family.metrics.native else len(family.metrics.buckets or ()) + 1
            services = max(1, len(family.names))
            series += services * spec.instances * _CHILDREN * max(buckets, _UNKNOWN_BUCKETS)
        samples = series * max(2.0, step.window.seconds / spec.scrape_interval.seconds)
        seconds = samples * _SECONDS_PER_SAMPLE + series * _SECONDS_PER_SERIES
        if seconds > step.interval.seconds / 2:
            yield (
                f"rules over {step.window} would take about {seconds:.1f} s of every {step.interval}: raise "
                f"evaluation_interval to {Duration.of(2 * round(seconds + 1))} or more, shorten the window, "
                "or give this Prometheus fewer services"
            )
