"""Arithmetic on arrays of times gives what a loop over them would give."""

from __future__ import annotations

from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otelkit.record.times import gaps, shifted

TIMES = st.lists(st.integers(0, 1 << 61), max_size=40)


@given(TIMES.map(sorted), st.integers(-(1 << 61), 1 << 61))
def test_shifting_adds_to_each(times: list[int], by: int) -> None:
    """Otherwise token steps would be exported at times at which they did not happen."""
    if times and times[0] + by < 0:
        with pytest.raises(OverflowError, match="clock"):
            shifted(times, by)
    else:
        assert list(shifted(times, by)) == [time + by for time in times]


@given(TIMES)
def test_gaps_are_differences_and_never_negative(times: list[int]) -> None:
    """Otherwise one step out of order would spoil the pace of all that come after it."""
    expected = [max(0, end - begin) for begin, end in pairwise(times)]
    assert list(gaps(array("Q", times))) == expected
