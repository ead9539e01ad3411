"""A bundle's series as Parquet, through pyarrow, which only those need who use it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from otelkit.errors import UsageError
from otelkit.query.panel import FloatArray


def demand() -> None:
    """Say which extra brings pyarrow.

    Raises:
        UsageError: it is not installed.
    """
    if importlib.util.find_spec("pyarrow") is None:
        raise UsageError(
            "series as Parquet need pyarrow, which is not installed",
            hint="pip install 'otelkit[parquet]', or keep them as CSV.",
        )


def write(path: Path, names: Sequence[str], times: FloatArray, tables: Mapping[str, FloatArray]) -> None:
    """Write rows by time and service; what is not known is null.

    Args:
        names: of the columns of each table.
        tables: service -> values, shape (T, columns).

    Raises:
        OSError: the file can't be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    services = list(tables)
    columns: dict[str, Any] = {
        "time": pa.array(np.repeat(np.asarray(times, dtype=float), len(services))),
        "service": pa.array(services * len(times), pa.string()),
    }
    for column, name in enumerate(names):
        values = np.stack([table[:, column] for table in tables.values()], axis=1).reshape(-1)
        columns[name] = pa.array(values, pa.float64(), mask=np.isnan(values))
    parquet.write_table(pa.table(columns), path)


def read(path: Path) -> tuple[list[str], Iterator[list[Any]]]:
    """Names of the columns, and the rows; times are Unix seconds, nulls None.

    Raises:
        ValueError: the file is no Parquet, or holds what can't be cells.
        OSError: it can't be read.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        table = parquet.read_table(path)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        kind = column.type
        if pa.types.is_timestamp(kind):
            # Without a zone they are taken for UTC.
            ticks = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
            columns.append([None if tick is None else tick / 1e6 for tick in ticks])
        elif pa.types.is_dictionary(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
            columns.append(column.cast(pa.string()).to_pylist())
        elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            columns.append(column.to_pylist())
        else:
            raise ValueError(f"column {name} holds {kind}, which is neither number nor text")
    return list(table.column_names), (list(row) for row in zip(*columns, strict=True))
