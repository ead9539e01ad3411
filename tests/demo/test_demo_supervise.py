"""Child processes: started, watched, and never left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from otelkit.compose.machine import HOST
from otelkit.demo.supervise import Supervisor, check_port, free_port
from otelkit.errors import OtelkitError, UsageError

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
# A child that ignores a polite end and has a child of its own.
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "inner = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print(inner.pid, flush=True)\n"
    "time.sleep(60)",
]


def alive(pid: int) -> bool:
    """Whether the process runs; one that has ended but was not yet collected by its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def gone(pid: int) -> bool:
    """Whether the process ends within a few seconds."""
    deadline = time.monotonic() + 5
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_children_end_with_the_block(tmp_path: Path) -> None:
    """Broken if leaving the block, also by an error, left a child running."""
    with pytest.raises(ZeroDivisionError), Supervisor(tmp_path) as supervisor:
        child = supervisor.start("sleeper", SLEEP)
        child.wait_until(lambda: "up" in child.log.read_text(), timeout=10)
        raise ZeroDivisionError
    assert not child.running


def test_grandchildren_and_stubborn_children_end_too(tmp_path: Path) -> None:
    """Broken if a child that ignores SIGTERM, or what it started itself, outlived the demo."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("stubborn", STUBBORN)
        child.wait_until(lambda: child.log.read_text().strip().isdigit(), timeout=10)
        inner = int(child.log.read_text())
        assert alive(inner)
        child.stop(grace=0.2)
    assert gone(child.pid) and gone(inner)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends children of a killed parent")
def test_children_end_when_the_demo_is_killed(tmp_path: Path) -> None:
    """Broken if SIGKILL (out of memory, a closed laptop session) left the model server running."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom otelkit.demo.supervise import Supervisor\n"
        "supervisor = Supervisor(Path(sys.argv[1]))\n"
        "sleep = 'import time; print(1, flush=True); time.sleep(60)'\n"
        "child = supervisor.start('sleeper', [sys.executable, '-c', sleep])\n"
        "child.wait_until(lambda: child.log.read_text() != '', timeout=10)\n"
        "print(child.pid, flush=True)\ntime.sleep(60)"
    )
    demo = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert demo.stdout is not None
    pid = int(demo.stdout.readline())
    assert alive(pid)
    demo.send_signal(signal.SIGKILL)
    demo.wait()
    demo.stdout.close()
    assert gone(pid)


def test_terminal_s_interrupt_does_not_reach_children(tmp_path: Path) -> None:
    """Broken if Ctrl-C ended the service before the demo had read what it recorded."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("sleeper", SLEEP)
        assert os.getpgid(child.pid) != os.getpgid(0)


def test_dead_child_is_named_with_its_last_words(tmp_path: Path) -> None:
    """Broken if a crash were only seen as a timeout, without its reason."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("model server", [sys.executable, "-c", "raise SystemExit('no such model')"])
        with pytest.raises(
            OtelkitError, match="the model server ended with exit code 1: no such model"
        ) as caught:
            child.wait_until(lambda: False, timeout=10)
        assert str(tmp_path / "model-server.log") in caught.value.hint
        with pytest.raises(OtelkitError, match="no such model"):
            supervisor.check()


def test_missing_program_is_named(tmp_path: Path) -> None:
    """Broken if a program that does not exist gave a traceback instead of its name."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("prometheus", ["/no/such/prometheus"])
        with pytest.raises(OtelkitError, match="/no/such/prometheus: No such file"):
            child.wait_until(lambda: False, timeout=10)


def test_child_that_is_never_ready_is_an_error(tmp_path: Path) -> None:
    """Broken if the demo waited for ever."""
    with Supervisor(tmp_path) as supervisor:
        child = supervisor.start("sleeper", SLEEP)
        with pytest.raises(OtelkitError, match="the sleeper was not ready within"):
            child.wait_until(lambda: False, timeout=0.2)


def test_port_in_use_is_refused_with_its_option() -> None:
    """Broken if a port in use surfaced later, as a crash of some child."""
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"--metrics-port {port}: can't listen.*in use") as caught:
            check_port(port, option="--metrics-port")
        assert caught.value.exit_code == 2 and "leave --metrics-port out" in caught.value.hint
    check_port(free_port(), option="--metrics-port")
