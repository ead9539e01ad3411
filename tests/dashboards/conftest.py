"""One Prometheus with an hour of history, and Grafana's npm packages, for all tests of dashboards."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from dashboards_history import FilledPrometheus, filled_prometheus

ROOT = Path(__file__).resolve().parents[2]
NODE = Path(__file__).parent / "node"


@pytest.fixture(scope="session")
def filled(
    prometheus_binary: Path, promtool_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[FilledPrometheus]:
    """A real Prometheus, filled through otelkit's own metrics code and rules."""
    with filled_prometheus(prometheus_binary, promtool_binary, tmp_path_factory.mktemp("filled")) as server:
        yield server


@pytest.fixture(scope="session")
def node_packages(missing: Callable[[str], NoReturn]) -> Path:
    """Folder in which Grafana's npm packages are installed, and the scripts that use them.

    Kept in ``.cache`` between runs; installed anew when the lock file changes.
    """
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        missing("no node and npm on PATH: Grafana's own transformations and types are not checked")
    sources = sorted(path for path in NODE.iterdir() if path.is_file())
    key = hashlib.sha256((NODE / "package-lock.json").read_bytes()).hexdigest()[:12]
    folder = ROOT / ".cache" / "dashboards-node" / key
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for source in sources:
            shutil.copy(source, folder)
        done = subprocess.run(
            [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            missing(f"npm could not install Grafana's packages: {done.stderr.strip()[-300:]}")
        (folder / "ready").touch()
    for source in sources:
        shutil.copy(source, folder)
    return folder
