"""Synthetic fleets for ``change_detection.py``: their requests, and what was really done to them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from otelkit.model import UNSET, CallSite

FLEETS: Final = (1, 2, 4, 8, 16, 32, 64)
SITE: Final = CallSite("chat", "openai", "chat", "gpt-4o", "app.py:answer")
RARE: Final = CallSite("chat", "openai", "chat", "gpt-4o", "batch.py:nightly")
BEFORE: Final = 120
"""Requests per worker before the change; as many follow it."""

Parameters = dict[str, Any]
Drawn = tuple[Parameters, str]
"""Parameters of a request, and the id of its session; empty where the service tells none."""
Draw = Callable[[random.Random, int, int], Drawn]
"""(randomness, worker, number of the request) -> the request."""


class Sent(NamedTuple):
    """A request."""

    at: float
    """Seconds; the change begins at 0."""
    worker: int
    site: CallSite
    parameters: Parameters
    session: str


@dataclass(frozen=True)
class Truth:
    """A change that was really made."""

    parameter: str
    old: Any
    new: Any
    start: float
    end: float
    """Seconds at which the first and the last worker took it up."""
    early: float = 1.0
    """Seconds before ``start`` to which a report may date it; where shares shift, no request marks it."""


@dataclass
class Scenario:
    """Requests of a fleet in order of time, and what was done meanwhile."""

    requests: list[Sent] = field(default_factory=list)
    truths: list[Truth] = field(default_factory=list)
    restarts: Mapping[int, float] = field(default_factory=dict)
    """Worker -> second at which it is replaced by a fresh process."""
    slack_seconds: float = 60.0
    """How much later than the change was made, or first in use, a report may date it."""


# --- how requests differ from each other without any change ----------------------------------------
def _plain(rng: random.Random, worker: int, number: int) -> Drawn:
    return {"max_tokens": 256, "temperature": 0.7}, ""


def _by_intent(rng: random.Random, worker: int, number: int) -> Drawn:
    return {"max_tokens": 256, "temperature": rng.choice([0.0, 0.0, 0.0, 0.7, 0.7, 1.0])}, ""


def _by_user(rng: random.Random, worker: int, number: int) -> Drawn:
    return {"max_tokens": rng.choice([64, 128, 256, 256, 256, 512, 1024]), "temperature": 0.7}, ""


def _seeds(rng: random.Random, worker: int, number: int) -> Drawn:
    temperature = round(rng.uniform(0.2, 1.0), 3)
    return {"max_tokens": 256, "temperature": temperature, "seed": rng.getrandbits(31)}, ""


def _even_split(rng: random.Random, worker: int, number: int) -> Drawn:
    return {"max_tokens": 256, "temperature": rng.choice([0.2, 0.7])}, ""


def _session(worker: int, session: int) -> Parameters:
    """All requests of a session have the settings of its user."""
    chosen = random.Random(worker * 1_000_003 + session).choice([256, 256, 512, 1024])
    return {"max_tokens": chosen, "temperature": 0.7}


def _one_of_six(rng: random.Random, number: int) -> int:
    """Six sessions at a time, of about a dozen requests each; they begin and end one after the other."""
    slot = rng.randrange(6)
    return (number + 12 * slot) // 72 * 6 + slot


def _sessions(rng: random.Random, worker: int, number: int) -> Drawn:
    return _session(worker, _one_of_six(rng, number)), ""


def _sessions_told(rng: random.Random, worker: int, number: int) -> Drawn:
    session = _one_of_six(rng, number)
    return _session(worker, session), f"{worker}-{session}"


def _same_in_sessions(rng: random.Random, worker: int, number: int) -> Drawn:
    """Sessions whose users have nothing to choose."""
    return _plain(rng, worker, number)[0], f"{worker}-{_one_of_six(rng, number)}"


def _long_runs(rng: random.Random, worker: int, number: int) -> Drawn:
    """One session after the other, of a dozen requests each."""
    return _session(worker, number // 12), ""


def _long_runs_told(rng: random.Random, worker: int, number: int) -> Drawn:
    return _session(worker, number // 12), f"{worker}-{number // 12}"


def _runs_of_any_length(rng: random.Random, worker: int, number: int) -> Drawn:
    """One session after the other, of 6 to 40 requests; the same lengths for all sessions of a worker."""
    return _session(worker, number // random.Random(worker).randint(6, 40)), ""


def _sometimes_unset(rng: random.Random, worker: int, number: int) -> Drawn:
    parameters: Parameters = {"max_tokens": 256}
    if rng.random() < 0.5:
        parameters["temperature"] = rng.choice([None, 0, 0.7])
    return parameters, ""


def _lists(rng: random.Random, worker: int, number: int) -> Drawn:
    stop = ["\n", "User:"]
    return {
        "max_tokens": 256,
        "stop": stop[:] if rng.random() < 0.9 else stop[:1],
        "safety": {"b": 1, "a": [2]},
    }, ""


VARIATIONS: Final[dict[str, Draw]] = {
    "plain": _plain,
    "by_intent": _by_intent,
    "by_user": _by_user,
    "seeds": _seeds,
    "even_split": _even_split,
    "sessions": _sessions,
    "sessions_told": _sessions_told,
    "same_in_sessions": _same_in_sessions,
    "long_runs": _long_runs,
    "long_runs_told": _long_runs_told,
    "runs_of_any_length": _runs_of_any_length,
    "sometimes_unset": _sometimes_unset,
    "lists": _lists,
}
VARIES_WHAT_CHANGES: Final = frozenset(
    {"by_user", "sessions", "sessions_told", "long_runs", "long_runs_told", "runs_of_any_length"}
)
"""Variations of the very parameter that changes."""


# --- what is done to the fleet ---------------------------------------------------------------------
def _fleet(
    rng: random.Random,
    workers: int,
    draw: Draw,
    changed: Callable[[random.Random, int, float, Parameters], Parameters],
    *,
    before: int = BEFORE,
    after: int = BEFORE,
    gap_seconds: float = 2.0,
    site: CallSite = SITE,
) -> Scenario:
    """Requests at random times, ``gap_seconds`` apart per worker on average; second 0 is in the middle."""
    scenario = Scenario(slack_seconds=max(60.0, 3 * gap_seconds))
    users = rng.randrange(10**6)  # no two fleets have the same sessions
    for worker in range(workers):
        at = -before * gap_seconds
        for number in range(before + after):
            at += rng.expovariate(1 / gap_seconds)
            drawn, session = draw(rng, users + worker, number)
            scenario.requests.append(Sent(at, worker, site, changed(rng, worker, at, drawn), session))
    scenario.requests.sort(key=lambda request: request.at)
    return scenario


def _step(
    rng: random.Random,
    workers: int,
    draw: Draw,
    rollout_seconds: float,
    parameter: str = "max_tokens",
    **run: Any,
) -> Scenario:
    """Every worker takes up a new value at its own moment within the rollout."""
    old = {"max_tokens": 256, "top_p": UNSET, "top_k": 0}[parameter]
    new = {"max_tokens": 1024, "top_p": 0.9, "top_k": None}[parameter]
    moments = [rng.uniform(0, rollout_seconds) for _ in range(workers)]
    moments[rng.randrange(workers)] = 0.0

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        value = new if at >= moments[worker] else old
        given = {} if value is UNSET else {parameter: value}
        return {**{name: kept for name, kept in parameters.items() if name != parameter}, **given}

    scenario = _fleet(rng, workers, draw, changed, **run)
    scenario.truths.append(Truth(parameter, old, new, 0.0, max(moments)))
    return scenario


def _nothing(rng: random.Random, workers: int, draw: Draw) -> Scenario:
    return _fleet(rng, workers, draw, lambda rng, worker, at, parameters: parameters)


def _rarely_used(rng: random.Random, workers: int, draw: Draw) -> Scenario:
    """A request a minute; a dozen of each worker before the change and some more after it."""
    return _step(rng, workers, draw, 40.0, before=12, after=15, gap_seconds=60.0, site=RARE)


def _revert(rng: random.Random, workers: int, draw: Draw) -> Scenario:
    """Up and, 30 s later, back; 25 requests of each worker fall between."""

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        return {**parameters, "max_tokens": 1024 if 0 <= at < 30 else 256}

    scenario = _fleet(rng, workers, draw, changed, gap_seconds=1.2)
    scenario.truths += [
        Truth("max_tokens", 256, 1024, 0.0, 0.0),
        Truth("max_tokens", 1024, 256, 30.0, 30.0),
    ]
    return scenario


def _share(
    rng: random.Random, workers: int, draw: Draw, before: float, after: float, seconds: float
) -> Scenario:
    """The share of requests with the new value grows, request by request."""

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        share = before + (after - before) * min(1.0, max(0.0, at / seconds if seconds else float(at >= 0)))
        return {**parameters, "top_p": 0.9 if rng.random() < share else 0.5}

    scenario = _fleet(rng, workers, draw, changed)
    scenario.truths.append(Truth("top_p", 0.5, 0.9, 0.0, seconds, early=30.0))
    return scenario


def _deploy(rng: random.Random, workers: int, draw: Draw, new: int) -> Scenario:
    """Every worker is replaced within 40 s by a process that uses ``new`` from its first request on."""
    moments = {worker: rng.uniform(0, 40) for worker in range(workers)}

    def changed(rng: random.Random, worker: int, at: float, parameters: Parameters) -> Parameters:
        return {**parameters, "max_tokens": new if at >= moments[worker] else 256}

    scenario = _fleet(rng, workers, draw, changed)
    scenario.restarts = moments
    if new != 256:
        scenario.truths.append(Truth("max_tokens", 256, new, 0.0, 40.0))
    return scenario


def scenarios() -> Iterator[tuple[str, Callable[[random.Random, int], Scenario]]]:
    """Every kind, by name."""
    for name, draw in VARIATIONS.items():
        yield f"nothing/{name}", partial(_nothing, draw=draw)
        if name not in VARIES_WHAT_CHANGES:
            yield f"reload/{name}", partial(_step, draw=draw, rollout_seconds=40.0)
    yield (
        "reload/long_lived",
        lambda rng, workers: _step(rng, workers, _by_intent, 40.0, before=700, after=150),
    )
    yield "reload/unset_to_value", lambda rng, workers: _step(rng, workers, _by_intent, 40.0, "top_p")
    yield "reload/zero_to_none", lambda rng, workers: _step(rng, workers, _by_intent, 40.0, "top_k")
    yield "rollout/10_min", lambda rng, workers: _step(rng, workers, _plain, 600.0, gap_seconds=8.0)
    yield "rollout/by_request", lambda rng, workers: _share(rng, workers, _plain, 0.0, 1.0, 120.0)
    for name, draw in (("untold", _plain), ("told", _same_in_sessions)):
        yield f"rarely_used/{name}", partial(_rarely_used, draw=draw)
    yield "revert/30_s", lambda rng, workers: _revert(rng, workers, _plain)
    yield "ab_split/begins", lambda rng, workers: _share(rng, workers, _plain, 0.0, 0.5, 0.0)
    yield "shift/5_to_60_percent", lambda rng, workers: _share(rng, workers, _plain, 0.05, 0.6, 0.0)
    yield "deploy/same_values", lambda rng, workers: _deploy(rng, workers, _by_intent, 256)
    yield "deploy/new_value", lambda rng, workers: _deploy(rng, workers, _by_intent, 1024)
