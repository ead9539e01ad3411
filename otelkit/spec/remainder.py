"""What is left of a file when all that was refused is taken out: to find in one go what else is wrong."""

from __future__ import annotations

import copy
import difflib
from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from otelkit.spec.model import Spec

Location = tuple[str | int, ...]

_ROUNDS: Final = 8
"""Taking one thing out may leave another incomplete; deeper than this no file goes."""
_DECISIVE: Final = ("preset", "native", "latency", "errors", "selector", "name")
"""Keys without which the rest may be read as what it was not meant to be; also where they are misspelt."""
_NEUTRAL: Final[Mapping[str, Mapping[str, Any]]] = {
    "services": {"slos": [], "alerts": [], "name": "left out {}"},
    "slos": {"errors": 0.001, "matching": 'a="b"', "name": "left out {}"},
    "alerts": {"errors_above": 0.5, "matching": 'a="b"', "name": "left out {}"},
}
"""What takes the place of an item, so that the others keep their numbers."""


class Remainder:
    """The sound part of a document.

    Args:
        document: The file's content.
        refused: What pydantic says of it.
    """

    spec: Spec | None = None
    """None where nothing is left that makes sense."""

    def __init__(self, document: Mapping[str, Any], refused: ValidationError) -> None:
        self._document = copy.deepcopy(dict(document))
        self._out: set[Location] = set()
        for _ in range(_ROUNDS):
            for problem in refused.errors(include_url=False, include_input=False):
                # Of a list that is gone, and was refused as a whole besides, nothing more is to be taken out.
                if not any(problem["loc"][: len(out)] == out for out in self._out):
                    self._take_out(problem["loc"])
            try:
                self.spec = Spec.model_validate(self._document)
            except ValidationError as error:
                refused = error
            else:
                return

    def covers(self, place: Location) -> bool:
        """Whether what is said of a place follows from the file alone, not from what was taken out of it."""
        return not any(place[: len(around)] == around for around in map(_affected, self._out))

    def _take_out(self, loc: Location) -> None:
        """Remove the innermost part of a location that is there; lists keep their length or go as a whole."""
        node: Any = self._document
        place: Location = ()
        parents: list[Any] = []
        for part in loc:
            # Parts that are not there name branches of a union, or what is missing.
            if isinstance(node, list):
                inside = isinstance(part, int) and part < len(node)
            else:
                inside = isinstance(node, dict) and part in node
            if inside:
                parents.append(node)
                node = node[part]
                place = (*place, part)
        while place:
            parent, last = parents.pop(), place[-1]
            if isinstance(parent, dict):
                del parent[last]
                self._out.add(place)
                return
            kind = str(place[-2]) if len(place) > 1 else ""
            if kind in _NEUTRAL:
                parent[last] = {**_NEUTRAL[kind], "name": f"left out {last}"}
                self._out.add(place)
                return
            place = place[:-1]


def _affected(out: Location) -> Location:
    """The part of the file that means something else without what was taken out."""
    if isinstance(out[-1], int):
        return out
    decisive = difflib.get_close_matches(str(out[-1]), _DECISIVE, n=1)
    for index in range(len(out) - 1, 1, -1):
        if out[index - 1] in ("slos", "alerts"):
            return out[: index + 1]
    if out[0] == "services" and len(out) > 2:
        return out[:2] if decisive or len(out) > 3 else out
    return () if decisive else out
