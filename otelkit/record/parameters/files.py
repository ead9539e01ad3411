"""Reads a configuration file of parameters; what is wrong with it is said by line and key.

The file is a mapping of parameters to values in JSON, TOML or YAML, told apart by its suffix::

    max_tokens: 256
    temperature: 0.7
    stop: ["\\n\\n", "User:"]
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otelkit.errors import ConfigError
from otelkit.model import ParameterValue

MAX_BYTES: Final = 1_000_000
_TOML_POSITION: Final = re.compile(r"\s*\(at line (\d+), column \d+\)")
_TOML_TABLE: Final = re.compile(r"^\s*\[\s*([^\[\]]+?)\s*\]")


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says."""

    values: Mapping[str, ParameterValue]
    lines: Mapping[str, int]
    """Line (from 1) of each parameter, where it could be found."""


class ProblemError(Exception):
    """One thing that is wrong with a file.

    Args:
        text: what, and the next step.
        line: from 1; 0 where it is not known.
    """

    def __init__(self, text: str, *, line: int = 0, key: str = "") -> None:
        super().__init__(text)
        self.text, self.line, self.key = text, line, key

    def at(self, path: Path) -> str:
        """As one line of a ``ConfigError``."""
        where = f"{path}:{self.line}" if self.line else f"{path}"
        return f"{where}: {self.key}: {self.text}" if self.key else f"{where}: {self.text}"


def parse(path: Path, content: bytes, section: str = "") -> Document:
    """The parameters in ``content``, the bytes of the file ``path``.

    Args:
        section: keys separated by dots that lead to the mapping of parameters; empty for the whole file.

    Raises:
        ConfigError: names the file, the line and the key.
    """
    try:
        if len(content) > MAX_BYTES:
            raise ProblemError(f"has {len(content)} bytes; parameters take at most {MAX_BYTES}")
        reader = _READERS.get(path.suffix.lower())
        if reader is None:
            known = ", ".join(_READERS)
            raise ProblemError(f"its suffix {path.suffix!r} is none of {known}; rename it")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise ProblemError(f"is not UTF-8: {error.reason}; save it as UTF-8", line=line) from error
        if not text.strip():
            raise ProblemError("is empty; write {} (JSON, YAML) or a comment (TOML) to set nothing")
        return reader(text, tuple(filter(None, section.split("."))))
    except ProblemError as error:
        raise ConfigError([error.at(path)]) from error
    except RecursionError as error:
        raise ConfigError([f"{path}: is nested too deep; flatten it"]) from error


def flatten(document: Document, names: Iterable[str]) -> Document:
    """The same, with ``a: {b: 1}`` as ``a.b`` where a parameter of such a name was registered."""
    branches = {name[:dot] for name in names for dot, letter in enumerate(name) if letter == "."}
    values: dict[str, ParameterValue] = {}
    lines = dict(document.lines)

    def visit(prefix: str, members: Mapping[str, ParameterValue], line: int) -> None:
        for key, value in members.items():
            name = f"{prefix}{key}"
            lines.setdefault(name, line)
            if name in branches and isinstance(value, dict):
                visit(f"{name}.", value, lines[name])
            else:
                values[name] = value

    visit("", document.values, 0)
    return Document(values, lines)


def _section(values: Any, section: tuple[str, ...]) -> Mapping[str, ParameterValue]:
    for depth, key in enumerate(("", *section)):
        if depth:
            if key not in values:
                raise ProblemError(
                    "is missing; add it or ask for another section", key=".".join(section[:depth])
                )
            values = values[key]
        if not isinstance(values, dict):
            raise ProblemError(
                f"is {type(values).__name__}, not a mapping; write one 'parameter: value' a line",
                key=".".join(section[:depth]),
            )
    return dict(values)


# --- JSON ------------------------------------------------------------
def _json(text: str, section: tuple[str, ...]) -> Document:
    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            line = _line_of(text, rf'"{re.escape(twice)}"\s*:', last=True)
            raise ProblemError("is there twice; keep one", line=line, key=twice)
        return result

    def constant(name: str) -> Any:
        raise ProblemError(f"{name} is no JSON number", line=_line_of(text, name))

    try:
        values = json.loads(text, object_pairs_hook=members, parse_constant=constant)
    except json.JSONDecodeError as error:
        raise ProblemError(f"is not JSON: {error.msg}", line=error.lineno) from error
    except ValueError as error:
        raise ProblemError(f"is not JSON: {error}") from error
    found = _section(values, section)
    return Document(found, {key: _line_of(text, rf'"{re.escape(key)}"\s*:') for key in found})


def _line_of(text: str, pattern: str, *, last: bool = False) -> int:
    """Line of the only place, or the last, that looks like ``pattern``; 0 when there are several."""
    places = list(re.finditer(pattern, text))
    if not places or (len(places) > 1 and not last):
        return 0
    return text.count("\n", 0, places[-1].start()) + 1


# --- TOML ------------------------------------------------------------
def _toml(text: str, section: tuple[str, ...]) -> Document:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        position = _TOML_POSITION.search(str(error))
        line = int(position[1]) if position else text.count("\n") + 1
        raise ProblemError(f"is not TOML: {_TOML_POSITION.sub('', str(error))}", line=line) from error
    found = _section(values, section)
    return Document(found, _toml_lines(text, section))


def _toml_lines(text: str, section: tuple[str, ...]) -> dict[str, int]:
    lines: dict[str, int] = {}
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TOML_TABLE.match(line):
            table = _toml_key(header[1])
        elif "=" in line:
            path = (*table, *_toml_key(line.partition("=")[0]))
        else:
            continue
        path = table if header else path
        if len(path) > len(section) and path[: len(section)] == section:
            for end in range(len(section) + 1, len(path) + 1):
                lines.setdefault(".".join(path[len(section) : end]), number)
    return lines


def _toml_key(text: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in text.strip().split("."))


# --- YAML ------------------------------------------------------------
def _yaml(text: str, section: tuple[str, ...]) -> Document:
    from otelkit.record.parameters.yaml_files import read_yaml

    values, lines = read_yaml(text)
    found = _section(values, section)
    prefix = "".join(f"{key}." for key in section)
    return Document(
        found, {name.removeprefix(prefix): line for name, line in lines.items() if name.startswith(prefix)}
    )


_READERS: Final[dict[str, Callable[[str, tuple[str, ...]], Document]]] = {
    ".json": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}
