"""The settled values on the /metrics page."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from otelkit import semconv
from otelkit.emit.settled_metrics import MAX_SERIES, SettledMetrics
from otelkit.model import CallSite
from otelkit.record.observed import ChangeDetector


def page(detector: ChangeDetector) -> dict[tuple[str, str, str], float]:
    """(Scope, parameter, value) -> since, as a scraper reads it."""
    registry = CollectorRegistry()
    SettledMetrics(registry, detector.settled_values)
    return {
        (sample.labels["scope"], sample.labels["parameter"], sample.labels["value"]): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
        if sample.name == semconv.METRIC_PARAMETER_SETTLED
    }


def use(detector: ChangeDetector, model: str, location: str, **parameters: object) -> None:
    for number in range(20):
        site = CallSite("chat", "openai", "chat", model, location)
        detector.observe(site, parameters, 100.0 + number)


def test_settled_values_are_on_the_page() -> None:
    """Broken: a deploy that brings a new value can't be seen from outside, or a secret can."""
    detector = ChangeDetector()
    use(detector, "m", "app.py:reply", max_tokens=256, api_key="sk-abcdefghijklmnopqrstuvwx")
    found = page(detector)
    assert found["app.py:reply", "max_tokens", "256"] == 100.0
    assert "sk-" not in repr(found)


@pytest.mark.parametrize("other", [256, 512])
def test_two_models_at_one_place_make_one_series(other: int) -> None:
    """Broken: the page has the same series twice, and Prometheus refuses all of it."""
    detector = ChangeDetector()
    use(detector, "m", "app.py:reply", max_tokens=256)
    use(detector, "n", "app.py:reply", max_tokens=other)
    text = "256" if other == 256 else semconv.VARIES
    assert page(detector) == {("app.py:reply", "max_tokens", text): 100.0}


def test_series_are_bounded() -> None:
    """Broken: a service with thousands of call sites fills its Prometheus."""
    detector = ChangeDetector()
    for number in range(MAX_SERIES + 100):
        use(detector, "m", f"route {number}", max_tokens=256)
    found = page(detector)
    assert len(found) == MAX_SERIES
    assert ("route 0", "max_tokens", "256") not in found
