"""Child processes that never outlive the demo.

Each child leads a process group of its own, so that Ctrl-C in the terminal reaches the demo alone, which
then ends the children in order, whole groups at a time. Should the demo itself be killed, Linux ends the
children for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from otelkit.compose.machine import HOST, port_error
from otelkit.errors import OtelkitError, UsageError

# Runs before the child's own program, in the child's process: asks Linux to kill it when its parent dies.
# PR_SET_PDEATHSIG (1) outlives exec. If the parent died before that, its process id is no longer ours.
# Other systems know no such request.
_TIED_TO_PARENT: Final = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]}: {error.strerror}")
"""


class Child:
    """One running child process; made by ``Supervisor.start``."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name = name
        self.log = log
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def last_words(self, lines: int = 3) -> str:
        """The end of the child's log, for an error message."""
        with contextlib.suppress(OSError):
            text = self.log.read_text(encoding="utf-8", errors="replace")
            written = [line.strip() for line in text.splitlines() if line.strip()]
            if written:
                return " | ".join(written[-lines:])
        return "it wrote nothing"

    def died(self) -> OtelkitError:
        """The error that says that this child ended when it should not have."""
        return OtelkitError(
            f"the {self.name} ended with exit code {self._process.poll()}: {self.last_words()}",
            hint=f"All it wrote is in {self.log}",
        )

    def wait_until(self, ready: Callable[[], bool], *, timeout: float) -> None:
        """Wait until ``ready()`` holds.

        Raises:
            OtelkitError: the child ended before, or ``timeout`` seconds went by.
        """
        deadline = time.monotonic() + timeout
        while not ready():
            if not self.running:
                raise self.died()
            if time.monotonic() > deadline:
                raise OtelkitError(
                    f"the {self.name} was not ready within {timeout:.0f} s: {self.last_words()}",
                    hint=f"All it wrote is in {self.log}",
                )
            time.sleep(0.05)

    def stop(self, *, grace: float = 8.0) -> None:
        """End the child and all that it started: politely, after ``grace`` seconds by force."""
        self._signal_group(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=grace)
        # Also after a polite end: the group may hold processes which the child left behind.
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class Supervisor:
    """Starts children, and ends all of them, last started first, when its ``with`` block is left in
    whatever way."""

    def __init__(self, log_directory: Path) -> None:
        self._log_directory = log_directory
        self._children: list[Child] = []

    def start(self, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None) -> Child:
        """Start ``command``; its stdout and stderr go to ``<name>.log`` in the log folder.

        Args:
            env: the child's whole environment; None is that of this process.

        Must be called from the main thread: Linux ties the child to the thread that starts it.
        """
        log = self._log_directory / f"{name.replace(' ', '-')}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _TIED_TO_PARENT, str(os.getpid()), *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                start_new_session=True,
            )
        child = Child(name, process, log)
        self._children.append(child)
        return child

    def stop(self, child: Child) -> None:
        """End one child before the others."""
        child.stop()
        self._children.remove(child)

    def check(self) -> None:
        """Raise if a child has ended by itself."""
        for child in self._children:
            if not child.running:
                raise child.died()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # An impatient second Ctrl-C must not leave the remaining children running.
        while self._children:
            child = self._children.pop()
            try:
                child.stop()
            except KeyboardInterrupt:
                child.stop(grace=0.0)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def check_port(port: int, *, option: str) -> None:
    """Make sure that nothing listens on ``port``.

    Args:
        option: the command line option it was given by, for the message.

    Raises:
        UsageError: the port is in use or not allowed to this user.
    """
    error = port_error(port)
    if error is not None:
        raise UsageError(
            f"{option} {port}: can't listen on {HOST}:{port}: {error.strerror}.",
            hint=f"End what uses it, give another port, or leave {option} out to have a free one chosen.",
        ) from error
