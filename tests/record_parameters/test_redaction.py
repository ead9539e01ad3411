"""Which form of a parameter's value may leave the process."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import subprocess
import sys
from types import MappingProxyType
from typing import Any

import pydantic
import pytest
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st

from otelkit.model import UNSET, canonical, label_text
from otelkit.record import redaction
from otelkit.record.redaction import HIDDEN, Redactor
from otelkit.record.stable import normalise, stable_text

RULES = Redactor()


def words(text: str) -> list[str]:
    return text.split()


SECRETS = words(
    "password db_password api_key openaiApiKey OPENAI_API_KEY X-API-Key apikey client_secret Authorization "
    "auth "
    "token hf_token github-token access_tokens cookie private_key dsn subscription_key key"
)
HARMLESS = words(
    "max_tokens max_output_tokens eos_token pad_token_id stop_token_ids prompt_cache_key top_k max_token "
    "thinking_tokens logit_bias author keyboard secretary"
)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("value", ["hunter2", 1234, 12.5, ["a", "b"], {"a": "b"}, b"bytes"])
def test_a_parameter_named_like_a_secret_is_hidden_whatever_its_value(name: str, value: Any) -> None:
    """If this fails, credentials reach traces and metrics."""
    assert RULES.exported(name, value) == HIDDEN


@pytest.mark.parametrize("name", HARMLESS)
def test_tuning_parameters_are_not_taken_for_secrets(name: str) -> None:
    """If this fails, the very parameters users tune read ``[redacted]``."""
    assert RULES.exported(name, 256) == 256
    assert RULES.exported(name, "plain") == "plain"


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnopqrstuvwx1234",
        "sk-ant-api03-abcdefghijklmnopqrstuvwx",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-1234567890abcdefghijklmnopqrstu",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "xoxb-123456789012-abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
        "Bearer abcdefghijklmnop",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
        "postgresql://chat:s3cret@db.internal/chat",
        "server=db;password=s3cret;timeout=3",
        "https://models.internal/v1?model=m&access_token=abc123456789",
        "https://account.blob.core.windows.net/weights?sv=2024&sig=AbCd%2FEf%3D",
        "https://bucket.s3.amazonaws.com/m?X-Amz-Signature=deadbeefdeadbeef",
        "https://hooks.slack.com/services/T000/B000/XXXXXXXXXXXX",
        "refresh_token: abcdefgh",
    ],
)
def test_a_value_shaped_like_a_secret_is_hidden_wherever_it_is(secret: str) -> None:
    """If this fails, a key in an innocent parameter, or deep inside one, is exported."""
    for value in (secret, [secret], {"a": {"b": [1, secret]}}, {secret: 1}, ("x", {"y": secret})):
        assert secret not in canonical(RULES.exported("route", value))


@pytest.mark.parametrize(
    "text",
    ["https://models.internal/v1?max_tokens=4096&model=m", "key=value pairs, one a line", "a#authors=b"],
)
def test_ordinary_text_stays(text: str) -> None:
    """If this fails, addresses and prompts' templates read ``[redacted]``."""
    assert RULES.exported("endpoint", text) == text


def test_secrets_inside_values_are_hidden_by_their_key_and_the_rest_stays() -> None:
    """If this fails, extra headers carry credentials out, or nothing at all of them is seen."""
    headers = {"Authorization": "opaque", "X-Trace": "1", "nested": [{"api_key": 7, "n": 1}]}
    assert RULES.exported("extra_headers", headers) == {
        "Authorization": HIDDEN,
        "X-Trace": "1",
        "nested": [{"api_key": HIDDEN, "n": 1}],
    }
    assert RULES.exported("extra_headers", [("cookie", "opaque"), ("x", "1")]) == [
        ["cookie", HIDDEN],
        ["x", "1"],
    ]


def test_content_and_large_values_leave_as_a_digest_that_tells_changes() -> None:
    """If this fails, prompts or megabytes are exported, or a change of them can't be seen."""
    first, second = (
        RULES.exported("system_prompt", "You are kind."),
        RULES.exported("system_prompt", "You are terse."),
    )
    assert first.startswith("sha256:") and "kind" not in first and first != second
    assert RULES.exported("user", "alice@example.org").startswith("sha256:")
    large = "x" * 1_000_000
    exported = RULES.exported("grammar", large)
    assert len(exported) < 64 and exported == RULES.exported("grammar", "x" * 1_000_000)
    assert exported != RULES.exported("grammar", large + "y")
    assert RULES.exported("tools", [{"system_prompt": "secret plan"}])[0]["system_prompt"].startswith(
        "sha256:"
    )


def test_user_rules_come_first_and_a_secret_shape_is_hidden_in_any_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If this fails, users can't protect a parameter, or can't see one that only looks like a secret."""
    rules = Redactor(hide=["*_rate"], digests=["route"], show=["AUTH_mode", "system*"])
    assert rules.exported("sample_rate", 1) == HIDDEN
    assert rules.exported("Route", "/a").startswith("sha256:")
    assert rules.exported("auth_mode", "none") == "none"
    assert rules.exported("system_prompt", "hello") == "hello"
    assert rules.exported("auth_mode", "Bearer abcdefghijklmnop") == HIDDEN
    monkeypatch.setenv(redaction.HIDE_VARIABLE, "temp*, top_p")
    monkeypatch.setenv(redaction.SHOW_VARIABLE, "password")
    from_environment = redaction.from_environment()
    assert from_environment.exported("temperature", 0.5) == HIDDEN
    assert from_environment.exported("password", "x") == "x"


def test_unset_none_zero_and_false_stay_four_values() -> None:
    """If this fails, a change from unset to 0 is not seen."""
    assert RULES.exported("temperature", UNSET) is UNSET
    texts = {canonical(RULES.exported("temperature", value)) for value in (UNSET, None, 0, False, "", [])}
    assert len(texts) == 6


class _Level(enum.Enum):
    HIGH = "high"


@dataclasses.dataclass
class _Options:
    level: _Level
    limit: float


class _Model(pydantic.BaseModel):
    a: int | None = None
    b: int | None = None


class _Opaque:
    def __init__(self) -> None:
        self.size, self._cache = 3, object()


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (True, "true"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        (("a", "b"), '["a","b"]'),
        ({"b": 1, "a": 2}, '{"a":2,"b":1}'),
        ({2: "x", "a": 1, None: 0}, '{"2":"x","a":1,"null":0}'),
        ({"c", "a", "b"}, '["a","b","c"]'),
        (MappingProxyType({"a": (1.0,)}), '{"a":[1]}'),
        (_Level.HIGH, '"high"'),
        (_Options(_Level.HIGH, 2.0), '{"level":"high","limit":2}'),
        (_Model(a=None), '{"a":null}'),
        (datetime.date(2026, 1, 2), '"2026-01-02"'),
        (dict, '"builtins.dict"'),
    ],
)
def test_values_that_mean_the_same_have_one_form(value: Any, expected: str) -> None:
    """If this fails, a reload that changes nothing is reported as a change."""
    assert stable_text(value) == expected


def test_safety_settings_of_a_real_sdk_compare_by_content() -> None:
    """If this fails, each request's new settings objects look like a change."""

    def settings_() -> list[types.SafetySetting]:
        return [types.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="BLOCK_NONE")]  # type: ignore[arg-type]

    assert stable_text(settings_()) == stable_text(settings_())
    assert stable_text(settings_()) == '[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]'


def test_any_object_has_a_representation_without_addresses_and_nothing_raises() -> None:
    """If this fails, one odd value breaks recording, or looks different in each worker."""
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = 1
    for _ in range(5_000):
        deep = [deep]
    stream = iter([1, 2])
    for value in (
        _Opaque(),
        object(),
        lambda: 1,
        stream,
        cycle,
        deep,
        b"\xff" * 100,
        10**5_000,
        range(10**9),
    ):
        text = stable_text(value)
        assert "0x" not in text, text
        assert text == stable_text(value)
    assert "size" in stable_text(_Opaque()) and "_cache" not in stable_text(_Opaque())
    assert "_Hostile" in stable_text(_Hostile())
    assert next(stream) == 1, "iterators belong to the user"
    assert stable_text("\ud800").encode()


def test_the_form_is_the_same_in_another_process() -> None:
    """If this fails, two workers that see one change report two."""
    program = (
        "from otelkit.record.stable import stable_text\n"
        "class Opaque:\n    def __init__(self): self.names = {'x', 'y', 'z', 'w'}\n"
        "print(stable_text([{'a', 'b', 'c', 'd'}, Opaque(), frozenset({1.0, 2}), b'abc', len]))\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(name=st.text(max_size=12) | st.sampled_from(["system_prompt", "api_key", "stop"]), value=ANY_JSON)
def test_what_is_exported_is_json_in_utf8_and_passes_again_unchanged(name: str, value: Any) -> None:
    """If this fails, a value redacted twice (or read back from a label) names another change."""
    once = RULES.exported(name, value)
    assert canonical(RULES.exported(name, once)) == canonical(once)
    text = label_text(once)
    assert len(text) <= 64
    assert json.loads(text) is not UNSET and text.encode()
    assert label_text(json.loads(text)) == text
    assert normalise(once) == once or once != once
