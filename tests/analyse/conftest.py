"""A Prometheus with history, rules, and the analyser's page as a target; and the dashboards' test helpers."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from analyse_history import Scene, Scripted, change, fill, free_port, openmetrics, prometheus

from otelkit.spec import Spec

sys.path.append(str(Path(__file__).parents[1] / "dashboards"))


def services(now: float) -> list[Scripted]:
    """``chat`` got three times slower with its first change, ``search`` and ``web`` did nothing."""
    chat = Scripted(
        "chat",
        at=now - 2400,
        factor=3.0,
        changes=(
            change("chat", "max_tokens", 64, 256, now - 2400),
            change("chat", "temperature", 0.7, 0.9, now - 4500),
            change("chat", "seed", 1, 2, now - 30),
        ),
    )
    return [chat, Scripted("search"), Scripted("web")]


@pytest.fixture(scope="module")
def scene(
    prometheus_binary: Path, promtool_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """A real Prometheus that scrapes the analyser's page each second, once there is one."""
    now, directory = time.time(), tmp_path_factory.mktemp("scene")
    fill(promtool_binary, directory, openmetrics(services(now), now - 7200, now - 1))
    port = free_port()
    with prometheus(prometheus_binary, directory, spec=Spec(), scrape=port) as server:
        yield Scene(server, port, now)
