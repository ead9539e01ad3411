"""Flags evaluated through the real OpenFeature SDK and its in-memory provider."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("openfeature", reason="openfeature-sdk is not installed: pip install openfeature-sdk")

from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import FlagResolutionDetails
from openfeature.provider.in_memory_provider import InMemoryFlag, InMemoryProvider
from parameters_declared import Kept

from otelkit.model import ChangeSource
from otelkit.record.openfeature import ParameterHook
from otelkit.record.parameters import counts
from otelkit.record.parameters.process import ProcessParameters
from otelkit.record.web.variables import variables


class Flags:
    """A client of a provider whose flags the test changes."""

    def __init__(self) -> None:
        self.process, self.sink = ProcessParameters(), Kept()
        self.process.attach(self.sink, "chat")
        api.add_hooks([ParameterHook(parameters=self.process)])

    def provide(self, **flags: InMemoryFlag[Any]) -> None:
        api.set_provider(InMemoryProvider(flags))
        self.client = api.get_client()

    def ask(self, key: str, times: int = 1, **context: Any) -> None:
        for number in range(times):
            attributes = {name: make(number) for name, make in context.items()}
            self.client.get_integer_value(key, -1, EvaluationContext(attributes=attributes))


@pytest.fixture
def flags() -> Iterator[Flags]:
    yield Flags()
    api.clear_hooks()
    api.shutdown()


def fixed(value: Any) -> InMemoryFlag[Any]:
    return InMemoryFlag("on", {"on": value})


def split(share: float) -> InMemoryFlag[int]:
    """512 for a share of users, 256 for the others."""

    def evaluate(flag: InMemoryFlag[int], context: EvaluationContext) -> FlagResolutionDetails[int]:
        bucket = float(str(context.attributes["user"])) * 0.618 % 1
        variant = "large" if bucket < share else "small"
        return FlagResolutionDetails(flag.variants[variant], variant=variant)

    return InMemoryFlag("small", {"small": 256, "large": 512}, context_evaluator=evaluate)


def test_a_flag_that_moves_to_another_value_is_one_change_with_its_provider(flags: Flags) -> None:
    """If this fails, a change made by a flag has no cause in sight."""
    flags.provide(max_tokens=fixed(256), route=fixed(1))
    flags.ask("max_tokens", 20)
    flags.ask("route", 20)
    flags.provide(max_tokens=fixed(512), route=fixed(1))
    flags.ask("max_tokens", 20)
    flags.ask("route", 20)
    (change,) = flags.sink.changes
    assert (change.service, change.parameter, change.old, change.new) == ("chat", "max_tokens", 256, 512)
    assert change.source is ChangeSource.FEATURE_FLAG
    assert change.origin == "OpenFeature provider In-Memory Provider, variant on"
    shown = {flag["name"]: flag["value"] for flag in variables(flags.process)["flags"]}
    assert shown == {"max_tokens": 512, "route": 1}


def test_a_flag_that_differs_by_user_is_no_change(flags: Flags) -> None:
    """If this fails, every A/B test is a storm of changes."""
    flags.provide(max_tokens=split(0.3))
    flags.ask("max_tokens", 300, user=lambda number: number)
    assert flags.sink.changes == []


def test_objects_are_compared_by_content_and_secrets_stay_hidden(flags: Flags) -> None:
    """If this fails, each evaluation of an object flag is a change, or a key in one is exported."""
    for limits in ({"rate": 1, "api_key": "abc"}, {"rate": 2, "api_key": "abc"}):
        flags.provide(limits=fixed(limits))
        for _ in range(20):
            flags.client.get_object_value("limits", {})
    (change,) = flags.sink.changes
    assert change.old == {"rate": 1, "api_key": "[redacted]"} and change.new["rate"] == 2


def test_a_provider_that_fails_leaves_the_default_in_use_and_that_is_a_change(flags: Flags) -> None:
    """If this fails, an outage of the flag service changes parameters without a trace."""
    flags.provide(max_tokens=fixed(256))
    flags.ask("max_tokens", 20)
    flags.provide()
    flags.ask("max_tokens", 20)
    (change,) = flags.sink.changes
    assert (change.old, change.new) == (256, -1)
    assert change.origin.endswith(f"which fails: {ErrorCode.FLAG_NOT_FOUND.value}")
    assert flags.process.input_counts()[counts.FLAG, counts.REFUSED] == 20


def test_asynchronous_evaluations_are_seen_too(flags: Flags) -> None:
    """If this fails, services on asyncio have no flag changes."""

    async def ask() -> None:
        for value in (True, False):
            flags.provide(beam=fixed(value))
            for _ in range(20):
                await flags.client.get_boolean_value_async("beam", True)

    asyncio.run(ask())
    assert flags.sink.steps == [("beam", True, False)]


def test_a_fault_in_the_hook_never_reaches_the_caller(flags: Flags, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a fault of telemetry makes flag evaluations fail."""
    flags.provide(max_tokens=fixed(256))
    monkeypatch.setattr(flags.process.flags, "put", None)
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert flags.client.get_integer_value("max_tokens", -1) == 256
