"""Read an incident bundle; every problem of every file is reported at once."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from pydantic import ValidationError

from otelkit.query import parquet, units
from otelkit.query.bundle import (
    COVARIATES,
    MANIFEST,
    PARQUET,
    SERIES,
    TRACES,
    VERSION,
    Bundle,
    Manifest,
)
from otelkit.query.bundle_changes import read_changes, unix_seconds
from otelkit.query.bundle_problems import LATEST_SECONDS, Problems, messages
from otelkit.query.panel import FloatArray, Panel, ServiceSeries
from otelkit.query.traces import read_generations

_LONGEST_GAPS: Final = 1000
"""Steps to a row, at most: one wrong time must not ask for all the machine's memory."""
_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d+)?)_seconds")
_BUCKET = re.compile(r"bucket_(\d+(?:\.\d+)?(?:e-?\d+)?|inf)")


def read_bundle(directory: Path) -> Bundle:
    """Read what ``write_bundle`` wrote, or what was written by hand in its format.

    Rows may come in any order; times that are missing are gaps.

    Raises:
        DataError: files are missing or malformed, or units are mixed; names each fault with its line.
        UsageError: the series are Parquet, which can't be read here.
    """
    problems = Problems(directory)
    manifest = _manifest(problems)
    series = _Series(problems, manifest)
    changes = read_changes(problems)
    generations = problems.told_by(lambda: read_generations(directory / TRACES)) or ()
    panel = series.panel() if manifest is not None and series.complete else None
    if panel is not None:
        for service in panel.services.values():
            for one in units.contradictions(service):
                line = None if one.row is None else series.line_of(service.service, one.row)
                problems.add(series.name, f"service {service.service}: {one.sentence}", line)
            doubt = units.doubt(service)
            if doubt:
                series.warnings.append(f"{series.name}: service {service.service}: {doubt}")
    problems.raise_if_any()
    assert manifest is not None and panel is not None
    return Bundle(
        panel,
        changes,
        (*manifest.warnings, *series.warnings),
        {name: entry.thresholds for name, entry in manifest.services.items() if entry.thresholds},
        generations,
    )


def _manifest(problems: Problems) -> Manifest | None:
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
        for message in messages(error):
            problems.add(MANIFEST, message)
    return None


class _Series:
    """The series: rows checked one by one, then put on one grid."""

    def __init__(self, problems: Problems, manifest: Manifest | None) -> None:
        self.warnings: list[str] = []
        self.name = SERIES
        self.complete = False
        """Whether there are rows, all of them on one grid."""
        self._problems = problems
        self._manifest = manifest
        self._columns: list[str] = []
        self._rows: dict[str, dict[int, list[float]]] = {}
        """Service -> steps since the first time -> values by column."""
        self._lines: dict[tuple[str, int], int] = {}
        """Service and steps since the first time -> line."""
        self._first = 0.0
        self._length = 0
        self._read()

    def _read(self) -> None:
        cells: list[tuple[int, float, str, list[float]]] = []
        header: list[str] = []
        for number, row in self._found():
            if not header:
                header = [str(name) for name in row]
                if not self._header(header):
                    return
            elif row:
                parsed = self._row(number, row, len(header))
                if parsed:
                    cells.append(parsed)
        if not header:
            return
        if not cells:
            self._problems.add(self.name, "holds no row that could be read")
        elif self._manifest is not None:
            self._place(cells, self._manifest)

    def _found(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """The header, then each row, with its number in the file."""
        directory = self._problems.directory
        if (directory / PARQUET).exists():
            self.name = PARQUET
            if (directory / SERIES).exists():
                self._problems.add(PARQUET, f"stands beside {SERIES}: which is it? Remove one of them")
            parquet.demand()
            try:
                names, found = parquet.read(directory / PARQUET)
            except (OSError, ValueError) as error:
                self._problems.add(PARQUET, f"can't be read: {' '.join(str(error).split())}")
                return
            yield 1, names
            yield from enumerate(found, 2)
            return
        text = self._problems.text_of(SERIES)
        if text is None:
            return
        rows = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            yield 1, next(rows, [""])
            for row in rows:
                yield rows.line_num, row
        except csv.Error as error:
            self._problems.add(SERIES, f"is not CSV: {error}", rows.line_num)

    def _header(self, header: list[str]) -> bool:
        if header[:2] != ["time", "service"]:
            self._problems.add(self.name, "must begin with the columns time,service", 1)
            return False
        self._columns = header[2:]
        for name in sorted({name for name in header if header.count(name) > 1}):
            self._problems.add(self.name, f"column {name} stands there twice", 1)
        buckets = [name for name in self._columns if _BUCKET.fullmatch(name)]
        if buckets and "bucket_inf" not in buckets:
            self._problems.add(self.name, "has buckets but no bucket_inf, which counts the slowest calls", 1)
        if not buckets and not any(_QUANTILE.fullmatch(name) for name in self._columns):
            self._problems.add(self.name, "has neither a quantile such as p99_seconds nor buckets", 1)
        for name in self._columns:
            if not re.fullmatch("[a-z][a-z0-9_.+-]*", name):
                self._problems.add(self.name, f"column {name!r} has no name that otelkit knows", 1)
            elif not (name in COVARIATES or _BUCKET.fullmatch(name) or _QUANTILE.fullmatch(name)):
                known = ", ".join(sorted(COVARIATES))
                self.warnings.append(f"{self.name}: column {name} is not used; covariates that are: {known}")
        return True

    def _row(self, line: int, row: Sequence[Any], width: int) -> tuple[int, float, str, list[float]] | None:
        if len(row) != width:
            self._problems.add(self.name, f"has {len(row)} cells, the header has {width}", line)
            return None
        faults = []
        time = _time(row[0])
        if time is None:
            faults.append(f"time: {row[0]!r} is no number of Unix seconds")
        elif time >= LATEST_SECONDS:
            faults.append(f"time: {row[0]} is too large for Unix seconds; is it in milliseconds?")
        if not isinstance(row[1], str):
            faults.append(f"service: {row[1]!r} is no name")
        elif self._manifest is not None and row[1] not in self._manifest.services:
            faults.append(f"service: {row[1]!r} is not in {MANIFEST}")
        values = []
        for name, text in zip(self._columns, row[2:], strict=True):
            value = _cell(text)
            if value is None:
                faults.append(f"{name}: {text!r} is no number of 0 or more")
            values.append(math.nan if value is None else value)
        for fault in faults:
            self._problems.add(self.name, fault, line)
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
        lines = self._lines
        latest: dict[str, float] = {}
        unsorted = None
        for line, time, service, values in cells:
            if time < latest.get(service, time):
                unsorted = unsorted or line
            latest[service] = max(time, latest.get(service, time))
            number = round((time - first) / step)
            if abs(first + number * step - time) > 0.01 * step:
                message = f"time: {time:.3f} is not a whole number of steps of {step:g} s after {first:.3f}"
                self._problems.add(self.name, message, line)
            elif (service, number) in lines:
                message = f"the same time and service stand in line {lines[service, number]}"
                self._problems.add(self.name, message, line)
            else:
                lines[service, number] = line
                self._rows.setdefault(service, {})[number] = values
        if unsorted:
            self.warnings.append(f"{self.name}:{unsorted}: rows are not in order of time; they were sorted")
        for service in sorted(set(manifest.services) - set(self._rows)):
            self.warnings.append(f"{self.name}: has no row of service {service}, which {MANIFEST} lists")
        self.complete = True

    def line_of(self, service: str, row: int) -> int | None:
        """Where a row of the panel stands in the file."""
        return self._lines.get((service, row))

    def panel(self) -> Panel:
        """The panel; only where the series are complete."""
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
            controls={
                name: entry.controls
                for name, entry in self._manifest.services.items()
                if entry.controls is not None
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
        if not quantiles:
            # All unknown, which is no reason to know nothing of the service.
            quantiles = {
                round(float(match[1]) / 100, 9): table[:, place]
                for place, column in enumerate(self._columns)
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


def _time(found: Any) -> float | None:
    """Unix seconds from a number, or from an ISO date and time with its offset; None for anything else."""
    time = _cell(found)
    if time is None and isinstance(found, str):
        try:
            time = float(unix_seconds(found))
        except ValueError:
            return None
    return None if time is None or math.isnan(time) else time


def _cell(found: Any) -> float | None:
    """A number of 0 or more; NaN for an empty cell, None for anything else."""
    if found is None or found == "":
        return math.nan
    try:
        value = float(found)
    except (ValueError, TypeError):
        return None
    return value if math.isnan(value) or 0 <= value < math.inf else None
