"""A ``.env`` file, read as Docker Compose reads it: a value must not mean two things."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from otelkit.errors import ConfigError

_SPACE: Final = re.compile(r"(?:\s|#[^\n]*)*")
_NAME: Final = re.compile(r"(?:export[ \t]+)?([\w.\-\[\]]+)[ \t]*(?:([=:])[ \t]*|(?=\n|\Z))")
_SINGLE: Final = re.compile(r"'((?:\\.|[^'\\])*)'", re.DOTALL)
_DOUBLE: Final = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
_LINE: Final = re.compile(r"[^\n]*")
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "$": "$$"}
"""A dollar that is escaped stands for itself: it is doubled for the step that puts variables in."""
_VARIABLE: Final = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:?)([-+])([^}]*))?\}|([A-Za-z_]\w*))")


def read(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Names and values of a file; none where there is no file.

    Args:
        environment: comes before the file in what variables within values stand for.

    Raises:
        ConfigError: the file can't be read, or Compose would refuse it.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            [f"{path}: can't be read: {getattr(error, 'strerror', None) or error}"],
            hint="Let this user read it, as UTF-8.",
        ) from error
    return _parse(text.replace("\r\n", "\n"), path, environment)


def _parse(text: str, path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    problems: list[str] = []

    def look_up(name: str) -> str | None:
        return environment.get(name, values.get(name))

    def where(position: int) -> str:
        return f"{path}:{text.count(chr(10), 0, position) + 1}"

    at = _end(_SPACE, text, 0)
    while at < len(text):
        name = _NAME.match(text, at)
        if name is None:
            end = _end(_LINE, text, at)
            # Without what may be a secret value.
            problems.append(
                f"{where(at)}: {text[at:end].partition('=')[0].strip()!r} is no name of a variable"
            )
            at = end
        elif name[2] is None:
            # Without a value: what the environment has under this name.
            if name[1] in environment:
                values[name[1]] = environment[name[1]]
            at = name.end()
        elif (quote := text[name.end() : name.end() + 1]) and quote in "'\"":
            quoted = (_SINGLE if quote == "'" else _DOUBLE).match(text, name.end())
            if quoted is None:
                problems.append(f"{where(at)}: the quote of {name[1]} is never closed")
                break
            values[name[1]] = quoted[1] if quote == "'" else _expanded(_unescaped(quoted[1]), look_up)
            at = quoted.end()
        else:
            bare = text[name.end() : (end := _end(_LINE, text, name.end()))]
            values[name[1]] = _expanded(bare.split(" #", 1)[0].strip(), look_up)
            at = end
        at = _end(_SPACE, text, at)
    if problems:
        raise ConfigError(problems, hint="Docker Compose refuses such a file.")
    return values


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: _ESCAPES.get(match[1], match[1]), text)


def _expanded(text: str, look_up: Callable[[str], str | None]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1]:
            return "$"
        found = look_up(match[2] or match[6])
        # With a colon, one that is empty counts as not set.
        is_set = bool(found) if match[3] else found is not None
        if match[4] == "+":
            return str(match[5]) if is_set else ""
        return (found or "") if is_set or not match[4] else str(match[5])

    return _VARIABLE.sub(value, text)
