"""PromQL label matchers: written into rules, and evaluated here where pages are scraped in process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_MATCHER: Final = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*)\s*(?P<op>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*(?:,|$)"""
)
_NAME: Final = re.compile(r"^[a-zA-Z_][a-zA-Z0-9_]*$")


@dataclass(frozen=True, order=True, slots=True)
class Matcher:
    """One label matcher; a label that a series lacks counts as empty, as in Prometheus."""

    label: str
    op: str
    """``=``, ``!=``, ``=~`` or ``!~``; patterns match the whole value."""
    value: str

    def __str__(self) -> str:
        return f"{self.label}{self.op}{json.dumps(self.value, ensure_ascii=False)}"

    def matches(self, labels: Mapping[str, str]) -> bool:
        found = labels.get(self.label, "")
        if self.op in ("=", "!="):
            return (found == self.value) is (self.op == "=")
        return (re.fullmatch(self.value, found) is not None) is (self.op == "=~")


def parse_matchers(text: str) -> tuple[Matcher, ...]:
    """Read ``job="api",code=~"5.."``, with or without braces.

    Raises:
        ValueError: the text is no list of matchers, or a pattern is no regular expression.
    """
    inner = text.strip()
    if inner.startswith("{") and inner.endswith("}"):
        inner = inner[1:-1]
    matchers, position = [], 0
    while position < len(inner):
        found = _MATCHER.match(inner, position)
        if not found:
            raise ValueError(
                f'{text!r} is not a list of label matchers; write for instance job="api",code=~"5.."'
            )
        quoted = found["value"]
        if quoted[0] == "'":
            quoted = '"' + quoted[1:-1].replace('"', '\\"') + '"'
        try:
            matcher = Matcher(found["label"], found["op"], json.loads(quoted))
            if "~" in matcher.op:
                re.compile(matcher.value)
        except ValueError as error:
            raise ValueError(f"{found['value']} can't be read: {error}") from None
        except re.error as error:
            raise ValueError(f"{found['value']} is not a regular expression: {error}") from None
        matchers.append(matcher)
        position = found.end()
    return tuple(matchers)


def equality_matchers(labels: Mapping[str, str]) -> tuple[Matcher, ...]:
    """One ``=`` matcher per label.

    Raises:
        ValueError: a key is no label name.
    """
    for label in labels:
        if not _NAME.match(label):
            raise ValueError(f"{label!r} is not a label name; use letters, digits and underscores")
    return tuple(Matcher(label, "=", value) for label, value in labels.items())


def selector(metric: str, matchers: Iterable[Matcher] = ()) -> str:
    """An instant vector selector; the bare metric name where there are no matchers."""
    inner = ",".join(str(matcher) for matcher in matchers)
    return f"{metric}{{{inner}}}" if inner else metric
