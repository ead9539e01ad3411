"""Incident bundles: what is written is read back the same, and faults are told with their lines."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from otelkit.errors import DataError, UsageError
from otelkit.model import UNSET, ChangeSource, ParameterChange
from otelkit.query.bundle import write_bundle
from otelkit.query.bundle_reader import read_bundle
from otelkit.query.panel import Panel, ServiceSeries

START = 1_790_000_000.25
STEPS = 40


def sample_panel() -> Panel:
    """Two services with different buckets and covariates, gaps, and numbers without a short decimal form."""
    random = np.random.default_rng(5)
    p99 = random.lognormal(-1, 0.3, STEPS)
    p99[4:7] = np.nan
    counts = random.poisson(3, (STEPS, 3)).astype(float)
    counts[4:7] = np.nan
    chat = ServiceSeries(
        "chat",
        {0.99: p99, 0.999: p99 * 2, 0.5: p99 / 3},
        30.0,
        np.array([0.1, 0.123456789, np.inf]),
        counts,
        {"arrivals": random.poisson(4, STEPS) / 3, "output_tokens": random.uniform(1, 99, STEPS)},
    )
    search = ServiceSeries(
        'se"arch,\n', {0.99: p99[::-1].copy()}, 60.0, None, None, {"queue_length": counts[:, 0]}
    )
    return Panel(
        START + 1.5 * np.arange(STEPS), 1.5, {"chat": chat, search.service: search}, {"chat": ("embed",)}
    )


CHANGES = (
    ParameterChange(
        "chat", "max_tokens", 256, 1024, START + 9, START + 12, "route /a", ChangeSource.CONTROL, 3
    ),
    ParameterChange(
        "chat", "seed", UNSET, None, START + 20, START + 20, origin="a\u2028b", effective_at=START + 21
    ),
    ParameterChange("chat", "stop", {"b": [1.5], "a": "ü\n"}, [], START + 30, START + 30),
)


def assert_same_panel(again: Panel, panel: Panel) -> None:
    """Equality of every array."""
    np.testing.assert_allclose(again.times, panel.times, rtol=0, atol=1e-6)
    assert again.step_seconds == panel.step_seconds
    assert again.dependencies == panel.dependencies
    assert set(again.services) == set(panel.services)
    for name, series in panel.services.items():
        read = again.services[name]
        assert read.window_seconds == series.window_seconds
        assert set(read.quantiles) == set(series.quantiles)
        for quantile, values in series.quantiles.items():
            np.testing.assert_array_equal(read.quantiles[quantile], values)
        assert set(read.covariates) == set(series.covariates)
        for covariate, values in series.covariates.items():
            np.testing.assert_array_equal(read.covariates[covariate], values)
        for one, other in (
            (read.bucket_bounds, series.bucket_bounds),
            (read.bucket_counts, series.bucket_counts),
        ):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                np.testing.assert_array_equal(one, other)


def test_a_bundle_is_read_back_exactly(tmp_path: Path) -> None:
    """A rounded number or a lost gap would give another verdict on replay than the one that was kept."""
    write_bundle(tmp_path / "incident", sample_panel(), CHANGES)
    again = read_bundle(tmp_path / "incident")
    assert_same_panel(again.panel, sample_panel())
    assert again.changes == CHANGES
    assert [warning for warning in again.warnings if "queue_length" not in warning] == []


def test_the_same_data_gives_the_same_bytes_and_replaces_an_older_bundle(tmp_path: Path) -> None:
    """Bundles are committed as tests: writing one again must not make a difference."""
    write_bundle(tmp_path, sample_panel(), CHANGES)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    write_bundle(tmp_path, sample_panel(), CHANGES[:1])
    write_bundle(tmp_path, sample_panel(), CHANGES)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    """A slip of the hand in --save must not mix a bundle into somebody's project."""
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is not empty and holds no bundle\.json"):
        write_bundle(tmp_path, sample_panel(), CHANGES)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    with pytest.raises(UsageError, match="can't be written"):
        write_bundle(tmp_path / "precious.txt", sample_panel(), CHANGES)


def bundle(directory: Path, *, series: str, changes: str = "", **manifest: object) -> Path:
    """A bundle as somebody would write it by hand."""
    fields = {"version": 1, "step_seconds": 10, "services": {"chat": {"window_seconds": 60}}} | manifest
    (directory / "bundle.json").write_text(json.dumps(fields))
    (directory / "series.csv").write_text(series)
    (directory / "changes.jsonl").write_text(changes)
    return directory


def problems_of(directory: Path) -> list[str]:
    """The lines of the error, without the folder."""
    with pytest.raises(DataError) as caught:
        read_bundle(directory)
    return [line.removeprefix(f"{directory}/") for line in caught.value.message.splitlines()]


def test_a_bundle_by_hand_may_be_short_and_unsorted(tmp_path: Path) -> None:
    """Rows from a spreadsheet come in any order, with gaps, with what is known and no more."""
    directory = bundle(
        tmp_path,
        series="time,service,p99_seconds\n130,chat,0.5\n100,chat,0.4\n\n110,chat,\n",
        changes='{"service": "chat", "parameter": "top_k", "new": 7, "first_seen": "1970-01-01T00:02Z"}\n\n',
    )
    read = read_bundle(directory)
    np.testing.assert_array_equal(read.panel.times, [100, 110, 120, 130])
    np.testing.assert_array_equal(read.panel.services["chat"].quantiles[0.99], [0.4, np.nan, np.nan, 0.5])
    (change,) = read.changes
    assert (change.old, change.new, change.first_seen, change.last_seen) == (UNSET, 7, 120.0, 120.0)


def test_missing_files_are_all_named(tmp_path: Path) -> None:
    """Whoever got half a bundle by mail wants to know at once what to ask for."""
    assert problems_of(tmp_path) == [
        f"{name}: can't be read: No such file or directory"
        for name in ("bundle.json", "series.csv", "changes.jsonl")
    ]


def test_every_malformed_line_is_named(tmp_path: Path) -> None:
    """Mending one line a run would make a hand-edited incident a long evening."""
    directory = bundle(
        tmp_path,
        series=(
            "time,service,p99_seconds,arrivals\n"
            "100,chat,0.5,3\n"
            "100,chat,0.6,3\n"  # a duplicate
            "103,chat,0.6,3\n"  # off the grid
            "110,chat,-1,fast\n"
            "120,chat,0.5\n"
            "noon,chat,0.5,3\n"
            "1790000000000,chat,0.5,3\n"
            "130,search,inf,3\n"
        ),
        changes=(
            '{"service": "chat", "parameter": "seed", "new": 7, "first_seen": 100}\n'
            "{broken\n"
            '{"service": "chat", "parameter": "seed", "new": 7}\n'
            '{"service": "chat", "parameter": "seed", "new": 7, "first_seen": 1790000000000}\n'
            '{"service": "chat", "parameter": "seed", "new": 7, "first_seen": "2026-03-01T14:00"}\n'
            '{"service": "chat", "parameter": "seed", "first_seen": 100, "sorce": "control"}\n'
            '{"service": "chat", "parameter": "seed", "first_seen": 100, "last_seen": 90}\n'
        ),
    )
    found = problems_of(directory)
    for expected in (
        "series.csv:3: the same time and service stand in line 2",
        "series.csv:4: time: 103.000 is not a whole number of steps of 10 s after 100.000",
        "series.csv:5: p99_seconds: '-1' is no number of 0 or more",
        "series.csv:5: arrivals: 'fast' is no number of 0 or more",
        "series.csv:6: has 3 cells, the header has 4",
        "series.csv:7: time: 'noon' is no number of Unix seconds",
        "series.csv:8: time: 1790000000000 is too large for Unix seconds; is it in milliseconds?",
        "series.csv:9: service: 'search' is not in bundle.json",
        "series.csv:9: p99_seconds: 'inf' is no number of 0 or more",
        "changes.jsonl:2: is not JSON: Expecting property name enclosed in double quotes at column 2",
        "changes.jsonl:3: first_seen: Field required",
        "changes.jsonl:6: sorce: Extra inputs are not permitted",
        "changes.jsonl:7: has neither old nor new",
        "changes.jsonl:7: last_seen: lies before first_seen",
    ):
        assert expected in found
    assert any(line.startswith("changes.jsonl:4: first_seen:") and "milliseconds" in line for line in found)
    assert any(
        line.startswith("changes.jsonl:5: first_seen:") and "offset from UTC" in line for line in found
    )


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("service,time,p99_seconds", "series.csv:1: must begin with the columns time,service"),
        ("time,service,p99_seconds,p99_seconds", "series.csv:1: column p99_seconds stands there twice"),
        (
            "time,service,bucket_0.5",
            "series.csv:1: has buckets but no bucket_inf, which counts the slowest calls",
        ),
        ("time,service,arrivals", "series.csv:1: has neither a quantile such as p99_seconds nor buckets"),
        ("time,service,p99_seconds,P 99", "series.csv:1: column 'P 99' has no name that otelkit knows"),
    ],
)
def test_a_wrong_header_is_told(tmp_path: Path, header: str, problem: str) -> None:
    """A column under another name would silently be left out of the verdict."""
    cells = ",1" * (header.count(",") - 1)
    assert problem in problems_of(bundle(tmp_path, series=f"{header}\n100,chat{cells}\n"))


def test_a_manifest_that_makes_no_sense_is_told_with_the_other_files_faults(tmp_path: Path) -> None:
    """The series can be checked without the manifest, so their faults belong in the same message."""
    services = {"chat": {"window_seconds": "wide", "depends": []}}
    directory = bundle(
        tmp_path, series="time,service,p99_seconds\nx,chat,1\n", step_seconds=0, services=services
    )
    found = problems_of(directory)
    assert any(line.startswith("bundle.json: step_seconds:") for line in found)
    assert any(line.startswith("bundle.json: services.chat.window_seconds:") for line in found)
    assert any(line.startswith("bundle.json: services.chat.depends:") for line in found)
    assert "series.csv:2: time: 'x' is no number of Unix seconds" in found
    bundle(tmp_path, series="time,service,p99_seconds\n100,chat,1\n", version=2)
    assert problems_of(tmp_path) == ["bundle.json: version: is 2; this otelkit reads version 1"]


def test_one_wrong_time_does_not_ask_for_all_memory(tmp_path: Path) -> None:
    """A zero among Unix times would otherwise make a grid of a hundred million steps."""
    directory = bundle(tmp_path, series="time,service,p99_seconds\n0,chat,1\n1790000000,chat,1\n")
    assert "is one wrong?" in problems_of(directory)[0]


def test_unused_columns_and_services_without_rows_are_warned_of(tmp_path: Path) -> None:
    """`arrival` for `arrivals` leaves load out of the verdict; the reader should hear of it."""
    directory = bundle(
        tmp_path,
        series="time,service,p99_seconds,arrival\n100,chat,1,2\n110,chat,1,2\n",
        services={"chat": {"window_seconds": 60}, "search": {"window_seconds": 60}},
    )
    warnings = read_bundle(directory).warnings
    assert "series.csv: column arrival is not used" in warnings[0]
    assert warnings[1] == "series.csv: has no row of service search, which bundle.json lists"
