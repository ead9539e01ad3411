"""Bundles as Parquet, what they keep besides series, and times and units that make no sense."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from test_query_bundle import CHANGES, assert_same_panel, bundle, problems_of, sample_panel

from otelkit.errors import UsageError
from otelkit.model import CallSite, Generation, SpanIdentity
from otelkit.query import units
from otelkit.query.bundle import write_bundle
from otelkit.query.bundle_reader import read_bundle
from otelkit.query.panel import ServiceSeries

CALL = Generation(
    CallSite("chat", "openai", "chat", "small"),
    start_ns=1_790_000_000_000_000_000,
    end_ns=1_790_000_001_000_000_000,
    step_ns=[1_790_000_000_400_000_000, 1_790_000_001_000_000_000],
    streamed=True,
    parameters={"max_tokens": 2, "temperature": 0.5, "stop_sequences": ["."]},
    output_tokens=2,
    span=SpanIdentity(trace_id=7, span_id=9, sampled=True),
)


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_everything_comes_back_in_both_forms(tmp_path: Path, form: str) -> None:
    """Broken if a replayed incident lost its controls, thresholds, warnings or calls, or a digit."""
    panel = replace(sample_panel(), controls={"chat": ()})
    kept = {"warnings": ["partial"], "thresholds": {"chat": {"max_tokens": 0.12}}, "generations": [CALL]}
    write_bundle(tmp_path, panel, CHANGES, form=form, **kept)  # type: ignore[arg-type]
    assert (tmp_path / f"series.{form}").exists()
    read = read_bundle(tmp_path)
    assert_same_panel(read.panel, panel)
    assert read.panel.controls == {"chat": ()}
    assert read.changes == CHANGES
    assert read.thresholds == {"chat": {"max_tokens": 0.12}}
    assert read.generations == (CALL,)
    assert read.warnings[0] == "partial"


def test_a_bundle_in_another_form_replaces_the_older_one(tmp_path: Path) -> None:
    """Broken if two forms of the series stood side by side, or calls of an older incident stayed."""
    write_bundle(tmp_path, sample_panel(), CHANGES, generations=[CALL])
    write_bundle(tmp_path, sample_panel(), CHANGES, form="parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bundle.json",
        "changes.jsonl",
        "series.parquet",
    ]


def test_without_pyarrow_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if a user without the extra saw an ImportError, or an emptied folder."""
    write_bundle(tmp_path, sample_panel(), CHANGES, form="parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for act in (
        lambda: read_bundle(tmp_path),
        lambda: write_bundle(tmp_path, sample_panel(), CHANGES, form="parquet"),
    ):
        with pytest.raises(UsageError, match=r"pip install 'otelkit\[parquet\]'"):
            act()
    assert (tmp_path / "series.parquet").exists()


def test_parquet_of_others_is_read(tmp_path: Path) -> None:
    """Broken if a table as pandas writes it, with time stamps, integers and categories, were refused."""
    bundle(tmp_path, series="")
    (tmp_path / "series.csv").unlink()
    table = pa.table(
        {
            "time": pa.array([100_000_000, 110_000_000], pa.timestamp("us")),
            "service": pa.array(["chat", "chat"]).dictionary_encode(),
            "p99_seconds": pa.array([1, None], pa.int64()),
        }
    )
    parquet.write_table(table, tmp_path / "series.parquet")
    panel = read_bundle(tmp_path).panel
    assert panel.times.tolist() == [100.0, 110.0]
    np.testing.assert_array_equal(panel.services["chat"].quantiles[0.99], [1.0, np.nan])


def test_all_faults_of_a_parquet_file_are_told_at_once(tmp_path: Path) -> None:
    """Broken if Parquet were checked less than CSV, or only the first fault told."""
    bundle(tmp_path, series="", changes="{]\n")
    (tmp_path / "series.csv").unlink()
    table = pa.table(
        {
            "time": [100.0, 100.0, 1.79e12, None],
            "service": ["chat", "chat", "chat", "nobody"],
            "p99_seconds": [1.0, 2.0, 3.0, -1.0],
        }
    )
    parquet.write_table(table, tmp_path / "series.parquet")
    found = problems_of(tmp_path)
    for expected in (
        "series.parquet:3: the same time and service stand in line 2",
        "series.parquet:4: time: 1790000000000.0 is too large for Unix seconds; is it in milliseconds?",
        "series.parquet:5: time: None is no number of Unix seconds",
        "series.parquet:5: service: 'nobody' is not in bundle.json",
        "series.parquet:5: p99_seconds: -1.0 is no number of 0 or more",
    ):
        assert expected in found
    assert any(line.startswith("changes.jsonl:1: is not JSON") for line in found)


def test_a_file_that_is_no_parquet_and_two_forms_at_once_are_told(tmp_path: Path) -> None:
    """Broken if it were left to chance which of two files counts, or a broken one ended in a traceback."""
    bundle(tmp_path, series="time,service,p99_seconds\n100,chat,1\n")
    (tmp_path / "series.parquet").write_bytes(b"not that")
    found = problems_of(tmp_path)
    assert any(line.startswith("series.parquet: stands beside series.csv") for line in found)
    assert any(line.startswith("series.parquet: can't be read:") for line in found)


def test_rows_out_of_order_are_sorted_and_said(tmp_path: Path) -> None:
    """Broken if rows in any order gave another series, or nobody heard of it."""
    rows = "time,service,p99_seconds\n110,chat,2\n100,chat,1\n120,chat,3\n"
    read = read_bundle(bundle(tmp_path, series=rows))
    assert read.panel.services["chat"].quantiles[0.99].tolist() == [1.0, 2.0, 3.0]
    assert read.warnings == ("series.csv:3: rows are not in order of time; they were sorted",)


def test_a_service_after_another_is_in_order(tmp_path: Path) -> None:
    """Broken if a file that has one service after the other were called unsorted."""
    rows = "time,service,p99_seconds\n100,chat,1\n110,chat,1\n100,search,1\n110,search,1\n"
    services = {"chat": {"window_seconds": 60}, "search": {"window_seconds": 60}}
    assert read_bundle(bundle(tmp_path, series=rows, services=services)).warnings == ()


def test_milliseconds_among_seconds_are_told_with_their_line(tmp_path: Path) -> None:
    """Broken if a join of two sources in two units passed for an outage."""
    values = [0.41, 0.39, 0.44, 402, 0.4, 415]
    rows = "".join(f"{100 + 10 * n},chat,{value}\n" for n, value in enumerate(values))
    found = problems_of(bundle(tmp_path, series="time,service,p99_seconds\n" + rows))
    assert found == [
        "series.csv:5: service chat: p99_seconds: 2 of 6 values are about 1000 times the others: "
        "are they in milliseconds?"
    ]


def test_quantiles_in_another_unit_than_buckets_are_told(tmp_path: Path) -> None:
    """Broken if P99 in milliseconds were compared with buckets in seconds."""
    rows = "".join(f"{100 + 10 * n},chat,800,250,5,5,1\n" for n in range(9))
    header = "time,service,p99_seconds,p50_seconds,bucket_0.25,bucket_1,bucket_inf\n"
    found = problems_of(bundle(tmp_path, series=header + rows))
    assert len(found) == 2 and all(
        "times what the buckets say: is it in milliseconds?" in one for one in found
    )


@pytest.mark.parametrize(
    "values",
    [
        np.geomspace(0.01, 10, 50),
        np.concatenate([np.full(20, 0.01), [0.05, 0.3, 2.0], np.full(20, 10.0)]),
        np.full(9, 0.4),
        np.full(9, np.nan),
        np.array([0.0, 0.0, 0.4]),
        np.array([]),
    ],
    ids=["drift", "outage", "constant", "unknown", "zeros", "empty"],
)
def test_what_can_be_one_unit_is_no_contradiction(values: np.ndarray) -> None:
    """Broken if an outage that multiplies latency by a thousand could not be explained for "mixed units"."""
    assert units.contradictions(ServiceSeries("chat", {0.99: values}, 60.0)) == []


def test_quantiles_that_can_not_be_each_others_are_told() -> None:
    """Broken if P50 in milliseconds beside P99 in seconds went unnoticed where there are no buckets."""
    series = ServiceSeries("chat", {0.99: np.full(9, 0.8), 0.5: np.full(9, 250.0)}, 60.0)
    assert [one.sentence for one in units.contradictions(series)] == [
        "p50_seconds is about 312 times p99_seconds: is one of them in milliseconds?"
    ]
