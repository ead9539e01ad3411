"""Latency beyond the last bound of its buckets: what is seen there is the least that it may be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import Service, change, panel, series, switched

from otelkit.causal import Verdict, ceiling, explain
from otelkit.query.panel import Panel

SECONDS, STEP, AT = 6000, 15.0, 2400.0
BOUND = 10.24
"""The last finite one."""
EVERYWHERE = [
    Service(
        name=f"other-{n}",
        slots=12,
        tokens=lambda t: 40.0,
        seconds_per_token=switched((AT, 0.036), first=0.028),
    )
    for n in range(4)
]
"""Services that take up a deploy and nothing else."""
OVERLOADED = Service(
    rate=lambda t: 4.0,
    slots=9,
    tokens=lambda t: 40.0,
    seconds_per_token=switched((AT, 0.084), first=0.028),
)
"""Serves four calls a second until AT, then far fewer than come: P99 rises without end."""


def seen(*services: Service, seed: int, buckets: bool = True) -> Panel:
    data = [series(s, SECONDS, seed + n, step=STEP) for n, s in enumerate(services)]
    if not buckets:
        data = [replace(one, bucket_bounds=None, bucket_counts=None) for one in data]
    return panel(*data, step=STEP)


@pytest.mark.parametrize("buckets", [True, False], ids=["buckets", "quantiles"])
@pytest.mark.parametrize("others", [[], EVERYWHERE], ids=["alone", "beside a deploy"])
@pytest.mark.parametrize("seed", [1, 2])
def test_overload_is_laid_to_its_change(seed: int, others: list[Service], buckets: bool) -> None:
    """Broken if a cut-off P99, which moves no further, speaks against an effect or hides its size."""
    panel_seen = seen(OVERLOADED, *others, seed=seed, buckets=buckets)
    result = explain(panel_seen, "chat", [change(AT)])
    finding = result.findings[0]
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    assert any("cut off" in warning and "10.24 s" in warning for warning in result.warnings)
    assert finding.effect_ratio is not None and finding.effect_ratio.value > 0
    assert finding.effect is not None and finding.p_value is not None
    if not others:
        usual = np.nanmedian(panel_seen.services["chat"].quantiles[0.99][: int(AT / STEP)])
        assert finding.effect_ratio.high > BOUND / usual - 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slower_tokens_are_the_way_of_an_overload_that_they_make(seed: int) -> None:
    """Broken if a cut-off P99, beside time per token that is not cut off, is laid to something unknown."""
    tokens_seen = replace(OVERLOADED, covariates=OVERLOADED.covariates | {"time_per_output_chunk"})
    slower = [replace(one, seconds_per_token=switched((AT, 0.045), first=0.028)) for one in EVERYWHERE]
    finding = explain(seen(tokens_seen, *slower, seed=seed), "chat", [change(AT)]).findings[0]
    assert finding.verdict is Verdict.CAUSAL, finding.reason
    shares = {path: share.value for path, share in finding.mechanism.items()}
    assert max(shares, key=lambda path: shares[path]) == "time_per_token", shares
    assert all(-0.3 < share < 1.3 for share in shares.values()), shares


def test_nothing_is_claimed_of_a_change_amid_the_overload() -> None:
    """Broken if "no effect" is said where P99 could not be seen to move."""
    result = explain(seen(OVERLOADED, seed=1), "chat", [change(AT), change(AT + 2100, "seed")])
    later = result.findings[1]
    assert later.verdict is Verdict.CANNOT_SEPARATE
    assert "10.24 s" in later.reason
    assert not any("no data" in warning for warning in result.warnings)


def test_a_quantile_beyond_the_last_bound_is_told_by_the_counts() -> None:
    """Broken if a P50 counts as cut off where only the P99 is, or an empty cell does."""
    counts = np.array([[90.0, 9.5, 0.5], [90.0, 8.0, 2.0], [20.0, 20.0, 60.0], [0.0, 0.0, 0.0], [np.nan] * 3])
    assert ceiling.beyond(counts, 0.99).tolist() == [False, True, True, False, False]
    assert ceiling.beyond(counts, 0.5).tolist() == [False, False, True, False, False]


def test_a_flat_top_is_a_bound_and_a_peak_is_not() -> None:
    """Broken if a series' one highest value, or one that never moves, is taken for the last bound."""
    free = np.sin(np.arange(40.0))
    assert not ceiling.flat(free).any()
    assert not ceiling.flat(np.ones(40)).any()
    cut = np.minimum(np.arange(40.0), 30.0)
    cut[35] = np.nan
    assert ceiling.flat(cut).tolist() == [30 <= n != 35 for n in range(40)]


def test_the_first_minutes_of_a_stretch_are_kept() -> None:
    """Broken if what an effect is measured by is thrown away, or a short gap starts a stretch anew."""
    hidden = np.zeros(200, dtype=bool)
    hidden[50:150] = True
    hidden[80] = False
    late = ceiling.long_after(hidden, 15.0)
    assert np.flatnonzero(late).tolist() == list(range(50 + 48, 150))
    assert not ceiling.long_after(np.zeros(9, dtype=bool), 15.0).any()
