"""YAML with the line of each key. Loads PyYAML, so it is imported only when a YAML file is read."""

from __future__ import annotations

from typing import Any, Final

import yaml

from otelkit.record.parameters.files import ProblemError

MAX_NODES: Final = 100_000
"""Parts of a document once its aliases are written out; a few lines of aliases can stand for billions."""


def read_yaml(text: str) -> tuple[Any, dict[str, int]]:
    """The document's value, and the line (from 1) of every key, by keys joined with dots.

    Raises:
        ProblemError: with the line at fault.
    """
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return {}, {}
        _Counter().count(root)
        lines: dict[str, int] = {}
        _lines(root, "", lines)
        _check_scalars(root, "", yaml.SafeLoader(""))
        return loader.construct_document(root), lines
    except (ProblemError, RecursionError):
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProblemError(f"is not YAML: {error.problem}", line=mark.line + 1 if mark else 0) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise ProblemError(f"is not YAML: {error.reason}: {error.character!r}", line=line) from error
    except Exception as error:  # PyYAML lets through what int(), float() and date() raise on odd scalars
        raise ProblemError(f"is not YAML: {' '.join(str(error).split())}") from error


def _check_scalars(node: yaml.Node, key: str, loader: yaml.SafeLoader) -> None:
    """Say which value it is that PyYAML can't make a number or a date of, as ``2026-99-99``."""
    if isinstance(node, yaml.ScalarNode):
        try:
            loader.construct_object(node)
        except yaml.YAMLError:
            raise
        except Exception as error:
            text = f"{node.value[:40]!r}: {' '.join(str(error).split())}; put it in quotes if it is text"
            raise ProblemError(text, line=node.start_mark.line + 1, key=key) from error
    elif isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            _check_scalars(value, f"{key}.{name.value}" if key else str(name.value), loader)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_scalars(item, key, loader)


class _Counter:
    """Counts the parts that a node stands for, aliases written out."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._open: set[int] = set()

    def count(self, node: yaml.Node) -> int:
        known = self._sizes.get(id(node))
        if known is not None:
            return known
        if id(node) in self._open:
            raise ProblemError("contains itself; write the value out", line=node.start_mark.line + 1)
        self._open.add(id(node))
        size = 1 + sum(self.count(child) for child in _children(node))
        self._open.discard(id(node))
        if size > MAX_NODES:
            raise ProblemError(f"stands for more than {MAX_NODES} parts", line=node.start_mark.line + 1)
        self._sizes[id(node)] = size
        return size


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _lines(node: yaml.Node, prefix: str, lines: dict[str, int]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag == "tag:yaml.org,2002:merge":
            continue
        if key.tag != "tag:yaml.org,2002:str":
            text = key.value if isinstance(key, yaml.ScalarNode) else key.id
            raise ProblemError(f"the key {text!r} is no text; put it in quotes", line=line)
        name = prefix + key.value
        if name in lines:
            raise ProblemError(f"is there twice, first in line {lines[name]}; keep one", line=line, key=name)
        lines[name] = line
        _lines(value, f"{name}.", lines)
