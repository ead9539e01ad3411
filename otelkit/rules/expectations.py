"""Parts of a test for ``promtool test rules``: times, expected values, and the whole."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otelkit.spec import Duration, Matcher, Spec

Test = dict[str, Any]

_DIGITS: Final = 1e-6
"""promtool compares floats to the last bit, so both sides are rounded to this."""


@dataclass(frozen=True)
class Clock:
    """Times of a scenario, in scrapes."""

    spec: Spec

    def scrapes(self, seconds: float) -> int:
        return math.ceil(seconds / self.spec.scrape_interval.seconds)

    def at(self, scrapes: int) -> str:
        return str(Duration.of(scrapes * self.spec.scrape_interval.seconds))


def recorded(at: str, series: str, service: str, expected: float | None) -> Test:
    """That a recorded series of a service has a value; that it is not there where None."""
    return gives(at, f"sum by (service) ({series}{of_service(service)})", expected, service)


def gives(at: str, query: str, expected: float | None, service: str = "") -> Test:
    """That a query gives one number, for a service if named; that it gives nothing where None."""
    if expected is None:
        return nothing(at, query)
    labels = f"{{{label_matchers({'service': service})}}}" if service else "{}"
    return {
        "expr": f"round({query}, {_DIGITS:g})",
        "eval_time": at,
        "exp_samples": [{"labels": labels, "value": math.floor(expected / _DIGITS + 0.5) / (1 / _DIGITS)}],
    }


def nothing(at: str, query: str) -> Test:
    """That a query gives nothing."""
    return {"expr": query, "eval_time": at, "exp_samples": []}


def of_service(service: str) -> str:
    """The selector of a service's recorded series."""
    return f"{{{label_matchers({'service': service})}}}"


def label_matchers(labels: Mapping[str, str]) -> str:
    """PromQL, without braces."""
    return ",".join(str(Matcher(label, "=", value)) for label, value in labels.items())


def whole_test(spec: Spec, name: str, series: list[dict[str, str]], checks: list[Test]) -> Test:
    """A test of some input series."""
    return {
        "name": name,
        "interval": str(spec.scrape_interval),
        "input_series": series,
        "promql_expr_test": checks,
    }
