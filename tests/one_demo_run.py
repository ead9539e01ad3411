"""One run of the demo that all tests of a session share: it takes more than a minute."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from otelkit.demo.options import Options
from otelkit.demo.prometheus import Prometheus
from otelkit.demo.run import SPEC, Result, run
from otelkit.demo.script import BASE_SETTINGS, Moves, Script, ScriptedChange
from otelkit.demo.supervise import HOST, Supervisor, free_port
from otelkit.query import PrometheusSource, ScrapeSource
from otelkit.query.panel import Panel
from otelkit.query.traces import read_spans
from otelkit.spec import Spec, parse_spec

SECONDS: Final = 70.0
CHANGE_AT: Final = 35.0
LONG_ANSWERS: Final = 20
"""What ``max_tokens`` is raised to."""


@dataclass(frozen=True)
class DemoRun:
    """A finished run, and what each source says of it."""

    result: Result
    spec: Spec
    prometheus: Prometheus
    """Opened again on the data that the run left."""
    panel_of_prometheus: Panel
    panel_of_pages: Panel
    children_left: set[str]
    """Process ids of what the run started and did not end."""

    def truth(self) -> dict[str, Any]:
        """What the script did."""
        document: dict[str, Any] = json.loads((self.result.directory / "truth.json").read_text())
        return document

    def spans(self) -> list[dict[str, Any]]:
        """All spans that were received."""
        return list(read_spans(self.result.directory / "traces.jsonl"))


@contextlib.contextmanager
def one_demo_run(
    prometheus_binary: Path, model_path: Path, new_directory: Callable[[str], Path]
) -> Iterator[DemoRun]:
    """A run with one change in its middle, its page scraped by both sources."""
    script = Script(
        seconds=SECONDS,
        changes=(ScriptedChange(CHANGE_AT, "max_tokens", LONG_ANSWERS, Moves.UP),),
        surges=(),
        base=BASE_SETTINGS,
        utilisation=0.75,
        fewest_calls=80,
        longest_seconds=180.0,
    )
    spec = parse_spec(SPEC)
    metrics_port = free_port()
    before = _children()
    with ScrapeSource([f"http://{HOST}:{metrics_port}/metrics"], spec, interval=1.0) as pages:
        result = run(
            Options(
                output=new_directory("demo"),
                script=script,
                model=model_path,
                prometheus=prometheus_binary,
                metrics_port=metrics_port,
            )
        )
        left = _children() - before
        start, end = result.explanation.start, result.explanation.end
        panel_of_pages = pages.panel(["chat"], start, end, 1.0)
    with Supervisor(new_directory("logs")) as supervisor:
        server = Prometheus.reopen(
            supervisor, prometheus_binary, directory=result.directory, port=free_port()
        )
        with PrometheusSource(server.url, spec) as queried:
            panel_of_prometheus = queried.panel(["chat"], start, end, 1.0)
        yield DemoRun(result, spec, server, panel_of_prometheus, panel_of_pages, left)


def _children() -> set[str]:
    """Process ids of this process's children."""
    return {
        pid
        for task in Path(f"/proc/{os.getpid()}/task").iterdir()
        for pid in (task / "children").read_text().split()
    }
