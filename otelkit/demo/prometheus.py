"""A Prometheus of the demo's own: found, configured with the generated rules, started, and its data kept
with the run."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import yaml

from otelkit import rules
from otelkit.compose.machine import HOST
from otelkit.demo.supervise import Child, Supervisor
from otelkit.errors import UsageError
from otelkit.spec import Spec

_VERSION: Final = re.compile(r"prometheus, version (\d+)\.(\d+)\.(\d+)")
_OLDEST: Final = 3


def tools_directory() -> Path | None:
    """The ``.tools`` folder of the checkout this package runs from; None when it is installed without one."""
    root = Path(__file__).resolve().parents[2]
    return root / ".tools" if (root / "pyproject.toml").is_file() else None


def find_tool(name: str) -> Path | None:
    """``prometheus`` or ``promtool``: from the checkout's ``.tools`` folder, else from PATH."""
    tools = tools_directory()
    if tools is not None:
        fetched = tools / "prometheus" / "usr" / "bin" / name
        if fetched.is_file():
            return fetched
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def checked(binary: Path) -> Path:
    """``binary``, if it is a Prometheus of version 3 or later, whose range selectors the in-process source
    shares.

    Raises:
        UsageError: it does not start, or is something else or older.
    """
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(
            f"{binary}: can't be started: {error}.", hint="Give --prometheus a Prometheus binary."
        ) from error
    version = _VERSION.search(done.stdout + done.stderr)
    if not version:
        raise UsageError(
            f"{binary}: `--version` does not answer as Prometheus does.",
            hint="Give --prometheus a Prometheus binary.",
        )
    if int(version[1]) < _OLDEST:
        raise UsageError(
            f"{binary}: version {'.'.join(version.groups())} is too old, {_OLDEST}.0 or later is needed.",
            hint="`make demo` fetches one; or leave Prometheus out: --no-prometheus",
        )
    return binary


class Prometheus:
    """A running Prometheus that scrapes one page every second."""

    def __init__(self, child: Child, url: str) -> None:
        self.child = child
        self.url = url

    @classmethod
    def start(
        cls, supervisor: Supervisor, binary: Path, *, directory: Path, spec: Spec, target: str, port: int
    ) -> Prometheus:
        """Write the configuration and the rules of ``spec`` into ``directory`` and start.

        Args:
            target: ``host:port`` of the /metrics page.

        Raises:
            OtelkitError: it did not become ready; the message holds its last words.
        """
        folder = directory / "rules"
        folder.mkdir()
        for name, text in rules.generate(spec).items():
            (folder / name).write_text(text, encoding="utf-8")
        configuration = directory / "prometheus.yml"
        configuration.write_text(
            yaml.safe_dump(_configuration(spec, target), sort_keys=False), encoding="utf-8"
        )
        return cls.reopen(supervisor, binary, directory=directory, port=port)

    @classmethod
    def reopen(cls, supervisor: Supervisor, binary: Path, *, directory: Path, port: int) -> Prometheus:
        """Start on the configuration and the data that ``directory`` holds already.

        Raises:
            OtelkitError: it did not become ready; the message holds its last words.
        """
        child = supervisor.start(
            "prometheus",
            [
                str(binary),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'prometheus-data'}",
                "--storage.tsdb.retention.time=30d",
                f"--web.listen-address={HOST}:{port}",
                "--enable-feature=exemplar-storage",
                "--log.level=warn",
            ],
        )
        server = cls(child, f"http://{HOST}:{port}")
        child.wait_until(server._ready, timeout=30)
        return server

    def exemplar_trace_ids(self, metric: str, start: float, end: float) -> set[str]:
        """Trace ids of the exemplars that Prometheus stored for ``metric`` between two Unix times."""
        answer = httpx.get(
            f"{self.url}/api/v1/query_exemplars",
            params={"query": metric, "start": start, "end": end},
            timeout=10,
        )
        answer.raise_for_status()
        return {
            exemplar["labels"]["trace_id"]
            for series in answer.json()["data"]
            for exemplar in series["exemplars"]
            if "trace_id" in exemplar["labels"]
        }

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/-/ready", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False


def _configuration(spec: Spec, target: str) -> Mapping[str, Any]:
    return {
        "global": {
            "scrape_interval": str(spec.scrape_interval),
            "scrape_timeout": str(spec.scrape_interval),
            "evaluation_interval": str(spec.evaluation_interval),
        },
        "rule_files": ["rules/*.yaml"],
        "storage": {"exemplars": {"max_exemplars": 100_000}},
        "scrape_configs": [{"job_name": "demo", "static_configs": [{"targets": [target]}]}],
    }
