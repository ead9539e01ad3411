"""The stack, started once for all tests of it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

import pytest
from stack_engine import IMAGES, PORTS, ROOT, Stack


@pytest.fixture(scope="session")
def engine(missing: Callable[[str], NoReturn]) -> None:
    """A Docker engine with Compose and the test images, on which processes of containers may be killed."""
    command = [str(ROOT / "scripts" / "with-tools"), "docker", "compose", "version"]
    for asked, lack in (
        (["docker", "info"], "no Docker engine answers here; as root, scripts/docker-engine starts one"),
        (command, "docker has no Compose here; scripts/docker-engine brings it"),
        (
            ["docker", "image", "inspect", *IMAGES.values()],
            "no test images; scripts/stack-images builds them",
        ),
    ):
        try:
            done = subprocess.run(asked, capture_output=True, check=False, timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            missing(lack)
        if done.returncode:
            missing(lack)
    if os.geteuid() != 0:
        missing("killing the processes of containers takes root")


@pytest.fixture(scope="session")
def stack(engine: None, model_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack but Tempo and Grafana, healthy."""
    with ExitStack() as probes:
        taken = [probes.enter_context(socket.socket()) for _ in PORTS]
        for probe in taken:
            probe.bind(("127.0.0.1", 0))
        ports = [int(probe.getsockname()[1]) for probe in taken]
    directory = tmp_path_factory.mktemp("stack")
    # Containers have users of their own, and pytest's folders are their owner's alone.
    for folder in (directory, *list(directory.parents)[:2]):
        folder.chmod(0o755)
    running = Stack.generated(directory, model_path, ports)
    try:
        running.compose("up", "--detach", "--wait", "--wait-timeout", "300")
        yield running
    finally:
        running.compose("down", "--volumes", "--timeout", "2")
