"""Read an incident bundle; every problem of every file is reported at once."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from otelkit.errors import DataError
from otelkit.model import UNSET, ChangeSource, ParameterChange
from otelkit.query.bundle import CHANGES, COVARIATES, MANIFEST, SERIES, VERSION, Bundle, Manifest
from otelkit.query.panel import FloatArray, Panel, ServiceSeries

_MOST_PROBLEMS: Final = 100
"""Problems listed; a file of another kind would otherwise fill the screen many times over."""
_LONGEST_GAPS: Final = 1000
"""Steps to a row, at most: one wrong time must not ask for all the machine's memory."""
_LATEST_SECONDS: Final = 1e11
"""Unix seconds of the year 5138: a larger number is milliseconds or nanoseconds."""
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)_seconds")
_BUCKET = re.compile(r"bucket_(\d+(?:\.\d+)?(?:e-?\d+)?|inf)")


def read_bundle(directory: Path) -> Bundle:
    """Read what ``write_bundle`` wrote, or what was written by hand in its format.

    Rows may come in any order; times that are missing are gaps.

    Raises:
        DataError: files are missing or malformed; names each with its line.
    """
    problems = _Problems(directory)
    manifest = _manifest(problems)
    series = _Series(problems, manifest)
    changes = _changes(problems)
    problems.raise_if_any()
    assert manifest is not None
    return Bundle(series.panel(), changes, tuple(series.warnings))


class _Problems:
    """Collects what is wrong, by file and line."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lines: list[str] = []

    def add(self, name: str, message: str, line: int | None = None) -> None:
        where = self.directory / name
        self._lines.append(f"{where}:{line}: {message}" if line else f"{where}: {message}")

    def text_of(self, name: str) -> str | None:
        """The file's text; None, with a problem noted, where it can't be read."""
        try:
            return (self.directory / name).read_text(encoding="utf-8")
        except OSError as error:
            self.add(name, f"can't be read: {error.strerror or error}")
        except UnicodeDecodeError as error:
            self.add(name, f"is not UTF-8 text: {error.reason} at byte {error.start}")
        return None

    def raise_if_any(self) -> None:
        if not self._lines:
            return
        shown = self._lines[:_MOST_PROBLEMS]
        if len(self._lines) > len(shown):
            shown.append(f"and {len(self._lines) - len(shown)} more problems")
        raise DataError(
            "\n".join(shown), hint="`otelkit explain --save DIR` writes a bundle to compare with."
        )


def _manifest(problems: _Problems) -> Manifest | None:
    text = problems.text_of(MANIFEST)
    if text is None:
        return None
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("version", VERSION) != VERSION:
            found = data["version"]
            problems.add(MANIFEST, f"version: is {found!r}; this otelkit reads version {VERSION}")
            return None
        return Manifest.model_validate(data)
    except json.JSONDecodeError as error:
        problems.add(MANIFEST, f"is not JSON: {error.msg}", error.lineno)
    except ValidationError as error:
        for message in _messages(error):
            problems.add(MANIFEST, message)
    return None


def _messages(error: ValidationError) -> list[str]:
    return [
        ": ".join(filter(None, (".".join(map(str, problem["loc"])), problem["msg"])))
        for problem in error.errors(include_url=False)
    ]


def _unix_seconds(value: Any) -> Any:
    """Unix seconds from a number, or from an ISO date and time with its offset."""
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{value!r} is no time; write Unix seconds or 2026-03-01T14:00:00+01:00"
            ) from None
        if moment.tzinfo is None:
            raise ValueError(f"{value!r} has no offset from UTC; write for instance {value}+00:00")
        return moment.timestamp()
    if isinstance(value, int | float) and abs(value) >= _LATEST_SECONDS:
        raise ValueError(f"{value!r} is too large for Unix seconds; is it in milliseconds?")
    return value


_Time = Annotated[float, BeforeValidator(_unix_seconds), Field(allow_inf_nan=False)]


_Share = Annotated[float, Field(ge=0, le=1)]


class _ChangeLine(BaseModel):
    """One line of ``changes.jsonl``."""

    model_config = ConfigDict(extra="forbid")

    service: str = Field(min_length=1)
    parameter: str = Field(min_length=1)
    old: Any = UNSET
    new: Any = UNSET
    first_seen: _Time
    last_seen: _Time | None = None
    scope: str = ""
    source: ChangeSource = ChangeSource.OBSERVED
    workers: int = Field(default=1, ge=1)
    origin: str = ""
    effective_at: _Time | None = None
    shares: tuple[_Share, _Share] | None = None


def _changes(problems: _Problems) -> tuple[ParameterChange, ...]:
    changes = []
    for number, line in enumerate((problems.text_of(CHANGES) or "").split("\n"), 1):
        if not line.strip():
            continue
        try:
            read = _ChangeLine.model_validate(json.loads(line))
        except json.JSONDecodeError as error:
            problems.add(CHANGES, f"is not JSON: {error.msg} at column {error.colno}", number)
            continue
        except ValidationError as error:
            for message in _messages(error):
                problems.add(CHANGES, message, number)
            continue
        if read.old is UNSET and read.new is UNSET:
            problems.add(CHANGES, "has neither old nor new", number)
        last_seen = read.first_seen if read.last_seen is None else read.last_seen
        if last_seen < read.first_seen:
            problems.add(CHANGES, "last_seen: lies before first_seen", number)
        changes.append(ParameterChange(**dict(read) | {"last_seen": last_seen}))
    return tuple(sorted(changes, key=lambda change: (change.first_seen, change.service, change.parameter)))


class _Series:
    """``series.csv``: rows checked one by one, then put on one grid."""

    def __init__(self, problems: _Problems, manifest: Manifest | None) -> None:
        self.warnings: list[str] = []
        self._problems = problems
        self._manifest = manifest
        self._columns: list[str] = []
        self._rows: dict[str, dict[int, list[float]]] = {}
        """Service -> steps since the first time -> values by column."""
        self._first = 0.0
        self._length = 0
        text = problems.text_of(SERIES)
        if text is not None:
            self._read(text)

    def _read(self, text: str) -> None:
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        cells: list[tuple[int, float, str, list[float]]] = []
        try:
            header = next(rows, [])
            if not self._header(header):
                return
            for row in rows:
                parsed = self._row(rows.line_num, row, len(header)) if row else None
                if parsed:
                    cells.append(parsed)
        except csv.Error as error:
            self._problems.add(SERIES, f"is not CSV: {error}", rows.line_num)
        if not cells:
            self._problems.add(SERIES, "holds no row that could be read")
        elif self._manifest is not None:
            self._place(cells, self._manifest)

    def _header(self, header: list[str]) -> bool:
        if header[:2] != ["time", "service"]:
            self._problems.add(SERIES, "must begin with the columns time,service", 1)
            return False
        self._columns = header[2:]
        for name in sorted({name for name in header if header.count(name) > 1}):
            self._problems.add(SERIES, f"column {name} stands there twice", 1)
        buckets = [name for name in self._columns if _BUCKET.fullmatch(name)]
        if buckets and "bucket_inf" not in buckets:
            self._problems.add(SERIES, "has buckets but no bucket_inf, which counts the slowest calls", 1)
        if not buckets and not any(_QUANTILE.fullmatch(name) for name in self._columns):
            self._problems.add(SERIES, "has neither a quantile such as p99_seconds nor buckets", 1)
        for name in self._columns:
            if not re.fullmatch("[a-z][a-z0-9_.+-]*", name):
                self._problems.add(SERIES, f"column {name!r} has no name that otelkit knows", 1)
            elif not (name in COVARIATES or _BUCKET.fullmatch(name) or _QUANTILE.fullmatch(name)):
                known = ", ".join(sorted(COVARIATES))
                self.warnings.append(f"{SERIES}: column {name} is not used; covariates that are: {known}")
        return True

    def _row(self, line: int, row: list[str], width: int) -> tuple[int, float, str, list[float]] | None:
        if len(row) != width:
            self._problems.add(SERIES, f"has {len(row)} cells, the header has {width}", line)
            return None
        faults = []
        time = _cell(row[0])
        if time is None or math.isnan(time):
            faults.append(f"time: {row[0]!r} is no number of Unix seconds")
        elif time >= _LATEST_SECONDS:
            faults.append(f"time: {row[0]} is too large for Unix seconds; is it in milliseconds?")
        if self._manifest is not None and row[1] not in self._manifest.services:
            faults.append(f"service: {row[1]!r} is not in {MANIFEST}")
        values = []
        for name, text in zip(self._columns, row[2:], strict=True):
            value = _cell(text)
            if value is None:
                faults.append(f"{name}: {text!r} is no number of 0 or more")
            values.append(math.nan if value is None else value)
        for fault in faults:
            self._problems.add(SERIES, fault, line)
        return None if faults or time is None else (line, time, row[1], values)

    def _place(self, cells: list[tuple[int, float, str, list[float]]], manifest: Manifest) -> None:
        step = manifest.step_seconds
        first = min(time for _, time, _, _ in cells)
        last = max(time for _, time, _, _ in cells)
        self._first, self._length = first, round((last - first) / step) + 1
        if self._length > _LONGEST_GAPS * len(cells):
            reach = f"{first:.3f} to {last:.3f} at a step of {step:g} s"
            self._problems.add(
                SERIES, f"times reach from {reach}, with only {len(cells)} rows; is one wrong?"
            )
            return
        lines: dict[tuple[str, int], int] = {}
        for line, time, service, values in cells:
            number = round((time - first) / step)
            if abs(first + number * step - time) > 0.01 * step:
                message = f"time: {time:.3f} is not a whole number of steps of {step:g} s after {first:.3f}"
                self._problems.add(SERIES, message, line)
            elif (service, number) in lines:
                message = f"the same time and service stand in line {lines[service, number]}"
                self._problems.add(SERIES, message, line)
            else:
                lines[service, number] = line
                self._rows.setdefault(service, {})[number] = values
        for service in sorted(set(manifest.services) - set(self._rows)):
            self.warnings.append(f"{SERIES}: has no row of service {service}, which {MANIFEST} lists")

    def panel(self) -> Panel:
        """The panel; only when no problem was found."""
        assert self._manifest is not None
        step = self._manifest.step_seconds
        return Panel(
            times=np.round(self._first + step * np.arange(self._length), 6),
            step_seconds=step,
            services={
                name: self._service(name, self._manifest.services[name].window_seconds)
                for name in sorted(self._rows)
            },
            dependencies={
                name: entry.depends_on for name, entry in self._manifest.services.items() if entry.depends_on
            },
        )

    def _service(self, name: str, window_seconds: float) -> ServiceSeries:
        table = np.full((self._length, len(self._columns)), np.nan)
        for number, values in self._rows[name].items():
            table[number] = values
        known: dict[str, FloatArray] = {
            column: table[:, place]
            for place, column in enumerate(self._columns)
            if np.isfinite(table[:, place]).any()
        }
        quantiles = {
            round(float(match[1]) / 100, 9): known[column]
            for column in known
            if (match := _QUANTILE.fullmatch(column))
        }
        bounds = sorted((float(match[1]), column) for column in known if (match := _BUCKET.fullmatch(column)))
        return ServiceSeries(
            service=name,
            quantiles=quantiles,
            window_seconds=window_seconds,
            bucket_bounds=np.array([bound for bound, _ in bounds]) if bounds else None,
            bucket_counts=np.stack([known[column] for _, column in bounds], axis=1) if bounds else None,
            covariates={
                column: values
                for column, values in known.items()
                if not _QUANTILE.fullmatch(column) and not _BUCKET.fullmatch(column)
            },
        )


def _cell(text: str) -> float | None:
    """A number of 0 or more; NaN for an empty cell, None for anything else."""
    if not text:
        return math.nan
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isnan(value) or 0 <= value < math.inf else None
