"""What keeps the stack from running: each a sentence with the next step, by the real command."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import fake_docker
import pytest
from fake_docker import FakeDocker, free_ports

from otelkit.compose import machine
from otelkit.compose.doctor import Finding, Level, disk, examine
from otelkit.compose.layout import VOLUME_LABEL
from otelkit.compose.settings import Settings
from otelkit.demo import local, local_parts
from otelkit.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]
OTELKIT = Path(sys.executable).with_name("otelkit")


def doctor(
    path: Path | str,
    *,
    directory: Path = ROOT / "compose",
    profiles: tuple[str, ...] = (),
    memory: int | None = None,
    **environment: str,
) -> dict[str, Finding]:
    """Findings by check: the first problem, else the first."""
    environment = {**free_ports(), "PATH": str(path), **environment}
    settings = Settings(directory, environment)
    listed = examine(directory, settings, environment=environment, profiles=profiles, memory_mib=memory)
    findings: dict[str, Finding] = {}
    for one in listed:
        if one.check not in findings or findings[one.check].level is Level.OK:
            findings[one.check] = one
    return findings


def problems(found: Mapping[str, Finding]) -> list[str]:
    return [one.message for one in found.values() if one.level is Level.PROBLEM]


@pytest.fixture
def docker(tmp_path: Path) -> FakeDocker:
    """An engine as it should be."""
    return fake_docker.healthy(tmp_path / "bin")


def test_a_machine_as_it_should_be_has_no_findings(docker: FakeDocker) -> None:
    """Broken if a check cried wolf."""
    found = doctor(docker.folder)
    assert not problems(found)
    assert set(found) == {"engine", "compose", "memory", "ports", "volumes", "disk"}


def test_no_docker_at_all(tmp_path: Path) -> None:
    """Broken if a user without Docker was not told of the way without it."""
    found = doctor(tmp_path)
    assert "no docker command on PATH" in found["engine"].message
    assert "--local" in found["engine"].next_step


def test_the_engine_is_not_running(docker: FakeDocker) -> None:
    """Broken if Docker's own error was all that a user saw."""
    said = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
    docker.answers("version --format", error=said, code=1)
    found = doctor(docker.folder)
    assert found["engine"].message == "the Docker engine is not running"
    assert "systemctl start docker" in found["engine"].next_step


def test_no_rights_on_the_socket(docker: FakeDocker) -> None:
    """Broken if a user outside the group was told to start an engine that runs."""
    said = (
        "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
    )
    docker.answers("version --format", error=said, code=1)
    found = doctor(docker.folder)
    assert "no rights" in found["engine"].message and "usermod -aG docker" in found["engine"].next_step


def test_an_old_engine(docker: FakeDocker) -> None:
    """Broken if an engine that can't reach the machine by name was taken for good."""
    docker.answers("version --format", "19.03.15\n")
    found = doctor(docker.folder)
    assert "19.03.15 is too old" in found["engine"].message


@pytest.mark.parametrize(("said", "expected"), [("2.23.3", "2.23.3 is too old"), ("", "is not there")])
def test_an_old_or_missing_compose(docker: FakeDocker, said: str, expected: str) -> None:
    """Broken if a Compose that can't read the files failed with its own parse error."""
    docker.answers("compose version", said, code=0 if said else 1)
    found = doctor(docker.folder)
    assert expected in found["compose"].message and "2.24.4" in str(found["compose"])


def test_a_taken_port_names_who_has_it(docker: FakeDocker) -> None:
    """Broken if a user had to find out which program holds the port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = doctor(docker.folder, GRAFANA_PORT=str(port))
    message = found["ports"].message
    assert f"port {port} of 127.0.0.1, for grafana, is taken by" in message
    assert f"(process {os.getpid()})" in message
    assert "GRAFANA_PORT=" in found["ports"].next_step


def test_the_stacks_own_ports_are_not_taken(docker: FakeDocker) -> None:
    """Broken if the doctor of a running stack found that it stands in its own way."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        row = {"Service": "grafana", "State": "running", "Publishers": [{"PublishedPort": port}]}
        docker.answers("ps --all", json.dumps(row))
        found = doctor(docker.folder, GRAFANA_PORT=str(port))
    assert not problems(found)


def test_two_parts_on_one_port(docker: FakeDocker) -> None:
    """Broken if one number for two ports was found only by the second container that failed."""
    found = doctor(docker.folder, GRAFANA_PORT="31999", TEMPO_PORT="31999")
    assert "are both 31999" in found["ports"].message


def test_little_memory_and_what_would_fit(docker: FakeDocker) -> None:
    """Broken if a small machine began to start what the kernel would then kill."""
    found = doctor(docker.folder, memory=1900)
    assert "1900 MiB of memory are too little" in found["memory"].message
    assert "--profile core" in found["memory"].next_step
    assert not problems(doctor(docker.folder, memory=1900, profiles=("core",)))
    docker.answers("info --format", json.dumps({"MemTotal": 1 << 30}))
    assert "1024 MiB of memory" in doctor(docker.folder)["memory"].message


def test_volumes_of_another_version(docker: FakeDocker) -> None:
    """Broken if new programs were started on data that they can't read."""
    docker.answers("volume ls", "otelkit_tempo-data\notelkit_prometheus-data\n")
    volumes = [
        {"Name": "otelkit_tempo-data", "Labels": {VOLUME_LABEL: "tempo-2"}},
        {"Name": "otelkit_prometheus-data", "Labels": {VOLUME_LABEL: "prometheus-3"}},
    ]
    docker.answers("volume inspect", json.dumps(volumes))
    found = doctor(docker.folder)
    assert "otelkit_tempo-data holds tempo-2, not tempo-3" in found["volumes"].message
    assert "docker volume rm otelkit_tempo-data`" in found["volumes"].next_step


def test_another_folders_stack_of_the_same_name(docker: FakeDocker, tmp_path: Path) -> None:
    """Broken if `up` in a second checkout silently replaced the first one's containers."""
    neighbour = tmp_path / "other place"
    docker.answers("ps --filter", f"{neighbour}\n{ROOT / 'compose'}\n")
    assert "name" not in doctor(docker.folder)
    neighbour.mkdir()
    found = doctor(docker.folder)["name"]
    assert found.level is Level.PROBLEM and f"runs from {neighbour};" in found.message
    assert f"--directory '{neighbour}'" in found.next_step and "COMPOSE_PROJECT_NAME=" in found.next_step


def test_an_overlay_leaves_out_what_it_would_ask_for(docker: FakeDocker) -> None:
    """Broken if the port of the user's own Prometheus kept the stack from starting beside it."""
    docker.answers("config --services", "tempo\nanalyser\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = doctor(docker.folder, PROMETHEUS_PORT=str(server.getsockname()[1]))
    assert not problems(found)
    assert f"{400 + 192 + 256} MiB are needed" in found["memory"].message


def test_files_that_compose_refuses(docker: FakeDocker) -> None:
    """Broken if an edited compose.yaml was called fine."""
    docker.answers("config --services", error="yaml: line 3: mapping values are not allowed", code=15)
    found = doctor(docker.folder)["files"]
    assert found.level is Level.PROBLEM and "compose.yaml: yaml: line 3" in found.message


def test_no_profile_is_chosen(docker: FakeDocker) -> None:
    """Broken if an empty COMPOSE_PROFILES started nothing and called it a success."""
    assert "--profile core" in doctor(docker.folder, COMPOSE_PROFILES="")["profiles"].next_step
    settings = Settings(ROOT / "compose", {"COMPOSE_PROFILES": ""})
    assert any(one.check == "profiles" for one in local.examine(ROOT / "compose", settings))
    with pytest.raises(UsageError, match="no profile is chosen"):
        local.up(ROOT / "compose", docker.folder / "data", settings)


def test_an_alertmanager_without_its_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if Debian's Alertmanager was called fine, and then ended for want of a file."""
    share = tmp_path / "usr" / "share" / "prometheus" / "alertmanager"
    share.mkdir(parents=True)
    (share / "default.tmpl").touch()
    binary = tmp_path / "usr" / "bin" / "prometheus-alertmanager"
    monkeypatch.setattr(local_parts, "program", lambda part: binary)
    monkeypatch.setattr(local_parts, "_INSTALLED_SHARE", tmp_path / "none")
    assert "default.tmpl" in local_parts.template_missing()
    monkeypatch.setattr(local_parts, "_INSTALLED_SHARE", tmp_path / "usr" / "share")
    assert not local_parts.template_missing()


def test_processes_that_run_and_that_have_ended() -> None:
    """Broken if `status` called a process running that has ended and waits to be taken notice of."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        assert machine.is_running(os.getpid())
        while machine.is_running(ended.pid):
            pass
    assert not machine.is_running(ended.pid)


def test_disk_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Broken if a full disk was found only when Prometheus stopped recording."""
    levels = []
    for free in (100, 2000, 10_000):
        monkeypatch.setattr(machine, "free_disk_mib", lambda path, free=free: free)
        levels.append(disk(tmp_path).level.value)
    assert levels == ["problem", "warning", "ok"]


def test_files_that_containers_cannot_read(docker: FakeDocker, tmp_path: Path) -> None:
    """Broken if a strict umask made Prometheus end with a bare "permission denied"."""
    stack = tmp_path / "stack" / "compose"
    shutil.copytree(ROOT / "compose", stack)
    (tmp_path / "stack" / "dashboards").mkdir()
    (stack / "prometheus" / "prometheus.yml").chmod(0o600)
    found = doctor(docker.folder, directory=stack, OTELKIT_IMAGE="mine", OTELKIT_DEMO_IMAGE="mine")
    assert "prometheus.yml" in found["files"].message and "chmod -R o+rX" in found["files"].next_step


def test_files_that_are_missing(docker: FakeDocker, tmp_path: Path) -> None:
    """Broken if a folder without the files was a stack trace, or an error of Docker's."""
    found = doctor(docker.folder, directory=tmp_path)
    assert "otelkit generate compose" in found["files"].next_step


def run(docker: FakeDocker, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "OTELKIT_"))}
    return subprocess.run(
        [OTELKIT, "doctor", *arguments],
        cwd=ROOT,
        env={**own, **free_ports(), "PATH": str(docker.folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_port_that_is_no_number(docker: FakeDocker) -> None:
    """Broken if a slip of the pen in .env gave a stack trace."""
    done = run(docker, TEMPO_PORT="tempo")
    assert done.returncode == 2 and "TEMPO_PORT=tempo: is no port" in done.stderr


def test_the_command_tells_machines_and_people(docker: FakeDocker) -> None:
    """Broken if a script could not read what the doctor found, or a problem did not show in its exit code."""
    done = run(docker, "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 0 and document["version"] == 1 and document["ok"] is True
    assert {"check", "level", "message", "next_step"} == set(document["findings"][0])
    docker.answers("compose version", code=1)
    shown = run(docker)
    assert shown.returncode == 3
    assert "problem  compose  `docker compose` is not there" in shown.stdout
    assert "\n                  Install the Compose plugin" in shown.stdout


def test_without_docker_the_programs_are_looked_for(tmp_path: Path) -> None:
    """Broken if it was not said which programs are missing, and what is missed without them."""
    settings = Settings(ROOT / "compose", free_ports())
    found = local.examine(ROOT / "compose", settings, memory_mib=64)
    assert "64 MiB of memory are too little" in " ".join(one.message for one in found)
    missing = [one for one in found if one.check == "programs" and one.level is not Level.OK]
    for one in missing:
        assert " so " in one.message, one
    bare = local.examine(tmp_path, settings)
    assert any("otelkit generate compose" in one.next_step for one in bare)
