"""One Prometheus with an hour of history for all tests of dashboards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboards_history import FilledPrometheus, filled_prometheus


@pytest.fixture(scope="session")
def filled(
    prometheus_binary: Path, promtool_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledPrometheus]:
    """A real Prometheus, filled through otelkit's own metrics code and rules."""
    with filled_prometheus(prometheus_binary, promtool_binary, tmp_path_factory.mktemp("filled")) as server:
        yield server
