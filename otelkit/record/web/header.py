"""The request header ``X-Model-Params``: parameters that a caller wishes for one request.

Its value is a JSON object, or base64 (standard or URL-safe) of one::

    X-Model-Params: {"max_tokens": 64, "temperature": 0.2}

It is input from outside: nothing is taken from it but what a ``HeaderPolicy`` allows, and that is nothing
unless the service says so. A header with anything wrong is refused as a whole, so that no request is served
with a part of what was asked for.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from otelkit.errors import ConfigError
from otelkit.model import ChangeSource, ParameterValue
from otelkit.record.parameters.limits import KINDS, Limits, NotAllowedError
from otelkit.record.parameters.snapshot import Act
from otelkit.record.parameters.wishes import HEADER_ORIGIN

HEADER: Final = "X-Model-Params"
POLICY_VARIABLE: Final = "OTELKIT_MODEL_PARAMS_HEADER"
"""The policy as JSON: ``{"max_tokens": {"kind": "int", "minimum": 1, "maximum": 1024}}``."""
MAX_BYTES: Final = 4096
MAX_TEXT: Final = 256
"""Most characters of a text, or members of a list, where a parameter's limits say nothing of it."""
ACT: Final = Act(ChangeSource.HEADER, HEADER_ORIGIN)


class HeaderRefusedError(ValueError):
    """A header can't be taken.

    Args:
        problems: what is wrong, each with the parameter's name where there is one.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True)
class HeaderPolicy:
    """What callers may set.

    A parameter that is missing here is refused. Numbers have to lie within their limits; a text without
    limits may have ``MAX_TEXT`` characters.
    """

    allowed: Mapping[str, Limits] = field(default_factory=dict)
    max_bytes: int = MAX_BYTES
    """Longest header value, before base64 is taken off."""
    reject: bool = False
    """Answer a request whose header is refused with 400; else it is served as if there were no header."""

    def __post_init__(self) -> None:
        for name, limits in self.allowed.items():
            if limits.kind in (int, float) and (limits.minimum is None or limits.maximum is None):
                raise ConfigError(
                    [f"{HEADER}: {name}: has no minimum or no maximum"],
                    hint="Give both: a caller could ask for any number otherwise.",
                )
            if limits.kind is None and not limits.choices:
                raise ConfigError([f"{HEADER}: {name}: has neither a kind nor choices"], hint="Give one.")

    @classmethod
    def from_environment(cls) -> HeaderPolicy | None:
        """The policy in ``OTELKIT_MODEL_PARAMS_HEADER``; None when it is not set: the header is ignored.

        Raises:
            ConfigError: the variable makes no policy.
        """
        text = os.environ.get(POLICY_VARIABLE, "").strip()
        if not text:
            return None
        problems: list[str] = []
        try:
            described = json.loads(text)
            if not isinstance(described, dict):
                raise ValueError("is no JSON object")
        except (ValueError, RecursionError) as error:
            raise ConfigError([f"{POLICY_VARIABLE}: {error}"], hint=_EXAMPLE) from error
        allowed = {}
        for name, limits in described.items():
            try:
                allowed[name] = _limits(limits)
            except (TypeError, ValueError) as error:
                problems.append(f"{POLICY_VARIABLE}: {name}: {error}")
        if problems:
            raise ConfigError(problems, hint=_EXAMPLE)
        return cls(allowed)


_EXAMPLE: Final = (
    'Write for instance {"max_tokens": {"kind": "int", "minimum": 1, "maximum": 1024}, '
    '"mode": {"choices": ["fast", "good"]}}.'
)


def _limits(described: Any) -> Limits:
    if not isinstance(described, dict):
        raise ValueError("is no JSON object of limits")
    kinds = {kind.__name__: kind for kind in KINDS}
    known = ("kind", "minimum", "maximum", "choices", "max_length")
    if unknown := sorted(described.keys() - set(known)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(known)}")
    kind = described.get("kind")
    if kind is not None and kind not in kinds:
        raise ValueError(f"kind {kind!r} is none of {', '.join(kinds)}")
    return Limits(**{**described, "kind": kinds[kind] if kind is not None else None})


def read_header(value: str | bytes, policy: HeaderPolicy) -> dict[str, ParameterValue]:
    """The parameters in a header's value.

    Raises:
        HeaderRefusedError: anything in it is wrong or not allowed.
    """
    raw = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    if len(raw) > policy.max_bytes:
        raise HeaderRefusedError([f"has {len(raw)} bytes, more than {policy.max_bytes}"])
    found = _parsed(raw)
    result: dict[str, ParameterValue] = {}
    problems = []
    for name, wish in found.items():
        limits = policy.allowed.get(name)
        if limits is None:
            problems.append(f"{name[:MAX_TEXT]!r} may not be set by callers")
            continue
        if limits.max_length is None and not limits.choices:
            limits = replace(limits, max_length=MAX_TEXT)
        try:
            result[name] = limits.checked(wish)
        except NotAllowedError as error:
            problems.append(f"{name}: {error}")
    if problems:
        raise HeaderRefusedError(problems)
    return result


def _parsed(raw: bytes) -> dict[str, Any]:
    text = raw.strip()
    if not text.startswith(b"{"):
        text = _decoded(text)
    try:
        found = json.loads(
            text.decode("utf-8"), object_pairs_hook=_members, parse_constant=_refuse, parse_float=_finite
        )
    except HeaderRefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise HeaderRefusedError([f"is not JSON: {error}"]) from error
    if not isinstance(found, dict):
        raise HeaderRefusedError(["is no JSON object"])
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except (UnicodeEncodeError, ValueError) as error:
        raise HeaderRefusedError(["has text that is no Unicode"]) from error
    return found


def _decoded(text: bytes) -> bytes:
    try:
        standard = text.translate(bytes.maketrans(b"-_", b"+/")).rstrip(b"=")
        return base64.b64decode(standard + b"=" * (-len(standard) % 4), validate=True).strip()
    except (binascii.Error, ValueError) as error:
        raise HeaderRefusedError(["is neither a JSON object nor base64"]) from error


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise HeaderRefusedError(["has a key twice"])
    return members


def _refuse(name: str) -> Any:
    raise HeaderRefusedError([f"{name} is no JSON number"])


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise HeaderRefusedError([f"{text[:32]} is no finite number"])
    return number
