"""Observed parameter changes: settled values are found, and variation on purpose is not."""

from __future__ import annotations

import os
import random
import signal
import statistics
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from observed_requests import SITE, Parameters, detect

from otelkit.model import UNSET, CallSite, ParameterChange
from otelkit.record.observed import ChangeDetector
from otelkit.record.observed.evidence import BLOCK, Scatter


@pytest.mark.parametrize("before", [6, 10, 50, 2000])
def test_clean_step(before: int) -> None:
    """Broken: a parameter that moves for all requests goes unseen, is dated late, or is reported twice."""
    found = detect(before + 200, lambda n: {"seed": 1, "presence_penalty": 0.0 if n < before else 0.5})
    ((proved, change),) = found
    assert (change.parameter, change.old, change.new) == ("presence_penalty", 0.0, 0.5)
    assert change.first_seen == before
    assert proved - before <= 20
    assert (change.service, change.scope) == ("chat", "app.py:reply")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mean_wish", [25, 40, 80])
@pytest.mark.parametrize("cap", [16, 20])
def test_cap_above_what_requests_wish(seed: int, mean_wish: float, cap: int) -> None:
    """Broken: `max_tokens = min(wish, cap)`: the cap moves for most requests, the rest stay below it."""
    rng = random.Random(f"{seed} {mean_wish} {cap}")
    first_at_cap: list[int] = []

    def parameters(number: int) -> Parameters:
        now = 8 if number < 300 else cap
        value = min(now, 1 + int(rng.expovariate(1 / mean_wish)))
        if value == cap and not first_at_cap:
            first_at_cap.append(number)
        return {"max_tokens": value, "temperature": 0.7}

    ((proved, change),) = detect(600, parameters)
    assert (change.parameter, change.old, change.new) == ("max_tokens", 8, cap)
    assert change.first_seen == first_at_cap[0]
    assert proved - change.first_seen <= 60


def test_revert_after_half_a_minute() -> None:
    """Broken: a change that is taken back soon is seen once, or not at all."""
    found = detect(400, lambda n: {"temperature": 0.9 if 200 <= n < 230 else 0.7})
    assert [(change.old, change.new, change.first_seen) for _, change in found] == [
        (0.7, 0.9, 200.0),
        (0.9, 0.7, 230.0),
    ]


VARIATIONS: dict[str, Callable[[random.Random, int], Parameters]] = {
    "two values evenly": lambda rng, n: {"temperature": rng.choice([0.2, 0.9])},
    "three values evenly": lambda rng, n: {"temperature": rng.choice([0.2, 0.7, 0.9])},
    "one rare value": lambda rng, n: {"temperature": 0.9 if rng.random() < 0.05 else 0.7},
    "skewed": lambda rng, n: {"temperature": rng.choices([0.7, 0.9, 0.2], [0.6, 0.3, 0.1])[0]},
    "every value different": lambda rng, n: {"temperature": rng.random()},
    "by user": lambda rng, n: {"max_tokens": 64 * rng.randint(1, 8)},
    "capped wish": lambda rng, n: {"max_tokens": min(8, 1 + int(rng.expovariate(1 / 20)))},
    "sometimes given": lambda rng, n: {"top_p": 0.5} if rng.random() < 0.3 else {},
    "in turn": lambda rng, n: {"seed": n % 3},
    "short bursts": lambda rng, n: {"temperature": 0.2 if n % 40 > 33 else 0.7},
}


@pytest.mark.parametrize("kind", VARIATIONS)
def test_variation_on_purpose(kind: str) -> None:
    """Broken: requests that vary a parameter on purpose are reported as changes."""
    rng = random.Random(kind)
    assert detect(20_000, lambda number: VARIATIONS[kind](rng, number)) == []


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("before", "after"), [(0.0, 0.5), (0.05, 0.6), (0.9, 0.4)])
def test_a_shift_of_shares_is_reported_with_both(before: float, after: float, seed: int) -> None:
    """Broken: an A/B split that begins, or a share that grows, goes unseen or reads like a full move."""
    rng = random.Random(seed)
    ((proved, change),) = detect(
        700, lambda n: {"temperature": 0.9 if rng.random() < (before if n < 400 else after) else 0.7}
    )
    values, shares = (0.7, 0.9), (before, after)
    if before > after:
        values, shares = (0.9, 0.7), (1 - before, 1 - after)
    assert (change.old, change.new) == values
    assert change.shares is not None
    assert change.shares == (pytest.approx(shares[0], abs=0.1), pytest.approx(shares[1], abs=0.2))
    assert 360 <= change.first_seen <= 440
    assert proved <= 520


def test_a_full_move_has_no_shares() -> None:
    """Broken: a plain change reads like a shift."""
    ((_, change),) = detect(200, lambda n: {"temperature": 0.7 if n < 100 else 0.9})
    assert change.shares is None


def sessions(rng: random.Random, at_a_time: int, requests: int) -> list[Parameters]:
    """Requests of sessions of a dozen each that keep their user's value; they begin at different moments."""
    chosen = [rng.choice([256, 256, 512, 1024]) for _ in range(requests)]
    slots = [rng.randrange(at_a_time) for _ in range(requests)]
    length = 12 * at_a_time
    return [
        {"max_tokens": chosen[(number + 12 * slot) // length * at_a_time + slot]}
        for number, slot in enumerate(slots)
    ]


def test_sessions_beside_each_other_are_no_change() -> None:
    """Broken: users with settings of their own, who come and go, look like changes."""
    found = [
        change
        for seed in range(20)
        for change in detect(600, sessions(random.Random(seed), 8, 600).__getitem__)
    ]
    assert len(found) <= 2


def test_sessions_one_after_the_other_are_learnt() -> None:
    """Broken: a worker that serves one user after the other reports each as a change, forever."""
    for seed in range(10):
        requests = sessions(random.Random(seed), 1, 2400)
        found = [number for number, _ in detect(len(requests), requests.__getitem__)]
        assert len(found) <= 2 and all(number < 720 for number in found)


@pytest.mark.parametrize("length", [12, 16, 32, 34])
def test_sessions_of_one_length_are_learnt(length: int) -> None:
    """Broken: two sessions with one value, one after the other, are a change, wherever lengths fit those of
    the batches that requests are looked at in."""
    late = 0
    for seed in range(6):
        rng = random.Random(seed)
        chosen = [rng.choice([256, 256, 512, 1024]) for _ in range(2400 // length + 1)]
        found = detect(2400, lambda n, chosen=chosen: {"max_tokens": chosen[n // length]})
        late += sum(number >= 1200 for number, _ in found)
    assert late <= 1


def test_scatter_of_many_blocks_at_once() -> None:
    """Broken: sessions of a dozen requests look like independent ones where more requests are taken together
    than a block has, so that a few sessions with one value in a row are a shift of shares."""
    rng = random.Random(4)
    hits = [hit for _ in range(200) for hit in [rng.random() < 0.5] * 12]
    independent = [rng.random() < 0.5 for _ in hits]
    for size in (BLOCK, 64):
        scatters = Scatter(), Scatter()
        for start in range(0, len(hits), size):
            for scatter, some in zip(scatters, (hits, independent), strict=True):
                scatter.add(len(some[start : start + size]), sum(some[start : start + size]))
        assert 9 < scatters[0].inflation(0.5) < 18
        assert scatters[1].inflation(0.5) < 3


MOVES: dict[str, tuple[Callable[[random.Random], Parameters], Parameters]] = {
    "one value prevails": (lambda rng: {"t": rng.choices([0.2, 0.7], [0.8, 0.2])[0]}, {"t": 0.9}),
    "by user": (lambda rng: {"t": rng.choice([64, 128, 256, 256, 256, 256, 512])}, {"t": 4096}),
    "lists": (lambda rng: {"t": ["a"] if rng.random() < 0.8 else ["b"]}, {"t": ["c"]}),
    "sometimes given": (lambda rng: {"t": 0.5} if rng.random() < 0.4 else {}, {"t": 0.9}),
    "beside one that differs": (
        lambda rng: {"t": rng.choices(["a", "b"], [0.8, 0.2])[0], "seed": rng.random()},
        {"t": "c", "seed": 1},
    ),
}


@pytest.mark.parametrize("kind", MOVES)
def test_what_has_long_been_varied_moves(kind: str) -> None:
    """Broken: what requests have varied for long is looked at rarely, and a change of it is seen late."""
    before, after = MOVES[kind]
    delays = []
    for late in range(0, 32, 3):
        rng, moved_at = random.Random(late), 1500 + late
        found = [
            (number, change)
            for number, change in detect(
                moved_at + 100,
                lambda n, rng=rng, at=moved_at: before(rng) if n < at else after,
            )
            if change.parameter == "t"
        ]
        ((proved, change),) = found
        assert (change.new, change.first_seen) == (after["t"], moved_at)
        delays.append(proved - moved_at)
    assert statistics.median(delays) <= 24 and max(delays) <= 60


def test_settled_values_are_told() -> None:
    """Broken: a page can't show what a process uses, and no change that came with a new process is found."""
    detector = ChangeDetector()
    rng = random.Random(2)

    def told() -> dict[str, tuple[Any, bool, float]]:
        return {
            one.parameter: (one.value, one.is_clear, one.since)
            for one in detector.settled_values()
            if one.service == "chat" and one.scope == "app.py:reply"
        }

    for number in range(300):
        parameters = {"max_tokens": 256 if number < 200 else 512, "temperature": rng.choice([0.2, 0.9])}
        detector.observe(SITE, parameters, float(number))
        if number == 4:
            assert told() == {}
        if number == 150:
            assert told()["max_tokens"] == (256, True, 0.0)
    assert told()["max_tokens"] == (512, True, 200.0)
    assert not told()["temperature"][1]


def test_call_sites_settle_apart() -> None:
    """Broken: two places that call with different values look like one that keeps changing."""
    detector = ChangeDetector()
    other = CallSite("chat", "openai", "chat", "m", "app.py:summarise")
    for number in range(500):
        site, value = (SITE, 0.2) if number % 2 else (other, 0.9)
        assert not detector.observe(site, {"temperature": value}, float(number))


def test_bounded() -> None:
    """Broken: state grows with call sites, parameters or values, or nobody can see what was forgotten."""
    detector = ChangeDetector(max_sites=10, max_parameters=5)
    for number in range(50):
        site = CallSite("chat", "openai", "chat", "m", f"app.py:{number}")
        detector.observe(site, {f"p{name}": number for name in range(10)}, float(number))
    for number in range(500):
        detector.observe(site, {"p0": number}, float(number))
    evictions = detector.evictions()
    assert evictions.call_sites == 40
    assert evictions.parameters == 50 * 5
    assert evictions.values > 300


def test_what_was_least_recently_used_goes_first() -> None:
    """Broken: a call site or parameter in use is forgotten for one that is not, or because a clock was set
    back."""
    detector = ChangeDetector(max_sites=3, max_parameters=4)
    at = iter(range(100_000, 0, -1))

    def use(place: str, times: int = 1, **parameters: Any) -> None:
        for _ in range(times):
            detector.observe(CallSite("chat", "openai", "chat", "m", place), parameters, float(next(at)))

    for place in ("a", "b", "c", "a"):
        use(place, 10, x=1)
    use("d", 150, x=1)
    assert {one.scope for one in detector.settled_values()} == {"c", "a", "d"}
    for name in ("p", "q", "r", "p"):
        use("d", 1, x=1, **{name: 1})
        use("d", 150, x=1)
    use("d", 1, x=1, s=1)
    assert {one.parameter for one in detector.settled_values() if one.scope == "d"} == {"x", "r", "p", "s"}
    assert detector.evictions()[:2] == (1, 1)


def test_parameters_that_are_no_longer_given_make_room() -> None:
    """Broken: after 64 names that a client once sent, no change of any other parameter is ever seen."""
    detector = ChangeDetector(max_parameters=4)
    found: list[ParameterChange] = []
    for number in range(400):
        parameters = {"a": 1, "b": 2, "temperature": 0.2 if number < 300 else 0.9}
        if number < 100:
            parameters[f"odd{number // 20}"] = 1
        found += [one for one in detector.observe(SITE, parameters, float(number)) if one.old is not UNSET]
    assert [(one.parameter, one.old, one.new) for one in found if one.parameter == "temperature"] == [
        ("temperature", 0.2, 0.9)
    ]


def test_sessions_that_are_told_are_no_change() -> None:
    """Broken: where calls say which session they belong to, each user's own settings are a change still."""
    found = 0
    for seed in range(20):
        requests = sessions(random.Random(seed), 1, 600)
        detector = ChangeDetector()
        for number, parameters in enumerate(requests):
            found += len(detector.observe(SITE, parameters, float(number), f"session {number // 12}"))
    assert found <= 2


@pytest.mark.parametrize(
    ("session", "delay"),
    [
        (lambda n: f"{n // 3}", 8),
        (lambda n: "the only one", 17),
        (lambda n: f"{n // 100}", 17),
        (lambda n: "" if n % 2 else f"{n}", 8),
    ],
)
def test_changes_with_sessions_told(session: Callable[[int], str], delay: int) -> None:
    """Broken: a change is not seen where calls tell their session, or late."""
    detector = ChangeDetector()
    found = [
        (number, change)
        for number in range(400)
        for change in detector.observe(
            SITE, {"temperature": 0.2 if number < 250 else 0.9}, float(number), session(number)
        )
    ]
    ((proved, change),) = found
    assert (change.old, change.new, change.first_seen) == (0.2, 0.9, 250.0)
    assert proved - 250 < delay


def test_a_site_that_is_hardly_used_and_tells_its_sessions() -> None:
    """Broken: a site's first requests are taken for one session of somebody's, though calls tell that they
    were many; or, where they don't, each user of a quiet worker is a change."""
    detector, silent = ChangeDetector(), ChangeDetector()
    found: list[ParameterChange] = []
    for number in range(27):
        parameters = {"max_tokens": 256 if number < 18 else 1024}
        found += detector.observe(SITE, parameters, float(number), f"session {number}")
        assert not silent.observe(SITE, parameters, float(number))
    assert [(one.old, one.new, one.first_seen) for one in found] == [(256, 1024, 18.0)]


def test_a_process_takes_back_what_was_a_session() -> None:
    """Broken: a worker that took a user's settings for a change says that they were settled, forever."""
    detector = ChangeDetector()
    values = [256] * 12 + [512] * 14 + [1024] * 12 + [256] * 12 + [512] * 12
    changes = [
        change
        for number, value in enumerate(values)
        for change in detector.observe(SITE, {"max_tokens": value}, float(number))
    ]
    assert changes
    (told,) = detector.settled_values()
    assert not told.is_clear
    assert told.since < min(change.first_seen for change in changes)


def test_large_values_are_not_kept() -> None:
    """Broken: a service whose system prompts have a megabyte each holds on to a hundred of them."""
    detector = ChangeDetector()
    tracemalloc.start()
    try:
        for number in range(150):
            large = f"{number % 3}" * 1_000_000
            detector.observe(
                SITE, {"system": large, "other": [large], "steady": "x" * 1_000_000}, float(number)
            )
        del large
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 16 * 4 * 1_000_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_in_the_middle_goes_on() -> None:
    """Broken: a server that forks while /metrics is read hangs in the child, at its first call."""
    detector = ChangeDetector()
    with detector._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            detector.observe(SITE, {"max_tokens": 1}, 0.0)
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_that_is_forked_while_parameters_are_sorted_goes_on() -> None:
    """Broken: a server that forks while another thread looks at a request sees no change in the child."""
    detector = ChangeDetector()
    rng = random.Random(1)
    for number in range(600):
        detector.observe(SITE, {"max_tokens": 1, "temperature": rng.choice([0.2, 0.9])}, float(number))
    (site,) = detector._sites.values()
    site._doubted = {}  # what another thread had got to
    detector.after_fork()
    found = [
        (change.parameter, change.new)
        for number in range(600, 700)
        for change in detector.observe(
            SITE, {"max_tokens": 2, "temperature": rng.choice([0.2, 0.9])}, float(number)
        )
    ]
    assert found == [("max_tokens", 2)]


def test_first_requests_are_not_the_rule() -> None:
    """Broken: a site whose first request was an exception to the rule reports a change when the rule
    shows."""
    assert detect(300, lambda n: {"max_tokens": 3 if n in (0, 1) else 8}) == []
