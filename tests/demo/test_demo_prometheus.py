"""The Prometheus that the demo finds, configures and starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from otelkit.demo import prometheus
from otelkit.demo.prometheus import Prometheus, checked, find_tool
from otelkit.demo.run import SPEC
from otelkit.demo.supervise import HOST, Supervisor, free_port
from otelkit.errors import UsageError
from otelkit.spec import parse_spec


def pretend(path: Path, says: str) -> Path:
    """A program that answers ``--version``."""
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


def test_tool_of_the_checkout_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if the Prometheus that `make demo` fetched lost against an older one on PATH."""
    fetched = tmp_path / ".tools" / "prometheus" / "usr" / "bin"
    fetched.mkdir(parents=True)
    on_path = tmp_path / "bin"
    on_path.mkdir()
    monkeypatch.setenv("PATH", str(on_path))
    monkeypatch.setattr(prometheus, "tools_directory", lambda: tmp_path / ".tools")
    assert find_tool("prometheus") is None
    pretend(on_path / "prometheus", "")
    assert find_tool("prometheus") == on_path / "prometheus"
    pretend(fetched / "prometheus", "")
    assert find_tool("prometheus") == fetched / "prometheus"
    monkeypatch.setattr(prometheus, "tools_directory", lambda: None)
    assert find_tool("prometheus") == on_path / "prometheus"


@pytest.mark.parametrize(
    ("says", "message"),
    [
        ("prometheus, version 2.42.0+ds (branch: debian)", r"version 2\.42\.0 is too old"),
        ("something else 3.0", "does not answer as Prometheus does"),
    ],
)
def test_other_programs_and_old_versions_are_refused(tmp_path: Path, says: str, message: str) -> None:
    """Broken if Debian 12's own Prometheus, whose ranges differ, were taken without a word."""
    with pytest.raises(UsageError, match=message):
        checked(pretend(tmp_path / "prometheus", says))
    (tmp_path / "plain").write_text("no program")
    with pytest.raises(UsageError, match="can't be started"):
        checked(tmp_path / "plain")


@pytest.mark.prometheus
def test_configuration_and_rules_are_valid(
    tmp_path: Path, prometheus_binary: Path, promtool_binary: Path
) -> None:
    """Broken if Prometheus refused what the demo writes, or did not load the recording rules."""
    logs = tmp_path / "logs"
    logs.mkdir()
    with Supervisor(logs) as supervisor:
        server = Prometheus.start(
            supervisor,
            checked(prometheus_binary),
            directory=tmp_path,
            spec=parse_spec(SPEC),
            target=f"{HOST}:{free_port()}",
            port=free_port(),
        )
        assert server.child.running
    done = subprocess.run(
        [promtool_binary, "check", "config", str(tmp_path / "prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    configuration = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    assert configuration["global"]["scrape_interval"] == "1s"
    text = "".join(path.read_text() for path in (tmp_path / "rules").iterdir())
    for name in ("service:p99_latency_seconds:quantile", "service:p99_latency_seconds:quantile_30s"):
        assert name in text
