"""Input series for unit tests of rules: labels that matchers pick, and counters that grow steadily."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from otelkit.query.panel import FloatArray
from otelkit.rules.families import Distribution, Family
from otelkit.spec import Matcher, ServiceMetrics, selector

_UNKNOWN_BOUNDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_VALUES: Final = ("", "200", "ok", "otelkit")
"""Tried in turn where a label must not match."""


def matching(matchers: Iterable[Matcher]) -> dict[str, str]:
    """Labels that all of the matchers pick.

    Raises:
        ValueError: no value was found for one of them; its pattern is too intricate to be guessed.
    """
    labels: dict[str, str] = {}
    wanted = list(matchers)
    for matcher in wanted:
        together = [other for other in wanted if other.label == matcher.label]
        candidates = [*_guesses(matcher), *_VALUES]
        found = next((one for one in candidates if all(m.matches({m.label: one}) for m in together)), None)
        if found is None:
            raise ValueError(f"no example of {matcher} was found")
        if found:
            labels[matcher.label] = found
    return labels


def not_matching(matchers: Sequence[Matcher]) -> dict[str, str]:
    """Labels that not all of the matchers pick.

    Raises:
        ValueError: none was found.
    """
    for value in _VALUES:
        labels = {matcher.label: value for matcher in matchers if value}
        if not all(matcher.matches(labels) for matcher in matchers):
            return labels
    raise ValueError(f"no series outside {', '.join(map(str, matchers))} was found")


def _guesses(matcher: Matcher) -> list[str]:
    if matcher.op == "=":
        return [matcher.value]
    if matcher.op != "=~":
        return [f"{matcher.value}x"]
    alternatives = matcher.value.strip("()").split("|")
    return [re.sub(r"\\(.)", r"\1", re.sub(r"(?<!\\)\.[*+]?", "0", one)) for one in alternatives]


@dataclass(frozen=True)
class Calls:
    """Calls of one service that end at a steady pace."""

    member: ServiceMetrics
    family: Family
    labels: Mapping[str, str] = field(default_factory=dict)
    """Besides those that the service's matchers ask for."""

    @property
    def bounds(self) -> FloatArray:
        """Of latency, in its own unit, ending with infinity."""
        return np.array([*(self.member.buckets or _UNKNOWN_BOUNDS), np.inf])

    def latency(self, per_scrape: Mapping[int, int], shape: str) -> list[dict[str, str]]:
        """Latency series.

        Args:
            per_scrape: Calls that end between two scrapes, by index of bucket (-1: beyond the last bound).
            shape: How counters go on, with ``{}`` for the increase: ``0+{}x20``.
        """
        return self.histogram(self.family.latency, self.bounds, per_scrape, shape)

    def histogram(
        self, distribution: Distribution, bounds: FloatArray, per_scrape: Mapping[int, int], shape: str
    ) -> list[dict[str, str]]:
        """Series of a histogram; arguments as in :meth:`latency`."""
        counts = np.zeros(len(bounds), dtype=int)
        for index, number in per_scrape.items():
            counts[index] += number
        metric = self.family.metric(distribution)
        labels = {**matching(self.member.matchers), **self.labels}
        total = int(counts.sum())
        if self.member.native:
            values = " ".join(f"{bound:.12g}" for bound in bounds[:-1])

            def sample(times: int) -> str:
                buckets = " ".join(str(int(one) * times) for one in counts)
                return (
                    f"{{{{schema:-53 sum:{total * times} count:{total * times} "
                    f"custom_values:[{values}] buckets:[{buckets}]}}}}"
                )

            return [{"series": _series(metric, labels), "values": _native(shape, sample)}]
        cumulative = np.cumsum(counts)
        found = [
            {
                "series": _series(f"{metric}_bucket", {**labels, "le": bound_text(bound)}),
                "values": shape.replace("{}", str(number)),
            }
            for bound, number in zip(bounds, cumulative, strict=True)
        ]
        return [
            *found,
            {"series": _series(f"{metric}_count", labels), "values": shape.replace("{}", str(total))},
            {"series": _series(f"{metric}_sum", labels), "values": shape.replace("{}", str(total))},
        ]


def counter(metric: str, labels: Mapping[str, str], per_scrape: int, shape: str) -> dict[str, str]:
    """Series of a plain counter."""
    return {"series": _series(metric, labels), "values": shape.replace("{}", str(per_scrape))}


def bound_text(bound: float) -> str:
    """A bucket's bound as Prometheus 3 writes it."""
    if np.isinf(bound):
        return "+Inf"
    text = f"{bound:.12g}"
    return text if "." in text or "e" in text else f"{text}.0"


def _native(shape: str, sample: Any) -> str:
    """The notation of counters, for histograms: ``0+{}x9 _x4`` becomes ``{{..}}+{{..}}x9 _x4``."""
    parts = []
    for part in shape.split():
        if part.startswith("_"):
            parts.append(part)
            continue
        start, rest = part.split("+")
        step, times = rest.split("x")
        grown = sample(1 if step == "{}" else 0)
        parts.append(f"{sample(int(start or 0))}+{grown}x{times}")
    return " ".join(parts)


def _series(metric: str, labels: Mapping[str, str]) -> str:
    return selector(metric, (Matcher(label, "=", value) for label, value in sorted(labels.items()) if value))
