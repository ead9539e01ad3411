"""`otelkit stack up --local`, for real: Prometheus, Alertmanager and the analyser as processes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_docker import free_ports

from otelkit.demo.local import forget
from otelkit.demo.prometheus import find_tool
from otelkit.demo.supervise import free_port

ROOT = Path(__file__).resolve().parents[2]
OTELKIT = Path(sys.executable).with_name("otelkit")
# Debian's Alertmanager looks for its template in /usr/share alone. Where this user may, it gets a view of the
# file system in which the unpacked one lies there.
_ALERTMANAGER = """\
#!/bin/sh
exec unshare --mount sh -c '
mount -t overlay overlay -o "lowerdir={share}:/usr/share" /usr/share && exec {binary} "$@"
' sh "$@"
"""

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Local:
    """A stack without Docker that a test has started."""

    process: subprocess.Popen[bytes]
    data: Path
    directory: Path
    environment: dict[str, str]

    def stack(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [OTELKIT, "stack", *arguments, "--local", f"--directory={self.directory}"],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )

    def parts(self) -> dict[str, Any]:
        try:
            parts: dict[str, Any] = json.loads((self.data / "stack.json").read_text())["parts"]
        except (OSError, ValueError):
            return {}
        return parts

    def said(self) -> str:
        return (self.directory.parent / "said").read_text()

    def prometheus(self, path: str, **parameters: str) -> Any:
        url = f"http://127.0.0.1:{self.environment['PROMETHEUS_PORT']}/api/v1/{path}"
        answer = httpx.get(url, params=parameters, timeout=10, trust_env=False)
        answer.raise_for_status()
        return answer.json()["data"]

    def until(self, what: Callable[[], bool]) -> None:
        """Wait until ``what`` holds; a server that is away for a moment does not answer yes."""
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                if what():
                    return
            assert self.process.poll() is None, self.said()
            time.sleep(0.2)
        pytest.fail(f"not within four minutes; the stack said:\n{self.said()}")


def _own_alertmanager(folder: Path) -> None:
    """Put an Alertmanager on PATH that starts without its package being installed, where that can be had."""
    binary = find_tool("prometheus-alertmanager")
    if binary is None or Path("/usr/share/prometheus/alertmanager/default.tmpl").exists():
        return
    wrapper = folder / "alertmanager"
    wrapper.write_text(_ALERTMANAGER.format(share=binary.parents[1] / "share", binary=binary))
    wrapper.chmod(0o755)


@pytest.fixture(scope="module")
def local(prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """The profiles core and alerts, on a copy of the committed files."""
    folder = tmp_path_factory.mktemp("local")
    directory = folder / "compose"
    shutil.copytree(ROOT / "compose", directory, ignore=shutil.ignore_patterns(".local"))
    (folder / "bin").mkdir()
    _own_alertmanager(folder / "bin")
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE_", "OTELKIT_"))},
        **free_ports(),
        "COLLECTOR_METRICS_PORT": str(free_port()),
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
    }
    command = [OTELKIT, "stack", "up", "--local", f"--directory={directory}"]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            [*command, "--profile=core", "--profile=alerts"], env=environment, stdout=said, stderr=said
        )
    running = Local(process, directory / ".local", directory, environment)
    try:
        running.until(lambda: "everything that is here runs" in running.said())
        yield running
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()


def test_what_is_here_runs_and_what_is_missing_is_said(local: Local) -> None:
    """Broken if a program that is there was not started, or one that is not kept the others from it."""
    shown = local.stack("status")
    # Only what was left out, as it could not be started, is not well.
    assert shown.returncode == int("left out" in shown.stdout)
    assert {"prometheus", "analyser"} <= {line.split()[0] for line in shown.stdout.splitlines()}
    for name in ("tempo", "grafana"):
        assert name in local.parts() or f"note: {name}: no " in local.said()


def test_prometheus_scrapes_the_parts_and_evaluates_the_rules(local: Local) -> None:
    """Broken if the configuration that containers get did not fit processes."""
    wanted = {"prometheus", "analyser"} | ({"alertmanager"} & set(local.parts()))

    def up() -> set[str]:
        series = local.prometheus("query", query="up == 1")["result"]
        return {one["metric"]["job"] for one in series}

    local.until(lambda: wanted <= up())
    down = local.prometheus("query", query="up == 0")["result"]
    assert not down, down
    groups = local.prometheus("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert {rule["name"] for rule in rules} >= {"service:p99_latency_seconds:quantile", "OtelkitHighLatency"}
    local.until(
        lambda: all(
            rule["health"] == "ok" for g in local.prometheus("rules")["groups"] for rule in g["rules"]
        )
    )


def test_prometheus_knows_its_alertmanager(local: Local) -> None:
    """Broken if alerts were sent nowhere though an Alertmanager runs, or somewhere where none does."""
    found = local.prometheus("alertmanagers")["activeAlertmanagers"]
    if "alertmanager" in local.parts():
        local.until(lambda: len(local.prometheus("alertmanagers")["activeAlertmanagers"]) == 1)
    else:
        assert "alertmanager" in local.said() and not found


def test_only_one_stack_on_a_folder(local: Local) -> None:
    """Broken if a second stack wrote into the first one's data."""
    second = local.stack("up", "--no-checks", "--profile=core")
    assert second.returncode == 2 and "is running on this folder already" in second.stderr


def test_reload_takes_up_targets_and_rules(local: Local) -> None:
    """Broken if a changed spec or target needed a restart, which would leave a gap."""
    port = local.environment["ANALYSER_PORT"]
    targets = local.directory / "prometheus" / "targets" / "services.yaml"
    targets.write_text(f"- targets: ['127.0.0.1:{port}']\n")
    (local.directory / "prometheus" / "rules" / "mine.rules.yaml").write_text(
        "groups: [{name: mine, rules: [{record: mine, expr: vector(1)}]}]\n"
    )
    before = {name: part["pid"] for name, part in local.parts().items()}
    assert local.stack("reload").returncode == 0
    local.until(lambda: bool(local.prometheus("query", query="mine")["result"]))
    local.until(lambda: bool(local.prometheus("query", query='up{job="services"} == 1')["result"]))
    local.until(lambda: local.parts()["analyser"]["pid"] != before["analyser"])
    assert local.parts()["prometheus"]["pid"] == before["prometheus"]
    local.until(lambda: local.parts()["analyser"]["state"] == "running")


def test_reload_refuses_what_a_program_would_refuse(local: Local) -> None:
    """Broken if `reload` said it was done when Prometheus had refused the rules, or the spec had errors."""
    before = local.said()
    rules = local.directory / "prometheus" / "rules" / "bad.rules.yaml"
    rules.write_text("groups: [{name: bad, rules: [{record: bad, expr: 'sum('}]}]\n")
    refused = local.stack("reload")
    rules.unlink()
    if find_tool("promtool") is not None:
        assert refused.returncode == 2 and str(rules) in refused.stderr, refused.stderr
    spec = local.directory / "analyser" / "otelkit.yaml"
    text = spec.read_text()
    spec.write_text(f"{text}\nwindws: 3\n")
    refused = local.stack("reload")
    spec.write_text(text)
    assert refused.returncode == 2 and "did you mean 'windows'" in refused.stderr
    assert local.said() == before


def test_a_program_that_is_killed_comes_back_with_its_data(local: Local) -> None:
    """Broken if a crash of Prometheus ended the stack, or lost what had been recorded."""
    recorded = local.prometheus("query", query="min_over_time(timestamp(up{job='prometheus'})[1h:1s])")[
        "result"
    ]
    killed = local.parts()["prometheus"]["pid"]
    os.kill(killed, signal.SIGKILL)
    local.until(lambda: local.parts().get("prometheus", {"pid": killed})["pid"] != killed)
    query = "min_over_time(timestamp(up{job='prometheus'})[1h:1s])"
    local.until(lambda: bool(local.prometheus("query", query=query)["result"]))
    again = local.prometheus("query", query=query)["result"]
    assert abs(float(again[0]["value"][1]) - float(recorded[0]["value"][1])) < 2
    assert "It is started again." in local.said()


def test_down_ends_everything(local: Local) -> None:
    """Broken if a child outlived the stack. Comes last: it ends what the others use."""
    pids = [part["pid"] for part in local.parts().values()]
    done = local.stack("down")
    assert done.returncode == 0, done.stderr
    assert local.process.wait(timeout=120) == 0
    assert not [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]
    assert local.stack("status").returncode == 1
    again = local.stack("down")
    assert again.returncode == 1 and "no stack runs on this folder" in again.stderr


def test_only_what_the_stack_wrote_is_removed(tmp_path: Path) -> None:
    """Broken if `down --volumes` on a folder with other things in it removed those too."""
    (tmp_path / "prometheus" / "data").mkdir(parents=True)
    (tmp_path / "prometheus" / "rules").symlink_to(ROOT / "rules")
    (tmp_path / "letter.txt").write_text("mine")
    forget(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    assert (ROOT / "rules" / "latency.rules.yaml").is_file()
