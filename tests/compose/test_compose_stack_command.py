"""`otelkit stack` on a Docker that only says it is one: what it asks for, and what it tells the user."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fake_docker
import pytest
from fake_docker import FakeDocker, free_ports

from otelkit import compose
from otelkit.cli.main import main
from otelkit.spec import Spec

ROOT = Path(__file__).resolve().parents[2]
OTELKIT = Path(sys.executable).with_name("otelkit")


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    """An engine as it should be."""
    return fake_docker.healthy(tmp_path / "bin")


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Stack = Callable[..., Done]


@pytest.fixture
def stack(docker: FakeDocker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Stack:
    """`otelkit stack` with these arguments; in this process, for a new one takes its time to start."""
    for name in [name for name in os.environ if name.startswith(("COMPOSE_", "OTELKIT_"))]:
        monkeypatch.delenv(name)
    for name, value in {**free_ports(), "PATH": str(docker.folder)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)

    def call(*arguments: str | Path, **environment: str) -> Done:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        monkeypatch.setattr(sys, "argv", ["otelkit", "stack", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *capfd.readouterr())

    return call


def rows(**states: tuple[str, str]) -> str:
    return "".join(
        json.dumps({"Service": name, "State": state, "Health": health, "ExitCode": 0, "Publishers": []})
        + "\n"
        for name, (state, health) in states.items()
    )


def test_up_waits_for_health_and_keeps_the_password(docker: FakeDocker, stack: Stack, tmp_path: Path) -> None:
    """Broken if `up` came back before everything is healthy, or left the password readable by others."""
    directory = tmp_path / "compose"
    made = stack("up", "--directory", directory)
    assert made.returncode == 1 and "otelkit generate compose" in made.stderr
    for name, text in {**compose.generate(Spec(), ""), **compose.starters()}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    (tmp_path / "dashboards").mkdir()
    docker.answers(" up --detach", "")
    docker.answers("exec -T grafana cat", "secret24characters\n")
    done = stack("up", "--directory", directory, OTELKIT_IMAGE="mine")
    assert done.returncode == 0, done.stderr
    call = next(one for one in docker.calls() if "up" in one)
    assert call[:4] == ["compose", "--project-directory", str(directory), "-f"]
    assert call[call.index("up") + 1 : call.index("up") + 4] == ["--detach", "--wait", "--wait-timeout"]
    password = directory / ".grafana-admin-password"
    assert password.read_text() == "secret24characters\n" and password.stat().st_mode & 0o777 == 0o600
    assert "grafana         http://127.0.0.1:" in done.stdout and "secret" not in done.stdout + done.stderr


def test_up_says_which_part_is_not_well(docker: FakeDocker, stack: Stack) -> None:
    """Broken if a user had to find out by hand which container failed."""
    docker.answers(" up --detach", error="dependency failed to start", code=1)
    docker.answers("ps --all", rows(prometheus=("running", "healthy"), tempo=("running", "unhealthy")))
    done = stack("up", "--no-checks")
    assert done.returncode == 1
    assert "did not come up: tempo (unhealthy)" in done.stderr and "otelkit stack logs" in done.stderr


def test_up_stops_before_docker_where_the_doctor_finds_a_problem(docker: FakeDocker, stack: Stack) -> None:
    """Broken if what can be known beforehand was left to fail in the middle."""
    docker.answers("compose version", "2.10.0")
    docker.answers("info --format", json.dumps({"MemTotal": 1 << 30}))
    done = stack("up")
    assert done.returncode == 1
    assert "2.10.0 is too old" in done.stderr and "memory are too little" in done.stderr
    assert not any("up" in call for call in docker.calls())


def test_down_ends_every_profile_and_keeps_data(docker: FakeDocker, stack: Stack) -> None:
    """Broken if `down` removed what was recorded without being asked, or left the demo running."""
    docker.answers(" down ", "")
    docker.answers(" down --remove", "")
    assert stack("down").returncode == 0
    call = next(one for one in docker.calls() if "down" in one)
    assert call[call.index("--profile") + 1] == "*" and "--volumes" not in call
    asked = stack("down", "--volumes")
    assert asked.returncode == 130 and len([one for one in docker.calls() if "down" in one]) == 1
    assert stack("down", "--volumes", "--yes").returncode == 0
    assert "--volumes" in next(one for one in reversed(docker.calls()) if "down" in one)


def test_status_tells_states_and_fails_when_one_is_not_well(docker: FakeDocker, stack: Stack) -> None:
    """Broken if a script could not tell a healthy stack from a broken one."""
    assert stack("status").returncode == 1
    docker.answers("ps --all", rows(tempo=("running", "starting"), load=("running", "")))
    done = stack("status", "--format", "json")
    assert done.returncode == 1
    assert {one["name"]: (one["state"], one["well"]) for one in json.loads(done.stdout)["parts"]} == {
        "load": ("running", True),
        "tempo": ("starting", False),
    }
    docker.answers("ps --all", rows(tempo=("running", "healthy")))
    assert stack("status").returncode == 0


@pytest.mark.parametrize("verb", ["status", "reload"])
def test_an_engine_that_does_not_answer_is_not_an_empty_one(
    docker: FakeDocker, stack: Stack, verb: str
) -> None:
    """Broken if a user without rights on the socket was told that nothing runs."""
    docker.answers("ps --all", error="permission denied while trying to connect to the Docker daemon", code=1)
    done = stack(verb)
    assert done.returncode == 1 and "permission denied" in done.stderr and "otelkit doctor" in done.stderr


def test_reload_checks_before_it_asks(docker: FakeDocker, stack: Stack) -> None:
    """Broken if a configuration that a program refuses was loaded, or half of the stack reloaded."""
    everything = ("prometheus", "alertmanager", "otel-collector", "tempo", "grafana", "analyser")
    docker.answers("ps --all", rows(**dict.fromkeys(everything, ("running", "healthy"))))
    docker.answers("exec -T", "")
    docker.answers("exec -T prometheus", error="prometheus.yml: line 3: field jobs not found", code=1)
    refused = stack("reload")
    assert refused.returncode == 2 and "field jobs not found" in refused.stderr
    assert not any("SIGHUP" in call for call in docker.calls())
    docker.answers("exec -T prometheus", "SUCCESS")
    docker.answers("kill --signal SIGHUP", "")
    docker.answers("restart", "")
    done = stack("reload")
    assert done.returncode == 0, done.stderr
    signalled = [call[-1] for call in docker.calls() if "SIGHUP" in call]
    assert signalled == ["prometheus", "alertmanager", "otel-collector"]
    assert next(call for call in docker.calls() if "restart" in call)[-3:] == ["tempo", "grafana", "analyser"]


def test_logs_go_to_docker(docker: FakeDocker) -> None:
    """Broken if what Docker shows was not what the user sees."""
    docker.answers("logs --tail", "prometheus | ready\n")
    # It becomes Docker's process, so it must be one of its own.
    done = subprocess.run(
        [OTELKIT, "stack", "logs", "--tail", "5", "prometheus"],
        cwd=ROOT,
        env={**os.environ, "PATH": str(docker.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "prometheus | ready\n"
    assert docker.calls()[-1][-3:] == ["--tail", "5", "prometheus"]


def test_unknown_profile(docker: FakeDocker, stack: Stack) -> None:
    """Broken if a misspelt profile started nothing and said nothing."""
    done = stack("up", "--profile", "cor")
    assert done.returncode == 2 and "cor: is no profile of the stack" in done.stderr
