"""Data frames as Grafana makes them from Prometheus' answers, and the transformations that panels ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Value = float | str | None
_LEGEND: Final = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")


@dataclass(slots=True)
class Field:
    name: str
    values: list[Value]
    labels: dict[str, str] = field(default_factory=dict)
    display: str = ""
    """What is shown instead of the name."""

    @property
    def title(self) -> str:
        return self.display or self.name

    @property
    def is_number(self) -> bool:
        return any(isinstance(value, float) for value in self.values)


@dataclass(slots=True)
class Frame:
    ref: str
    fields: list[Field]

    def named(self, name: str) -> Field | None:
        """A field by its name or title."""
        return next((one for one in self.fields if name in (one.name, one.title)), None)

    def rows(self) -> list[dict[str, Value]]:
        names = [one.name for one in self.fields]
        return [
            dict(zip(names, row, strict=True))
            for row in zip(*(one.values for one in self.fields), strict=True)
        ]


def number(text: str) -> float | None:
    """A sample's value; None for NaN and infinity, which are drawn as a gap."""
    value = float(text)
    return value if math.isfinite(value) else None


def series_frames(result: Sequence[Mapping[str, Any]], ref: str, legend: str) -> list[Frame]:
    """One frame a series, with times in milliseconds."""
    frames = []
    for series in result:
        labels = dict(series["metric"])
        samples = series["values"] if "values" in series else [series["value"]]
        name = legend_text(legend, labels)
        frames.append(
            Frame(
                ref,
                [
                    Field("Time", [float(at) * 1000 for at, _ in samples]),
                    Field("Value", [number(value) for _, value in samples], labels, name),
                ],
            )
        )
    return sorted(frames, key=lambda frame: frame.fields[1].display)


def table_frame(result: Sequence[Mapping[str, Any]], ref: str, *, alone: bool) -> Frame | None:
    """All series of an instant query as one table; the value is called after its query unless ``alone``."""
    if not result:
        return None
    labels = sorted({label for series in result for label in series["metric"]})
    fields = [Field("Time", [float(series["value"][0]) * 1000 for series in result])]
    fields += [Field(label, [series["metric"].get(label, "") for series in result]) for label in labels]
    fields.append(Field("Value" if alone else f"Value #{ref}", [number(s["value"][1]) for s in result]))
    return Frame(ref, fields)


def legend_text(legend: str, labels: Mapping[str, str]) -> str:
    """A legend's text; ``__auto`` is the only label that there is, or all of them."""
    if legend == "__auto" or not legend:
        shown = {key: value for key, value in labels.items() if key != "__name__"}
        if len(shown) == 1:
            return next(iter(shown.values()))
        inner = ", ".join(f'{key}="{value}"' for key, value in sorted(shown.items()))
        return labels.get("__name__", "") + (f"{{{inner}}}" if inner else "") or "Value"
    return _LEGEND.sub(lambda match: labels.get(match[1], ""), legend).strip()


def transform(
    frames: list[Frame], transformations: Sequence[Mapping[str, Any]]
) -> tuple[list[Frame], list[str]]:
    """Apply a panel's transformations in order.

    Returns:
        The frames, and the names of transformations that are not known here, or not with these settings.
    """
    unknown = []
    for one in transformations:
        if one.get("disabled"):
            continue
        apply = _KNOWN.get(str(one.get("id")))
        if apply is None:
            unknown.append(str(one.get("id")))
            continue
        try:
            wanted = re.compile(one["filter"]["options"].strip("/")) if "filter" in one else None
            chosen = [frame for frame in frames if wanted is None or wanted.search(frame.ref)]
            made = apply(chosen, one.get("options") or {})
        except (KeyError, TypeError, AttributeError, re.error):
            # Settings that Grafana itself would not write.
            unknown.append(one["id"])
            continue
        frames = [*(frame for frame in frames if frame not in chosen), *made]
    return frames, unknown


def _merge(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """One table; rows whose common fields agree become one row."""
    if len(frames) < 2:
        return frames
    names = list(dict.fromkeys(one.name for frame in frames for one in frame.fields))
    common = [name for name in names if all(frame.named(name) for frame in frames)]
    rows: dict[tuple[Value, ...], dict[str, Value]] = {}
    for frame in frames:
        for row in frame.rows():
            rows.setdefault(tuple(row[name] for name in common), {}).update(row)
    merged = [Field(name, [row.get(name) for row in rows.values()]) for name in names]
    return [Frame("merge-" + "-".join(frame.ref for frame in frames), merged)]


def _organize(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    order, titles = options.get("indexByName", {}), options.get("renameByName", {})
    left_out = {name for name, yes in options.get("excludeByName", {}).items() if yes}
    for frame in frames:
        kept = [one for one in frame.fields if one.name not in left_out]
        frame.fields = sorted(kept, key=lambda one: order.get(one.name, len(order)))
        for one in frame.fields:
            one.display = titles.get(one.name, one.display)
    return frames


def _calculate(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    """Row sums of the named fields; other modes and reducers are left to Grafana."""
    wanted = options.get("reduce", {}).get("include", [])
    for frame in frames:
        sources = [found for name in wanted if (found := frame.named(name))]
        if sources:
            rows = zip(*(source.values for source in sources), strict=True)
            sums: list[Value] = [sum(v for v in row if isinstance(v, float)) for row in rows]
            frame.fields.append(Field(options["alias"], sums))
    return frames


def _matrix(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    result = []
    for frame in frames:
        row_field, column_field = options["rowField"], options["columnField"]
        cells: dict[Value, dict[Value, Value]] = {}
        for row in frame.rows():
            cells.setdefault(row[row_field], {})[row[column_field]] = row[options["valueField"]]
        columns = list(dict.fromkeys(column for row in cells.values() for column in row))
        first = Field(f"{row_field}\\{column_field}", list(cells))
        rest = [Field(str(column), [row.get(column) for row in cells.values()]) for column in columns]
        result.append(Frame(frame.ref, [first, *rest]))
    return result


def _convert(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    for conversion in options.get("conversions", []):
        for frame in frames:
            found = frame.named(conversion["targetField"])
            if found and conversion["destinationType"] == "number":
                found.values = [_to_number(value) for value in found.values]
    return frames


def _to_number(value: Value) -> float | None:
    try:
        return float(value) if value is not None else None
    except ValueError:
        return None


def _sort(frames: list[Frame], options: Mapping[str, Any]) -> list[Frame]:
    for key in options.get("sort", []):
        for frame in frames:
            found = frame.named(key["field"])
            if found:
                known = [n for n, value in enumerate(found.values) if value is not None]
                known.sort(key=lambda n, of=found: of.values[n], reverse=bool(key.get("desc")))  # type: ignore[misc]
                order = [*known, *(n for n, value in enumerate(found.values) if value is None)]
                for one in frame.fields:
                    one.values = [one.values[n] for n in order]
    return frames


_KNOWN: Final[Mapping[str, Callable[[list[Frame], Mapping[str, Any]], list[Frame]]]] = {
    "merge": _merge,
    "organize": _organize,
    "calculateField": _calculate,
    "groupingToMatrix": _matrix,
    "convertFieldType": _convert,
    "sortBy": _sort,
}
