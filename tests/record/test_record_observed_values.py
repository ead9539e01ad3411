"""Observed parameter changes compare values by what they mean, whatever they are, and never fail at one."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pydantic
import pytest
from observed_requests import Parameters, detect

from otelkit.model import MAX_LABEL_TEXT, UNSET, label_text
from otelkit.record.observed.keys import key_of, keys_of
from otelkit.record.redaction import exported


def test_unset_none_and_zero_differ() -> None:
    """Broken: a parameter that appears, or goes from None to 0, is taken for the same."""
    values: list[Parameters] = [{}, {"top_p": None}, {"top_p": 0}]
    found = detect(150, lambda number: values[number // 50])
    assert [(change.old, change.new) for _, change in found] == [(UNSET, None), (None, 0)]


def test_lists_compare_by_content() -> None:
    """Broken: equal stop sequences or safety settings, built anew for each request, count as changes."""
    found = detect(
        100, lambda n: {"stop_sequences": ["a", "b" if n < 50 else "c"], "safety": {"x": 1, "y": [2]}}
    )
    assert [(change.parameter, change.old, change.new) for _, change in found] == [
        ("stop_sequences", ["a", "b"], ["a", "c"])
    ]


@pytest.mark.parametrize(("old", "new"), [(True, 1), (0, False), ([0], [False]), ({"a": 1}, {"a": True})])
@pytest.mark.parametrize("varied", [False, True])
def test_truth_is_no_number(old: Any, new: Any, varied: bool) -> None:
    """Broken: a switch that was a number and is now a truth value, or back, counts as the same."""
    rng = random.Random(1)

    def parameters(number: int) -> Parameters:
        other = {"temperature": rng.choice([0.2, 0.9])} if varied else {}
        return {"echo": old if number < 300 else new, **other}

    ((proved, change),) = detect(400, parameters)
    assert (repr(change.old), repr(change.new)) == (repr(old), repr(new))
    assert 300 <= change.first_seen < 308 and proved <= 325


@pytest.mark.parametrize(
    ("one", "other"),
    [(0.3, 0.1 + 0.2), ({"p": [0.3, None]}, {"p": [0.1 + 0.2, None]}), (0.7, np.float32(0.7))],
)
def test_rounding_is_no_change(one: Any, other: Any) -> None:
    """Broken: the same number, computed in another way, is a change; or true passes for a number near 1."""
    assert detect(200, lambda n: {"temperature": one if n < 100 else other}) == []
    assert len(detect(200, lambda n: {"temperature": 1.0 if n < 100 else True})) == 1
    # What follows is told from it.
    found = detect(300, lambda n: {"temperature": one if n < 100 else other if n < 200 else 0.9})
    assert [change.new for _, change in found] == [0.9]


def test_one_is_one_point_zero() -> None:
    """Broken: clients that write 1 as 1.0 look like a change."""
    assert detect(400, lambda n: {"temperature": 1 if n < 200 else 1.0}) == []


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Awkward:
    """Equal to nothing, and without a text."""

    def __eq__(self, other: object) -> bool:
        raise TypeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Settings(pydantic.BaseModel):
    threshold: str = ""


def cyclic(number: int) -> dict[str, Any]:
    value: dict[str, Any] = {"n": number}
    value["self"] = value
    return value


@pytest.mark.parametrize("kind", ["alone", "beside one that varies"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (lambda: np.float64(0.5), lambda: np.float64(0.75)),
        (lambda: np.array([1, 2]), lambda: np.array([1, 3])),
        (lambda: Level.LOW, lambda: Level.HIGH),
        (lambda: Settings(threshold="a"), lambda: Settings(threshold="b")),
        (lambda: b"\x00\xff", lambda: b"\x01"),
        (lambda: float("nan"), lambda: 1.0),
        (lambda: float("inf"), lambda: float("-inf")),
        (lambda: 10**5000, lambda: 10**5000 + 1),
        (lambda: "x" * 1_000_000, lambda: "x" * 999_999 + "y"),
        (lambda: cyclic(1), lambda: cyclic(2)),
        (lambda: {1: "a", "b": {2}}, lambda: {1: "a", "b": {3}}),
        (Awkward, lambda: 7),
        (object, lambda: [object()]),
    ],
)
def test_weird_values(old: Callable[[], Any], new: Callable[[], Any], kind: str) -> None:
    """Broken: a value that is no JSON ends the detection, or differs from itself in the next request."""
    rng = random.Random(3)

    def parameters(number: int) -> Parameters:
        other = {"temperature": rng.choice([0.2, 0.9])} if kind != "alone" else {}
        return {"setting": (old if number < 260 else new)(), **other}

    ((proved, change),) = detect(300, parameters)
    assert change.first_seen == 260 and proved <= 290
    assert len(label_text(exported("setting", change.old))) <= MAX_LABEL_TEXT
    assert label_text(exported("setting", change.old)) != label_text(exported("setting", change.new))


def test_keys_of_many_are_those_of_each() -> None:
    """Broken: values that are looked at together are told apart less well, or one that can't be compared
    ends it."""
    values = [
        1, True, 1.0, 0, False, None, UNSET, 0.3, float("nan"), float("inf"), -float("inf"), 10**400, "a",
        "x" * 5000, b"a", ["a"], ("a",), ["b"], [0], [False], [0.0], [], {}, {"a": 1}, {"a": True},
        {"a": "b"}, [[["a"]]], np.float64(0.3), np.array([1, 2]), [np.array([1, 2])], Level.LOW, "low",
        cyclic(1), Awkward(), [Awkward()], Settings(threshold="a"),
    ]  # fmt: skip
    rng = random.Random(5)
    known: list[Any] = [[], [(["a"], key_of(["a"]))], [("a", "a")], [(0.3, 0.3)]]
    for size in (1, 2, 5, 32):
        for _ in range(60):
            some = [rng.choice(values) for _ in range(size)]
            for one in known:
                assert list(map(repr, keys_of(some, one))) == [repr(key_of(value)) for value in some]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([np.bool_(True)], [np.int8(1)]),
        ([b"\x01"], [np.int8(1)]),
        ([np.uint8(255)], [np.int8(-1)]),
        ({True: "a"}, {1: "a"}),
        ([["b", 1]], [["b", True]]),
        ([Level.LOW], ["high"]),
    ],
)
def test_alike_inside_a_list(one: Any, other: Any) -> None:
    """Broken: of two values inside a list or mapping that have the same bytes or are equal, the one that is
    seen first stands for both."""
    for _ in range(2):
        assert key_of(one) != key_of(other)
        assert key_of(one) == key_of(one)


@pytest.mark.parametrize(("one", "other"), [(Level.LOW, "low"), (np.float64(0.5), 0.5), (("a",), ["a"])])
def test_other_types_of_the_same_value(one: Any, other: Any) -> None:
    """Broken: a service that writes `Effort.LOW` for "low" looks like one that changed it."""
    assert detect(200, lambda n: {"setting": one if n < 100 else other}) == []


def test_a_list_that_is_written_to() -> None:
    """Broken: a service that appends to the list it passes each time has changed nothing, for its values are
    the same object."""
    stop = ["a"]

    def parameters(number: int) -> Parameters:
        if number == 100:
            stop.append("b")
        return {"stop": stop}

    ((_, change),) = detect(200, parameters)
    assert (change.old, change.new, change.first_seen) == (["a"], ["a", "b"], 100.0)
