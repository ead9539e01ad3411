"""PromQL label matchers: written into rules, and evaluated here where pages are scraped in process."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_MATCHER: Final = re.compile(
    r"""\s*(?P<label>[a-zA-Z_][a-zA-Z0-9_]*|"[^"\\]+")\s*(?P<op>=~|!~|!=|=)\s*(?P<value>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\s*(?:,|$)"""
)
_NOT_RE2: Final = re.compile(r"\(\?(?:<?[=!]|>|P=|\()|\\[1-9]")
"""Looking around, and back to what was matched: Python has them, Prometheus' expressions do not."""
_PLAIN_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_PLAIN_METRIC: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
BOUND_LABEL: Final = "le"
"""Which bucket of a histogram a series counts."""
NAME_PATTERN: Final = r"""^[^\s"'`\\{}()\[\]=~!,]+$"""
"""Names of metrics and labels: what Prometheus 3 takes, but for what is in them by mistake only."""


_UNPRINTABLE: Final = re.compile(
    "[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML takes for the end of a line, or refuses, wherever it stands."""


def quoted(text: str) -> str:
    """A string as PromQL, JSON and YAML all read it, in one line."""
    return escaped(json.dumps(text, ensure_ascii=False))


def escaped(json_text: str) -> str:
    """JSON whose strings hold no character that YAML would not let through."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)


def label_name(label: str) -> str:
    """A label as PromQL writes it: in quotes where it holds dots or the like."""
    return label if _PLAIN_LABEL.fullmatch(label) else quoted(label)


@dataclass(frozen=True, order=True, slots=True)
class Matcher:
    """One label matcher; a label that a series lacks counts as empty, as in Prometheus."""

    label: str
    op: str
    """``=``, ``!=``, ``=~`` or ``!~``; patterns match the whole value."""
    value: str

    def __str__(self) -> str:
        return f"{label_name(self.label)}{self.op}{quoted(self.value)}"

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
            matcher = Matcher(found["label"].strip('"'), found["op"], json.loads(quoted))
            if "~" in matcher.op:
                re.compile(matcher.value)
                beyond = _NOT_RE2.search(matcher.value)
                if beyond:
                    raise ValueError(f"Prometheus' regular expressions have no {beyond[0]}")
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
        checked_name(label)
    return tuple(Matcher(label, "=", value) for label, value in labels.items())


def checked_name(name: str) -> str:
    """The name of a metric or label, if it is one.

    Raises:
        ValueError: it is none.
    """
    if not re.match(NAME_PATTERN, name):
        raise ValueError(
            f"{name!r} is no name of a metric or label; use letters, digits and underscores, "
            "or dots where Prometheus was told to keep them"
        )
    return name


def selector(metric: str, matchers: Iterable[Matcher] = ()) -> str:
    """An instant vector selector; the bare metric name where there are no matchers."""
    inner = [str(matcher) for matcher in matchers]
    if metric and not _PLAIN_METRIC.fullmatch(metric):
        metric, inner = "", [quoted(metric), *inner]
    return f"{metric}{{{','.join(inner)}}}" if inner else metric
