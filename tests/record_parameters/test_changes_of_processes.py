"""Several processes on one page, in prometheus multiprocess mode: a rollout is one change."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from otelkit import semconv
from otelkit.query.merge import Report, merge_reports

SERVER = """
    import os, time, urllib.request
    import otelkit
    from otelkit import parameters

    leave, left = os.pipe()
    told, tell = os.pipe()
    for number in range(3):
        if not os.fork():
            break
    else:
        number = None
    handle = otelkit.instrument()
    if number is None:
        for _ in range(3):
            os.read(told, 1)
        page = lambda: urllib.request.urlopen(handle.metrics_url).read().decode()
        for _ in range(300):  # a process writes its files every few seconds, also when its calls have ended
            during = page()
            if during.count('parameter="max_tokens",pid=') == 6:
                break
            time.sleep(0.1)
        os.write(left, b"...")
        for _ in range(3):
            assert os.wait()[1] == 0
        print(during, page(), sep="----")
    else:
        def call():
            limit = parameters.get("max_tokens")
            list(otelkit.watch(iter("abc"), model="tiny", parameters={"max_tokens": limit}))

        parameters.register("max_tokens", 256)
        for _ in range(8):
            call()
        parameters.set("max_tokens", 512)
        for _ in range(24):
            call()
        handle.flush()
        os.write(tell, b".")
        os.read(leave, 1)
"""


def samples(page: str, name: str) -> list[Any]:
    return [
        sample
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name
    ]


def test_a_rollout_over_processes_on_one_page_is_one_change(tmp_path: Path) -> None:
    """Broken: workers that share a page make as many changes as there are of them, with no rollout; or a
    worker that has ended goes on to use what it used, so that the fleet never has the value of a deploy."""
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SERVER)],
        env={
            **os.environ,
            "PROMETHEUS_MULTIPROC_DIR": str(tmp_path),
            "OTEL_EXPORTER_PROMETHEUS_PORT": "0",
            "OTEL_SERVICE_NAME": "chat",
        },
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    during, after = run.stdout.split("----")
    assert len({sample.labels["pid"] for sample in samples(during, semconv.METRIC_PARAMETER_SETTLED)}) == 3
    assert samples(after, semconv.METRIC_PARAMETER_SETTLED) == []
    for page in (during, after):
        reports = [
            Report(("job", "page", sample.labels["pid"]), sample.labels, sample.value)
            for sample in samples(page, semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP)
        ]
        (change,) = merge_reports(reports)
        assert (change.old, change.new, change.workers) == (256, 512, 3)
