"""An incident bundle: a folder that holds what a verdict was made from, to be kept, shared and replayed.

``bundle.json``
    ``version``, ``step_seconds``, ``warnings`` of the source, and by service ``window_seconds`` (of its
    quantiles), ``depends_on``, ``controls`` and ``thresholds`` (parameter -> seconds of effect on P99).
``series.csv`` or ``series.parquet``
    One row a time and service. ``time`` is Unix seconds, a cell without a value is a gap. Columns: quantiles
    such as ``p99_seconds``; ``bucket_0.5`` and so on to ``bucket_inf``, the calls that ended in the step by
    the upper bound of their latency in seconds, not cumulative; covariates named as in ``ServiceSeries``.
``changes.jsonl``
    One parameter change a line, fields as in ``ParameterChange``; ``old`` or ``new`` left out means not set.
``traces.jsonl``
    Optional: generations to show, as OTLP JSON lines.

Floats are written so that they are read back exactly, so the same bundle gives the same verdict everywhere.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from otelkit.errors import UsageError
from otelkit.model import UNSET, Generation, ParameterChange
from otelkit.query import parquet
from otelkit.query.panel import FloatArray, Panel, ServiceSeries
from otelkit.query.traces import write_generations

MANIFEST: Final = "bundle.json"
SERIES: Final = "series.csv"
PARQUET: Final = "series.parquet"
CHANGES: Final = "changes.jsonl"
TRACES: Final = "traces.jsonl"
VERSION: Final = 1
COVARIATES: Final = frozenset(
    {
        "arrivals",
        "completions",
        "errors",
        "in_flight",
        "input_tokens",
        "output_tokens",
        "time_per_output_chunk",
        "time_to_first_chunk",
    }
)
"""Covariates that the causal engine reads; others are kept."""

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class ServiceEntry(BaseModel):
    """What the series alone do not tell of a service."""

    model_config = ConfigDict(extra="forbid")

    window_seconds: Seconds
    depends_on: tuple[str, ...] = ()
    controls: tuple[str, ...] | None = None
    thresholds: dict[str, Seconds] = {}


class Manifest(BaseModel):
    """``bundle.json``."""

    model_config = ConfigDict(extra="forbid")

    version: Literal[1]
    step_seconds: Seconds
    services: dict[str, ServiceEntry]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bundle:
    """What a bundle holds."""

    panel: Panel
    changes: tuple[ParameterChange, ...]
    warnings: tuple[str, ...] = ()
    """What a reader should know of the data, each once."""
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Service -> parameter -> seconds of effect on P99 from which a change of it is one to act on."""
    generations: tuple[Generation, ...] = ()
    """Calls whose token steps are known."""


def write_bundle(
    directory: Path,
    panel: Panel,
    changes: Sequence[ParameterChange],
    *,
    warnings: Sequence[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    generations: Sequence[Generation] = (),
    form: Literal["csv", "parquet"] = "csv",
) -> None:
    """Write a bundle into a folder, which is made where it is missing; an older bundle in it is replaced.

    Args:
        warnings, thresholds, generations: as in :class:`Bundle`.
        form: of the series.

    Raises:
        UsageError: the folder holds something else, or can't be written; or Parquet can't be written here.
    """
    if form == "parquet":
        parquet.demand()
    demand_folder(directory)
    try:
        for name in (SERIES, PARQUET, TRACES):
            (directory / name).unlink(missing_ok=True)
        header, tables = _tables(panel)
        if form == "parquet":
            parquet.write(directory / PARQUET, header, panel.times, tables)
        else:
            with (directory / SERIES).open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(_rows(header, panel.times, tables))
        if generations:
            write_generations(directory / TRACES, generations)
        lines = [json.dumps(_change(change), ensure_ascii=False, default=repr) + "\n" for change in changes]
        (directory / CHANGES).write_text("".join(lines), encoding="utf-8", newline="\n")
        manifest = Manifest(
            version=VERSION,
            step_seconds=panel.step_seconds,
            services={
                name: ServiceEntry(
                    window_seconds=series.window_seconds,
                    depends_on=panel.dependencies.get(name, ()),
                    controls=panel.controls.get(name),
                    thresholds=dict((thresholds or {}).get(name, {})),
                )
                for name, series in panel.services.items()
            },
            warnings=tuple(warnings),
        )
        # Last, because a folder without it is no bundle: a write that broke off is not taken for one.
        (directory / MANIFEST).write_text(
            manifest.model_dump_json(indent=2, exclude_defaults=True) + "\n", encoding="utf-8"
        )
    except OSError as error:
        raise UsageError(
            f"{error.filename or directory}: can't be written: {error.strerror}",
            hint="Name a folder that can be written.",
        ) from error


def demand_folder(directory: Path) -> None:
    """Make the folder of a bundle where it is missing.

    Raises:
        UsageError: it holds something else, or can't be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = any(directory.iterdir())
    except OSError as error:
        raise UsageError(
            f"{error.filename or directory}: can't be written: {error.strerror}",
            hint="Name a folder that can be written.",
        ) from error
    if found and not (directory / MANIFEST).exists():
        raise UsageError(
            f"{directory}: is not empty and holds no {MANIFEST}",
            hint="Name a new folder, or an older bundle.",
        )


def quantile_column(quantile: float) -> str:
    """``p99_seconds`` for 0.99."""
    return f"p{round(quantile * 100, 9):g}_seconds"


def bucket_column(bound: float) -> str:
    """``bucket_0.5``; ``bucket_inf`` for the last one."""
    return f"bucket_{_number(float(bound))}"


def _columns(series: ServiceSeries) -> dict[str, Any]:
    columns: dict[str, Any] = {
        quantile_column(quantile): values
        for quantile, values in sorted(series.quantiles.items(), reverse=True)
    }
    columns |= dict(sorted(series.covariates.items()))
    if series.bucket_bounds is not None and series.bucket_counts is not None:
        columns |= {
            bucket_column(bound): series.bucket_counts[:, number]
            for number, bound in enumerate(series.bucket_bounds)
        }
    return columns


def _tables(panel: Panel) -> tuple[list[str], dict[str, FloatArray]]:
    """Names of the columns, and by service their values, shape (T, columns)."""
    by_service = {name: _columns(series) for name, series in sorted(panel.services.items())}
    seen = {column: None for columns in by_service.values() for column in columns}
    names = sorted(seen, key=_column_order)
    missing = np.full(len(panel.times), np.nan)
    tables = {
        service: np.stack([np.asarray(columns.get(name, missing), dtype=float) for name in names], axis=1)
        for service, columns in by_service.items()
        if names
    }
    return names, tables


def _rows(names: list[str], times: FloatArray, tables: Mapping[str, FloatArray]) -> Iterator[list[str]]:
    yield ["time", "service", *names]
    for row, time in enumerate(times):
        for service, table in tables.items():
            yield [_number(float(time)), service, *(_number(float(value)) for value in table[row])]


def _column_order(name: str) -> tuple[int, float, str]:
    """Quantiles, then covariates, then buckets by bound."""
    if name.startswith("bucket_"):
        return 2, float(name.removeprefix("bucket_")), name
    return (0 if name.endswith("_seconds") else 1), 0.0, name


def _number(value: float) -> str:
    """The shortest text that is read back as the same float; empty for NaN."""
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


def _change(change: ParameterChange) -> dict[str, Any]:
    line: dict[str, Any] = {"service": change.service, "parameter": change.parameter}
    for name in ("old", "new"):
        value = getattr(change, name)
        if value is not UNSET:
            line[name] = value
    line |= {"first_seen": change.first_seen, "last_seen": change.last_seen, "source": change.source.value}
    line |= {"workers": change.workers}
    optional = {
        "scope": change.scope,
        "origin": change.origin,
        "effective_at": change.effective_at,
        "shares": change.shares,
    }
    return line | {name: value for name, value in optional.items() if value not in ("", None)}
