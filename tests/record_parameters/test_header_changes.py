"""Changes at a call site that come from callers, and what debug pages say of settled values."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import otelkit
from otelkit import testing
from otelkit.model import ChangeSource
from otelkit.record import parameters
from otelkit.record.parameters.limits import Limits
from otelkit.record.parameters.process import process
from otelkit.record.web.access import Caller
from otelkit.record.web.header import HeaderPolicy
from otelkit.record.web.pages import VARIABLES_PATH, DebugPages
from otelkit.record.web.requests import RequestParameters

POLICY = HeaderPolicy({"max_tokens": Limits(int, 1, 1024), "top_p": Limits(float, 0, 1)})


@pytest.fixture
def recorded() -> Iterator[testing.Recorded]:
    process.wishes.after_fork()
    with testing.recording() as everything:
        yield everything


def request(wish: str = "", **given: object) -> None:
    """One request of a caller, who may wish for something."""
    with RequestParameters(POLICY).applied([wish.encode()] if wish else [], ""):
        used = {"max_tokens": parameters.get("max_tokens", 256), **given}
        list(otelkit.watch(iter("ab"), model="m", parameters=used))


def test_a_change_that_callers_make_shows_where_it_comes_from(recorded: testing.Recorded) -> None:
    """Broken: clients that begin to ask for another value look like a change of the service's own code."""
    for _ in range(100):
        request()
    for _ in range(30):
        request('{"max_tokens": 64}')
    (change,) = recorded.changes
    assert (change.parameter, change.old, change.new) == ("max_tokens", 256, 64)
    assert (change.source, change.origin) == (ChangeSource.HEADER, "request header X-Model-Params")


def test_a_change_beside_wishes_is_no_wish(recorded: testing.Recorded) -> None:
    """Broken: whatever changes while a client sends the header is blamed on that client."""
    for number in range(130):
        request(
            '{"max_tokens": 64, "top_p": 0.5}' if number % 2 else "", temperature=0.2 if number < 100 else 0.9
        )
    (change,) = [one for one in recorded.changes if one.parameter == "temperature"]
    assert (change.source, change.origin) == (ChangeSource.OBSERVED, "")


def test_settled_values_are_on_the_debug_page(recorded: testing.Recorded) -> None:
    """Broken: nobody can look up what a call site has settled on, what it varies, and since when."""
    for number in range(60):
        request(temperature=0.2 if number % 2 else 0.9, api_key="sk-abcdefghijklmnopqrstuvwx", seed=None)
    caller = Caller("127.0.0.1", {"host": "127.0.0.1"})
    page = DebugPages(True, parameters=process).answer("GET", VARIABLES_PATH, "", caller)
    settled = {one["name"]: one for one in json.loads(page.body)["settled"]}
    assert (settled["max_tokens"]["value"], settled["max_tokens"]["varies"]) == (256, False)
    assert (settled["temperature"]["value"], settled["temperature"]["varies"]) == (None, True)
    assert (settled["seed"]["value"], settled["seed"]["varies"]) == (None, False)
    assert settled["api_key"]["value"] == "[redacted]"
    assert settled["max_tokens"]["since"] > 1e9
