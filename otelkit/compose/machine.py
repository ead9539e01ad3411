"""What this machine has: who listens on a port, how much memory and disk is left."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import socket
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_LISTENING: Final = "0A"
_MIB: Final = 1 << 20


def port_error(port: int) -> OSError | None:
    """Why nothing can listen on ``port`` of 127.0.0.1; None when it is free."""
    with socket.socket() as probe:
        # As servers do: a port whose last connections are still closing is free to listen on.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError as error:
            return error
    return None


def port_problem(port: int) -> str:
    """The same as a sentence's end: ``is taken by python3 (process 4711)``; empty when it is free."""
    error = port_error(port)
    if error is None:
        return ""
    if error.errno == errno.EADDRINUSE:
        return f"is taken by {listener(port) or 'a process of another user'}"
    return f"can't be listened on: {error.strerror}"


def listener(port: int, proc: Path = Path("/proc")) -> str:
    """Name and id of the process that listens on ``port``, as far as this user may see it; else empty."""
    inodes = {inode for table in ("tcp", "tcp6") for inode in _listening(proc / "net" / table, port)}
    if not inodes:
        return ""
    for process in proc.glob("[0-9]*"):
        # Processes end, and those of others can't be looked into.
        with contextlib.suppress(OSError):
            for descriptor in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    target = str(descriptor.readlink())
                    if target.startswith("socket:[") and target[8:-1] in inodes:
                        name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                        return f"{name} (process {process.name})"
    return ""


def _listening(table: Path, port: int) -> list[str]:
    """Inodes of the sockets of a /proc/net table that listen on ``port``."""
    try:
        lines = table.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return []
    found = []
    for line in lines:
        fields = line.split()
        if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
            found.append(fields[9])
    return found


def is_running(process: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process runs: not one that has ended and that its parent has not yet taken notice of."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError):
        # Its name, in brackets, may hold anything.
        stat = (proc / str(process) / "stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
    return True


def available_memory_mib(proc: Path = Path("/proc")) -> int | None:
    """Memory that new programs can have, in MiB; None on systems that do not say."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        text = (proc / "meminfo").read_text(encoding="ascii")
        line = next(line for line in text.splitlines() if line.startswith("MemAvailable:"))
        return int(line.split()[1]) // 1024
    return None


def free_disk_mib(path: Path) -> int | None:
    """Space left where ``path`` is or would be, in MiB; None where that can't be seen."""
    existing = next((one for one in (path, *path.absolute().parents) if one.exists()), None)
    if existing is None:
        return None
    try:
        return shutil.disk_usage(existing).free // _MIB
    except OSError:
        return None
