"""Arithmetic on arrays of times gives what a loop over them would give."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otelkit.record.times import Buckets, Lanes, gaps, shifted

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
    found = gaps(array("Q", times))
    expected = [max(0, end - begin) for begin, end in pairwise(times)]
    assert [found.at(i) for i in range(found.length)] == expected


NUMBERS = st.integers(0, (1 << 63) - 1) | st.integers(0, 9)


@given(st.lists(NUMBERS, min_size=1, max_size=60), st.lists(NUMBERS, max_size=6), st.data())
def test_lanes_are_counted_by_bucket_in_any_part(
    numbers: list[int], bounds: list[int], data: st.DataObject
) -> None:
    """Otherwise steps would be in wrong buckets of a histogram."""
    lanes = Lanes(sum(number << 64 * i for i, number in enumerate(numbers)), len(numbers))
    begin = data.draw(st.integers(0, len(numbers) - 1))
    end = data.draw(st.integers(begin + 1, len(numbers)))
    part, expected = lanes.part(begin, end), numbers[begin:end]
    assert [part.at(i) for i in range(part.length)] == expected
    upper = [*sorted(set(bounds)), math.inf]
    counts, last = Buckets(upper).count(part, data.draw(st.integers(0, len(upper) - 1)))
    in_bucket = [bisect_left(upper, number) for number in expected]
    assert counts == sorted(Counter(in_bucket).items())
    for bucket in {0, *in_bucket, len(upper) - 1}:
        assert Buckets(upper).all_in(bucket, part) is (set(in_bucket) == {bucket})
    assert last == [n for n, bucket in zip(expected, in_bucket, strict=True) if bucket == max(in_bucket)][-1]


@pytest.mark.parametrize("count", [15, 16, 17, 3_071, 3_072, 3_073, 20_000])
def test_long_outputs_are_counted_as_short_ones_are(count: int) -> None:
    """Otherwise the steps of a long output would be lost, or counted twice, where one kept number ends."""
    times = array("Q", range(5, 5 + 7 * (count + 1), 7))
    found = gaps(times)
    assert found.length == count
    assert Buckets([6, 7, math.inf]).count(found) == ([(1, count)], 7)
    assert Buckets([6, math.inf]).count(found) == ([(1, count)], 7)
    assert list(shifted(times, -5)) == [time - 5 for time in times]
