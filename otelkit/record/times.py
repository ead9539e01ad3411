"""Arithmetic on many times at once.

An array of 64-bit times is taken as one long integer with a time in every 64 bits of it, its lanes. Adding to
all of them, subtracting each from the next, or counting those above a bound is then one or two operations on
integers, at a tenth of the cost of a loop.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

_BYTES: Final = 8
_BITS: Final = 8 * _BYTES
_LIMIT: Final = 1 << 63
_LANE: Final = (1 << _BITS) - 1
_WORD: Final = "L" if array("L").itemsize == _BYTES else "Q"
"""Type code of 64 bits; an array of the C compiler's own kind is filled in two thirds of the time."""
_IS_LITTLE: Final = sys.byteorder == "little"
_SIZES: Final = (16, 48, 128, 192, 256, 384, 512, 768, 1_536, 3_072)
"""Lanes for which what is added to all of them is kept; each serves all smaller numbers of lanes."""


class Times(array):  # type: ignore[type-arg]  # a subclass of array[int] can't be made when the program runs
    """Nanoseconds that should ascend, which are also kept as one integer."""

    __slots__ = ("ascending", "packed")

    packed: int
    ascending: bool
    """Whether it is known that they do."""


def shifted(times: Sequence[int], by: int) -> array[int]:
    """``times``, ascending, with ``by`` added to each.

    Raises:
        OverflowError: a time, before or after, is negative or takes more than 63 bits.
    """
    if not times:
        return array("Q")
    if not (times[0] + by >= 0 and times[-1] + by < _LIMIT):
        raise OverflowError(f"times up to {times[-1] + by} ns after 1970 make no sense: see to the clock")
    count = len(times)
    together = int.from_bytes(little_endian(array(_WORD, times)), "little") + by * _ones(count)
    moved = Times("Q", together.to_bytes(_BYTES * count, "little"))
    if not _IS_LITTLE:
        moved.byteswap()
    moved.packed, moved.ascending = together, False
    return moved


class Lanes(NamedTuple):
    """Numbers below 2**63 in one integer, the first in its lowest 64 bits."""

    packed: int
    length: int

    def part(self, begin: int, end: int) -> Lanes:
        """Those from ``begin`` to before ``end``."""
        packed = self.packed >> _BITS * begin if begin else self.packed
        if end < self.length:
            packed &= (1 << _BITS * (end - begin)) - 1
        return Lanes(packed, end - begin)

    def at(self, index: int) -> int:
        return self.packed >> _BITS * index & _LANE


class Buckets:
    """Counts lanes by bucket, as a histogram does.

    Args:
        bounds: the highest number of each bucket, ascending; that of the last may be infinite.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._to_add: dict[int, list[int | None]] = {}
        """By number of lanes, for each bucket: added to the lanes, it sets the highest bit of those above."""

    def count(self, lanes: Lanes, lowest: int = 0) -> tuple[list[tuple[int, int]], int]:
        """(bucket, how many lanes) for each bucket that has any, ascending; and the last of those in the
        highest.

        The number of lanes above a bound takes three operations, whatever their number. It is asked for
        downwards from ``lowest`` as long as that isn't all of them, then upwards as long as there are any.

        Args:
            lanes: at least one.
            lowest: a guess at the lowest bucket that has any; the better, the quicker.
        """
        packed, left = lanes
        size = _size_for(left)
        kept = self._to_add.get(size) or self._kept(size)
        highest_bits = _highest_bits(size)
        bucket = lowest
        while bucket:
            to_add = kept[bucket - 1] or self._make(kept, bucket - 1, size)
            if (packed + to_add & highest_bits).bit_count() == left:
                break
            bucket -= 1
        counts: list[tuple[int, int]] = []
        above = 0
        while left:
            if left == 1 and counts:
                # What stands alone is seldom in the next bucket.
                lane = packed >> (above.bit_length() - _BITS) & _LANE
                counts.append((bisect_left(self._bounds, lane, bucket), 1))
                return counts, lane
            before = above
            above = packed + (kept[bucket] or self._make(kept, bucket, size)) & highest_bits
            further = above.bit_count()
            if further < left:
                counts.append((bucket, left - further))
            left, bucket = further, bucket + 1
        last = (before.bit_length() - 1) // _BITS if before else lanes.length - 1
        return counts, packed >> _BITS * last & _LANE

    def all_in(self, bucket: int, lanes: Lanes) -> bool:
        """Whether all lanes, at least one, are in that bucket."""
        packed, length = lanes
        size = _size_for(length)
        kept = self._to_add.get(size) or self._kept(size)
        highest_bits = _highest_bits(size)
        if packed + (kept[bucket] or self._make(kept, bucket, size)) & highest_bits:
            return False
        if not bucket:
            return True
        to_add = kept[bucket - 1] or self._make(kept, bucket - 1, size)
        return (packed + to_add & highest_bits).bit_count() == length

    def _kept(self, size: int) -> list[int | None]:
        fresh: list[int | None] = [None] * len(self._bounds)
        if size <= _SIZES[-1]:
            self._to_add[size] = fresh
        return fresh

    def _make(self, kept: list[int | None], bucket: int, size: int) -> int:
        bound = self._bounds[bucket]
        made = 0 if bound >= _LIMIT else (_LIMIT - 1 - int(bound)) * _ones(size)
        kept[bucket] = made
        return made


def gaps(times: array[int]) -> Lanes:
    """Each of ``times``, below 2**63, less the one before it; 0 where it lies before that one."""
    count = len(times) - 1
    if count < 1:
        return Lanes(0, 0)
    together = times.packed if isinstance(times, Times) else int.from_bytes(little_endian(times), "little")
    difference = (together >> _BITS) - (together ^ times[count] << _BITS * count)
    # A negative one has borrowed from the next, and has its highest bit set.
    if difference < 0 or difference & _highest_bits(_size_for(count)):
        clamped = array("Q", [max(0, end - begin) for begin, end in pairwise(times)])
        difference = int.from_bytes(little_endian(clamped), "little")
    elif isinstance(times, Times):
        times.ascending = True
    return Lanes(difference, count)


def _size_for(count: int) -> int:
    """The number of lanes to take for ``count`` of them."""
    return _SIZES[bisect_left(_SIZES, count)] if count <= _SIZES[-1] else count


def _highest_bits(size: int) -> int:
    return _HIGHEST_BITS.get(size) or _LIMIT * _ones(size)


def _ones(count: int) -> int:
    """1 in each lane."""
    most = _SIZES[-1]
    return _ONES >> _BITS * (most - count) if count <= most else _repeated_one(count)


def _repeated_one(count: int) -> int:
    return int.from_bytes((1).to_bytes(_BYTES, "little") * count, "little")


_ONES: Final = _repeated_one(_SIZES[-1])
_HIGHEST_BITS: Final = {size: _LIMIT * _ones(size) for size in _SIZES}


def little_endian(values: array[int] | array[float]) -> bytes:
    """The bytes of each value, the lowest first."""
    if not _IS_LITTLE:
        values = values[:]
        values.byteswap()
    return values.tobytes()
