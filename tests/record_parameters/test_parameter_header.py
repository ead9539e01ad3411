"""``X-Model-Params``: nothing comes through but what the policy allows."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otelkit.errors import ConfigError
from otelkit.record.parameters.limits import Limits
from otelkit.record.web.header import POLICY_VARIABLE, HeaderPolicy, HeaderRefusedError, read_header

POLICY = HeaderPolicy(
    {
        "max_tokens": Limits(int, 1, 1024),
        "temperature": Limits(float, 0, 2),
        "mode": Limits(choices=("fast", "good")),
        "stop": Limits(list, max_length=2),
        "user_tag": Limits(str),
    }
)


@pytest.mark.parametrize("encode", [bytes, base64.b64encode, base64.urlsafe_b64encode])
def test_json_and_base64_of_json_are_read(encode: Any) -> None:
    """If this fails, callers can't set parameters in the documented ways."""
    text = json.dumps({"max_tokens": 64.0, "temperature": 0, "mode": "fast", "user_tag": "ü?>~"}).encode()
    expected = {"max_tokens": 64, "temperature": 0, "mode": "fast", "user_tag": "ü?>~"}
    assert read_header(encode(text), POLICY) == expected
    assert read_header(b" " + encode(text).rstrip(b"=") + b" ", POLICY) == expected
    assert read_header(encode(text).decode("latin-1"), POLICY) == expected


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ('{"max_tokens": 1025}', "max_tokens: 1025 is above the maximum 1024"),
        ('{"max_tokens": 0}', "max_tokens: 0 is below the minimum 1"),
        ('{"max_tokens": true}', "max_tokens: true is not a whole number"),
        ('{"max_tokens": "64"}', 'max_tokens: "64" is not a whole number'),
        ('{"max_tokens": 1.5}', "max_tokens: 1.5 is not a whole number"),
        ('{"max_tokens": null}', "max_tokens: null is not a whole number"),
        ('{"max_tokens": ' + "9" * 4000 + "}", "is above the maximum 1024"),
        ('{"temperature": 1e999}', "1e999 is no finite number"),
        ('{"temperature": NaN}', "NaN is no JSON number"),
        ('{"mode": "other"}', 'mode: "other" is none of "fast", "good"'),
        ('{"stop": ["a", "b", "c"]}', "stop: its length 3 is above 2"),
        ('{"user_tag": "' + "x" * 257 + '"}', "user_tag: its length 257 is above 256"),
        ('{"user_tag": "\\ud800"}', "has text that is no Unicode"),
        (
            '{"model": "other", "seed": 1}',
            "'model' may not be set by callers; 'seed' may not be set by callers",
        ),
        ('{"max_tokens": 1, "max_tokens": 2}', "has a key twice"),
        ("[1]", "is neither a JSON object nor base64"),
        ("W10=", "is no JSON object"),
        ("", "is not JSON"),
        ("{" * 4000, "is not JSON"),
        ('{"stop": ' + "[" * 4000, "is not JSON"),
        ("{" + " " * 5000 + "}", "has 5002 bytes, more than 4096"),
    ],
)
def test_anything_wrong_refuses_the_header_as_a_whole(value: str, problem: str) -> None:
    """If this fails, a caller gets round a limit, or makes the service fail."""
    with pytest.raises(HeaderRefusedError) as caught:
        read_header(value, POLICY)
    assert problem in str(caught.value)


def test_nothing_is_allowed_unless_it_was_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, callers set parameters of services that never asked for it."""
    assert HeaderPolicy.from_environment() is None
    with pytest.raises(HeaderRefusedError):
        read_header('{"max_tokens": 1}', HeaderPolicy())
    monkeypatch.setenv(
        POLICY_VARIABLE,
        '{"max_tokens": {"kind": "int", "minimum": 1, "maximum": 10}, "mode": {"choices": ["fast"]}}',
    )
    policy = HeaderPolicy.from_environment()
    assert (
        policy is not None and read_header('{"max_tokens": 10, "mode": "fast"}', policy)["max_tokens"] == 10
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "OTELKIT_MODEL_PARAMS_HEADER: Expecting"),
        ("[]", "is no JSON object"),
        ('{"a": 1}', "a: is no JSON object of limits"),
        ('{"a": {"kind": "int"}}', "a: has no minimum or no maximum"),
        ('{"a": {"kind": "number"}}', "a: kind 'number' is none of int, float"),
        ('{"a": {"max": 1}}', "a: 'max' is none of kind, minimum"),
        ('{"a": {}}', "a: has neither a kind nor choices"),
        ('{"a": {"kind": "int", "minimum": 2, "maximum": 1}}', "a: the minimum 2 is above the maximum 1"),
    ],
)
def test_a_policy_that_would_be_open_or_is_misspelt_is_an_error(
    monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    """If this fails, a typo in the policy opens a parameter to any value."""
    monkeypatch.setenv(POLICY_VARIABLE, text)
    with pytest.raises(ConfigError) as caught:
        HeaderPolicy.from_environment()
    assert problem in str(caught.value)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
WISHES = st.dictionaries(st.sampled_from([*POLICY.allowed, "model"]), ANY_JSON, max_size=4).map(
    lambda wishes: json.dumps(wishes).encode()
)


@settings(max_examples=500, deadline=None)
@given(
    st.binary(max_size=300)
    | st.text(st.characters(), max_size=300)
    | st.text('{}[]":,\\0123eE+-.truefalsn ', max_size=60)
    | WISHES
    | WISHES.map(base64.b64encode)
)
def test_no_header_does_anything_but_pass_the_policy_or_be_refused(value: str | bytes) -> None:
    """If this fails, some header crashes requests or carries a value that was not allowed."""
    try:
        found = read_header(value, POLICY)
    except HeaderRefusedError as error:
        assert error.problems
    else:
        assert found.keys() <= POLICY.allowed.keys()
        for name, wish in found.items():
            assert POLICY.allowed[name].checked(wish) == wish
