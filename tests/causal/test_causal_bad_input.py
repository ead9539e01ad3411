"""Input that is wrong or poor gives a clear answer, never a crash or a guess."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import START, Service, change, panel, series, switched

from otelkit.causal import Verdict, explain, find_jumps
from otelkit.errors import DataError
from otelkit.query.panel import Panel, ServiceSeries


def slow_after(at: float, **fields: object) -> Service:
    tokens = switched((at, 24.0), first=10.0)
    return Service(**{"rate": lambda t: 4.0, "slots": 8, "tokens": tokens, **fields})  # type: ignore[arg-type]


def quantiles_only(data: Panel) -> Panel:
    """The same panel from a source without buckets."""
    bare = {n: replace(s, bucket_bounds=None, bucket_counts=None) for n, s in data.services.items()}
    return replace(data, services=bare)


def test_change_outside_the_data() -> None:
    """Broken if a change without data on both sides gets an effect."""
    data = panel(series(slow_after(600), 1800, 0, step=5), step=5)
    result = explain(data, "chat", [change(-100), change(600), change(5000)])
    assert [f.verdict for f in result.findings] == [
        Verdict.CANNOT_SEPARATE,
        Verdict.CAUSAL,
        Verdict.CANNOT_SEPARATE,
    ]
    assert "before the data begins" in result.findings[0].reason
    assert "data's end" in result.findings[2].reason


def test_duplicate_changes_and_those_of_other_services() -> None:
    """Broken if one change listed twice can't be separated from itself, or another service's is judged."""
    data = panel(series(slow_after(900), 1800, 0, step=5), step=5)
    twice = [change(900), change(900), change(900, service="other")]
    result = explain(data, "chat", twice)
    assert [f.verdict for f in result.findings] == [Verdict.CAUSAL]


def test_rows_in_any_order_and_doubled() -> None:
    """Broken if unsorted or repeated time stamps change the answer."""
    data = panel(series(slow_after(900), 1800, 0, step=5), step=5)
    order = np.random.default_rng(0).permutation(np.append(np.arange(len(data.times)), [5, 9]))

    def shuffled(s: ServiceSeries) -> ServiceSeries:
        assert s.bucket_counts is not None
        return replace(
            s,
            quantiles={q: v[order] for q, v in s.quantiles.items()},
            bucket_counts=s.bucket_counts[order],
            covariates={n: v[order] for n, v in s.covariates.items()},
        )

    mixed = replace(data, times=data.times[order], services={"chat": shuffled(data.services["chat"])})
    first, second = (explain(p, "chat", [change(900)]).findings[0] for p in (data, mixed))
    assert first.verdict is second.verdict is Verdict.CAUSAL
    assert first.effect == second.effect


@pytest.mark.parametrize("value", [0.3, np.nan], ids=["constant", "all unknown"])
def test_series_without_information(value: float) -> None:
    """Broken if a stale or empty series ends in a verdict about the change."""
    flat = np.full(200, value)
    bare = ServiceSeries("chat", {0.5: flat, 0.99: flat}, 60.0)
    result = explain(panel(bare, step=15), "chat", [change(1500)])
    assert result.findings[0].verdict is Verdict.CANNOT_SEPARATE
    assert find_jumps(panel(bare, step=15), "chat", []) == ()


@pytest.mark.parametrize("step", [1.0, 5.0, 15.0, 60.0])
@pytest.mark.parametrize("buckets", [True, False], ids=["buckets", "quantiles only"])
def test_every_step_width(step: float, buckets: bool) -> None:
    """Broken if a large effect is missed at some scrape interval, with or without buckets."""
    data = panel(series(slow_after(2400), 4800, 3, step=step), step=step)
    finding = explain(data if buckets else quantiles_only(data), "chat", [change(2400)]).findings[0]
    assert finding.verdict is Verdict.CAUSAL, finding.reason


def test_long_data_is_cut_into_windows() -> None:
    """Broken if changes hours apart are not each judged, or the second loses its time."""
    service = slow_after(9000, rate=lambda t: 1.0)
    data = panel(series(service, 40_000, 0, step=15), step=15)
    result = explain(data, "chat", [change(9000), change(30_000, "seed")])
    assert [f.verdict is Verdict.CAUSAL for f in result.findings] == [True, False]
    assert result.moved_at is not None and abs(result.moved_at - START - 9000) < 90
    assert result.counterfactual is not None and len(result.counterfactual) == len(data.times)


def test_milliseconds_are_noticed() -> None:
    """Broken if a series in milliseconds passes for one in seconds without a word."""
    rng = np.random.default_rng(0)
    p99 = 4000 * rng.lognormal(0, 0.1, 200)
    bare = ServiceSeries("chat", {0.99: p99}, 60.0)
    assert any("milliseconds" in w for w in explain(panel(bare, step=15), "chat", []).warnings)


def test_no_changes_and_no_traffic() -> None:
    """Broken if an empty list of changes or a service without calls raises."""
    data = panel(series(slow_after(900), 1800, 0, step=5), step=5)
    assert explain(data, "chat", []).findings == ()
    empty = replace(
        data.services["chat"], bucket_counts=np.zeros((360, 22)), quantiles={0.99: np.full(360, np.nan)}
    )
    result = explain(replace(data, services={"chat": empty}), "chat", [change(900)])
    assert result.findings[0].verdict is Verdict.CANNOT_SEPARATE


def broken(data: Panel, **fields: object) -> Panel:
    """The panel with some of its service's fields replaced."""
    (own,) = data.services.values()
    return replace(data, services={"chat": replace(own, **fields)})  # type: ignore[arg-type]


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Broken if a caller mends one problem only to be told of the next, or gets a traceback of numpy's."""
    data = panel(series(slow_after(600), 900, 0, step=5), step=5)
    (own,) = data.services.values()
    assert own.bucket_counts is not None
    assert own.bucket_bounds is not None
    wrong = broken(
        data,
        bucket_bounds=own.bucket_bounds[::-1],
        quantiles={0.99: own.quantiles[0.99][:-3]},
        covariates={"arrivals": own.covariates["arrivals"][5:]},
    )
    wrong = replace(wrong, step_seconds=0.0)
    with pytest.raises(DataError) as raised:
        explain(wrong, "chat", [replace(change(600), first_seen=float("nan")), change(600)])
    said = str(raised.value).splitlines()
    assert len(said) == 6, said
    for words in (
        "step is 0",
        "0.99 quantile has 177",
        "arrivals has 175",
        "ascend",
        "infinity",
        "time is nan",
    ):
        assert any(words in line for line in said), words


@pytest.mark.parametrize(
    ("said", "fields"),
    [
        ("summed over buckets", lambda s: {"bucket_counts": np.cumsum(s.bucket_counts, axis=1)}),
        ("summed over time", lambda s: {"bucket_counts": np.cumsum(s.bucket_counts, axis=0)}),
        ("both in seconds", lambda s: {"quantiles": {0.99: 1000 * s.quantiles[0.99]}}),
        ("both in seconds", lambda s: {"bucket_bounds": 1000 * s.bucket_bounds}),
        ("has shape", lambda s: {"bucket_bounds": s.bucket_bounds[1:]}),
        ("end with infinity", lambda s: {"bucket_bounds": np.append(s.bucket_bounds[:-1], 99.0)}),
        ("go together", lambda s: {"bucket_bounds": None}),
        (
            "neither quantiles nor buckets",
            lambda s: {"quantiles": {}, "bucket_bounds": None, "bucket_counts": None},
        ),
    ],
)
def test_series_that_mean_something_else(said: str, fields: object) -> None:
    """Broken if sums, milliseconds or a lost bucket give a confident verdict."""
    data = panel(series(slow_after(600), 900, 0, step=5), step=5)
    with pytest.raises(DataError, match=said):
        explain(broken(data, **fields(data.services["chat"])), "chat", [change(600)])  # type: ignore[operator]


@pytest.mark.parametrize(("factor", "unit"), [(1e3, "milliseconds"), (1e9, "nanoseconds")])
def test_changes_in_another_unit(factor: float, unit: str) -> None:
    """Broken if a change whose time is in milliseconds is only said to lie outside the data."""
    data = panel(series(slow_after(600), 900, 0, step=5), step=5)
    at = factor * (START + 600)
    with pytest.raises(DataError, match=unit):
        explain(data, "chat", [replace(change(600), first_seen=at, last_seen=at)])


def test_a_control_without_latency_is_none() -> None:
    """Broken if one service of which only the load is known breaks the answer for another."""
    data = panel(series(slow_after(600), 1200, 0, step=5), step=5)
    bare = ServiceSeries("web", {}, 30.0, covariates={"arrivals": np.ones(len(data.times))})
    more = replace(data, services={**data.services, "web": bare})
    (finding,) = explain(more, "chat", [change(600)]).findings
    assert finding.verdict is Verdict.CAUSAL, finding.reason


@pytest.mark.parametrize("kept", [1, 3])
def test_calls_that_all_end_in_the_last_buckets(kept: int) -> None:
    """Broken if buckets that are too small for a slow service are taken for sums, which they resemble."""
    data = panel(series(slow_after(600), 1200, 0, step=5), step=5)
    (own,) = data.services.values()
    assert own.bucket_counts is not None
    assert own.bucket_bounds is not None
    calls = own.bucket_counts.sum(axis=1)
    rising = np.zeros((len(calls), 8))
    rising[:, -kept:] = calls[:, None] * np.arange(1, kept + 1) / np.arange(1, kept + 1).sum()
    bounds = np.append(np.geomspace(0.01, 0.1, 7), np.inf)
    bare = broken(data, bucket_bounds=bounds, bucket_counts=rising, quantiles={})
    (finding,) = explain(bare, "chat", [change(600)]).findings
    assert finding.verdict is Verdict.CANNOT_SEPARATE
    assert "constant" in finding.reason
