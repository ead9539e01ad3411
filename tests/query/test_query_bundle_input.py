"""Bundles as people write them: from spreadsheets, with times in ISO form, without any value."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from test_query_bundle import bundle, problems_of

from otelkit.query.bundle_reader import read_bundle


def test_a_service_without_any_value_is_still_there(tmp_path: Path) -> None:
    """Broken if a service whose scrapes all failed ended in a traceback instead of "too little data"."""
    rows = "time,service,p99_seconds\n100,chat,\n110,chat,nan\n"
    series = read_bundle(bundle(tmp_path, series=rows)).panel.services["chat"]
    assert list(series.quantiles) == [0.99] and np.isnan(series.quantiles[0.99]).all()


def test_what_spreadsheets_write_is_read(tmp_path: Path) -> None:
    """Broken if a byte order mark or other line ends made a correct file unreadable."""
    directory = bundle(tmp_path, series="")
    (directory / "series.csv").write_bytes(b"\xef\xbb\xbftime,service,p99_seconds\r\n100,chat,1\r\n")
    assert read_bundle(directory).panel.times.tolist() == [100.0]


def test_times_may_be_dates_with_an_offset(tmp_path: Path) -> None:
    """Broken if changes took dates and series did not, or one without an offset were guessed at."""
    rows = "time,service,p99_seconds\n1970-01-01T01:00:10+01:00,chat,1\n"
    assert read_bundle(bundle(tmp_path, series=rows)).panel.times.tolist() == [10.0]
    rows = "time,service,p99_seconds\n1970-01-01T01:00:10,chat,1\n"
    assert problems_of(bundle(tmp_path, series=rows))[0].startswith("series.csv:2: time:")


def test_seconds_too_many_to_be_believed_are_doubted(tmp_path: Path) -> None:
    """Broken if a whole file in milliseconds were taken for seconds without a word."""
    rows = "time,service,p99_seconds\n" + "".join(f"{100 + 10 * n},chat,{400 + n}\n" for n in range(9))
    (warning,) = read_bundle(bundle(tmp_path, series=rows)).warnings
    assert (
        warning.startswith("series.csv: service chat: p99_seconds lies about 404")
        and "milliseconds" in warning
    )
