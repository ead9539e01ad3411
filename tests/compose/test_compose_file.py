"""compose.yaml: confinement, ports, memory, order, and that what is mounted is there."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from otelkit.compose.engine import Compose, Docker
from otelkit.compose.layout import MEMORY_LIMIT_MIB, OLDEST_COMPOSE, PARTS, PROFILES, VOLUME_LABEL

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "compose"
_IMAGE = re.compile(r"\$\{([A-Z_]+_IMAGE):-([^}]+)\}")


def test_every_image_is_pinned_and_can_be_replaced(stack: dict[str, Any]) -> None:
    """Broken if a part took whatever is newest, or could not be had from another registry."""
    for name, service in stack.items():
        match = _IMAGE.fullmatch(service["image"])
        assert match, f"{name}: {service['image']}"
        tag = match[2].rpartition(":")[2]
        assert tag[0].isdigit() or (tag[0] == "v" and tag[1].isdigit()), f"{name}: {match[2]}"


def test_containers_are_confined(stack: dict[str, Any]) -> None:
    """Broken if a part ran as root, could write its own system, gain rights, or reach the engine."""
    for name, service in stack.items():
        assert service["user"].split(":")[0] not in ("0", "root"), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "cap_add" not in service and "privileged" not in service, name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "docker.sock" not in str(service), name
        assert service["restart"] == "unless-stopped", name


def test_only_this_machine_reaches_the_stack(stack: dict[str, Any]) -> None:
    """Broken if a port was open to the network, or two parts wanted the same one."""
    published = [port for service in stack.values() for port in service.get("ports", ())]
    pattern = re.compile(r"127\.0\.0\.1:\$\{[A-Z_]+_PORT:-(\d+)\}:\1")
    numbers = [match[1] for port in published if (match := pattern.fullmatch(port))]
    assert len(numbers) == len(published) == len(set(numbers)), published


def test_the_whole_stack_fits_into_two_gibibytes(stack: dict[str, Any]) -> None:
    """Broken if a part had no limit, or all limits together promised more than the documented memory."""
    limits = [int(service["mem_limit"].removesuffix("m")) for service in stack.values()]
    assert sum(limits) <= MEMORY_LIMIT_MIB
    assert sum(limits) == sum(part.memory_mib for part in PARTS)


def test_go_programs_know_their_limit(stack: dict[str, Any]) -> None:
    """Broken if a garbage collector let its heap grow until the kernel kills the container."""
    for name in ("prometheus", "tempo", "otel-collector", "alertmanager"):
        goal = int(stack[name]["environment"]["GOMEMLIMIT"].removesuffix("MiB"))
        assert 0.7 < goal / int(stack[name]["mem_limit"].removesuffix("m")) < 0.95, name


def test_parts_wait_for_what_is_healthy(stack: dict[str, Any]) -> None:
    """Broken if a part waited for the health of one that has no healthcheck: it would never start."""
    for name, service in stack.items():
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in stack[needed], f"{name} waits for {needed}"
            if not set(service["profiles"]) <= set(stack[needed]["profiles"]):
                assert how["required"] is False, f"{name} can't start without {needed}"
    assert set(stack) - {"otel-collector", "load"} == {n for n, s in stack.items() if "healthcheck" in s}
    assert {p for service in stack.values() for p in service["profiles"]} == set(PROFILES)


def test_what_is_written_has_a_place(stack: dict[str, Any], read_yaml: Callable[[str], Any]) -> None:
    """Broken if a named volume was undeclared, unlabelled, or did not belong to the part that writes it."""
    declared = read_yaml("compose.yaml")["volumes"]
    expected = {volume.name: volume.format for part in PARTS for volume in part.volumes}
    assert {name: one["labels"][VOLUME_LABEL] for name, one in declared.items()} == expected
    for part in PARTS:
        mounts = [one for one in stack[part.name]["volumes"] if isinstance(one, str)] if part.volumes else []
        for volume in part.volumes:
            by_name = [
                one["source"]
                for one in stack[part.name]["volumes"]
                if isinstance(one, dict) and "source" in one
            ]
            assert f"{volume.name}:{volume.mount}" in mounts or volume.name in by_name, part.name


def _mounts(service: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in service.get("volumes", ()) if isinstance(one, dict) and one["type"] == "bind"]


def test_mounted_folders_are_there_and_not_made_up(stack: dict[str, Any]) -> None:
    """Broken if a mount named a folder that nothing writes, which Docker would make, empty and root's."""
    for name, service in stack.items():
        for mount in _mounts(service):
            assert mount["read_only"] is True and mount["bind"] == {"create_host_path": False}, name
            source = re.sub(r"\$\{[A-Z_]+:-([^}]+)\}", r"\1", mount["source"])
            assert (COMMITTED / source).exists(), f"{name}: {source}"


def test_no_mount_lies_within_another(stack: dict[str, Any]) -> None:
    """Broken if a folder was mounted inside a read-only one: Docker can't make its mount point there."""
    for name, service in stack.items():
        targets = [mount["target"] for mount in _mounts(service)]
        for a, b in itertools.permutations(targets, 2):
            assert not Path(a).is_relative_to(b), f"{name}: {a} in {b}"


@pytest.fixture(scope="module")
def compose(missing: Callable[[str], NoReturn]) -> Compose:
    """The real Docker Compose, which needs no engine to read a file."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE_", "OTELKIT_"))}
    docker = Docker.found(environment)
    version = docker.compose_version() if docker else None
    if docker is None or version is None:
        missing("no `docker compose` on this machine; Debian's package is called docker-compose")
    if version < OLDEST_COMPOSE:
        missing(f"docker compose {version} is older than the stack allows")
    return Compose(docker, COMMITTED)


def test_compose_reads_what_is_generated(compose: Compose) -> None:
    """Broken if Compose refused the files, or .env did not start everything."""
    answer = compose.ask("config", "--services")
    assert answer.code == 0, answer.error
    assert set(answer.out.split()) == {part.name for part in PARTS}


def test_core_can_be_had_alone(compose: Compose) -> None:
    """Broken if a user with a service of their own had to start the demo too."""
    # What the environment says, even nothing, comes before .env.
    without = Docker(compose.docker.binary, {**(compose.docker.environment or {}), "COMPOSE_PROFILES": ""})
    answer = Compose(without, COMMITTED, (), ("core",)).ask("config", "--services")
    assert answer.code == 0, answer.error
    assert set(answer.out.split()) == {part.name for part in PARTS if "core" in part.profiles}


def test_the_overlay_leaves_out_what_the_user_has(compose: Compose) -> None:
    """Broken if the overlay started a second Prometheus or Grafana, or forgot where the user's is."""
    overlaid = Compose(compose.docker, COMMITTED, (COMMITTED / "compose.existing.yaml",))
    refused = overlaid.ask("config", "--quiet")
    assert refused.code and "address of your Prometheus" in refused.error
    environment = {**(compose.docker.environment or {}), "PROMETHEUS_URL": "http://prom.example:9090"}
    done = subprocess.run(
        overlaid.command("config"), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not re.search(r"^  (prometheus|grafana|alertmanager):$", done.stdout, re.MULTILINE)
    assert "--prometheus=http://prom.example:9090" in done.stdout
    assert "PROMETHEUS_URL: http://prom.example:9090" in done.stdout
