"""Read ``otelkit.yaml``: every problem at once, each with its file and line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from otelkit.errors import ConfigError
from otelkit.spec.checks import cross_checks
from otelkit.spec.model import Spec
from otelkit.spec.remainder import Location, Remainder

SPEC_FILE: Final = "otelkit.yaml"

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster where PyYAML was built with libyaml."""


def load_spec(path: Path | str = SPEC_FILE) -> Spec:
    """Read a spec from a file.

    Raises:
        ConfigError: the file is missing, is no YAML, or makes no sense; names every line at fault.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            [f"{path}: can't be read: {error.strerror or error}"],
            hint="Three lines are enough: services:, - name: my-service, preset: gen_ai.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text: {error.reason} at byte {error.start}"]) from None
    return parse_spec(text, filename=str(path))


def parse_spec(text: str, *, filename: str = SPEC_FILE) -> Spec:
    """Read a spec from its text; ``filename`` is for messages only.

    Raises:
        ConfigError: as in :func:`load_spec`.
    """
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError([f"{filename}:{line}: is not YAML: {error.problem}"]) from None
    except yaml.YAMLError as error:
        raise ConfigError([f"{filename}: is not YAML: {error}"]) from None
    if root is None:
        return Spec()
    lines: dict[Location, int] = {}
    try:
        problems = list(_walk(root, (), lines))
        data = yaml.SafeLoader("").construct_document(root)
    except RecursionError:
        raise ConfigError([f"{filename}: is nested too deeply, or an alias holds itself"]) from None
    except yaml.MarkedYAMLError as error:
        # Keys that are lists, tags that name nothing.
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError([f"{filename}:{line}: can't be used: {error.problem}"]) from None
    if not isinstance(data, Mapping):
        raise ConfigError([f"{filename}:1: must be a mapping that begins with services:"])
    spec: Spec | None = None
    try:
        spec = Spec.model_validate(data)
        contradictions = list(cross_checks(spec))
    except ValidationError as error:
        rest = Remainder(data, error)
        found = cross_checks(rest.spec) if rest.spec else ()
        contradictions = [(where, message) for where, message in found if rest.covers(where)]
        problems += [
            _line_and_message(dict(problem), lines)
            for problem in error.errors(include_url=False)
            # Said of a list whose items were all refused: the items' own problems say it better.
            if not (problem["type"] == "too_short" and problem["input"])
        ]
    problems += [
        (_line_of(where, lines), f"{_dotted(where)}: {message}") for where, message in contradictions
    ]
    if problems:
        ordered = sorted(set(problems))
        raise ConfigError([f"{filename}:{line}: {message}" for line, message in ordered])
    assert spec is not None
    return spec


def _walk(node: yaml.Node, path: Location, lines: dict[Location, int]) -> Iterator[tuple[int, str]]:
    """Note the line of every key and item; yield keys given twice: YAML would silently keep the last."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*path, index), lines)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            if below in lines:
                yield (
                    key.start_mark.line + 1,
                    f"{_dotted(below)}: is given twice, first in line {lines[below]}; keep one",
                )
                continue
            lines[below] = key.start_mark.line + 1
            yield from _walk(value, below, lines)


def _line_of(where: Location, lines: Mapping[Location, int]) -> int:
    """The line of the innermost part of ``where`` that the file has."""
    while where not in lines and where:
        where = where[:-1]
    return lines.get(where, 1)


def _dotted(where: Location) -> str:
    return ".".join(str(part) for part in where) or "the file"


def _line_and_message(problem: Mapping[str, Any], lines: Mapping[Location, int]) -> tuple[int, str]:
    where = _written(problem["loc"], lines)
    key = _dotted(where)
    kind = problem["type"]
    if kind == "extra_forbidden":
        return _line_of(where, lines), f"{key}: unknown key{_suggestion(where)}"
    if kind == "missing":
        return _line_of(where, lines), f"{key}: is missing; add it"
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    shown = problem.get("input")
    if isinstance(shown, str | int | float | bool) and repr(shown) not in message:
        message += f" (found {shown!r})"
    return _line_of(where, lines), f"{key}: {message}"


def _written(loc: Location, lines: Mapping[Location, int]) -> Location:
    """Drop the parts of a pydantic location that stand for branches of a union, not for keys of the file."""
    kept: Location = ()
    for index, part in enumerate(loc):
        if (*kept, part) in lines or (index == len(loc) - 1 and _is_key(part)):
            kept = (*kept, part)
    return kept


def _is_key(part: str | int) -> bool:
    return isinstance(part, str) and part.replace("_", "").isalnum() and part not in ("str", "dict", "tuple")


def _suggestion(where: Location) -> str:
    known = sorted(_keys_at(where[:-1]))
    close = difflib.get_close_matches(str(where[-1]), known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known here are {', '.join(known)}" if known else ""


def _keys_at(where: Location) -> set[str]:
    """Keys that the schema knows at a place in the file."""
    schema: dict[str, Any] = Spec.model_json_schema()
    definitions = schema.get("$defs", {})

    def resolve(node: dict[str, Any]) -> dict[str, Any]:
        for option in (node, *node.get("anyOf", ())):
            if "$ref" in option:
                found: dict[str, Any] = definitions[option["$ref"].rsplit("/", 1)[1]]
                return found
            if "items" in option or "properties" in option:
                return dict(option)
        return node

    node = resolve(schema)
    for part in where:
        below = node.get("items", {}) if isinstance(part, int) else node.get("properties", {}).get(part, {})
        node = resolve(below)
    return set(node.get("properties", ()))
