"""The stack without Docker: its programs as processes, on the configuration that containers get."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

from otelkit.compose import layout, machine
from otelkit.compose.doctor import Finding, Level, another, disk, memory, nothing_chosen
from otelkit.compose.generate import SPEC_FILE
from otelkit.compose.settings import Settings
from otelkit.demo import local_configuration, local_parts
from otelkit.demo.local_parts import Ports, Program
from otelkit.demo.progress import say
from otelkit.demo.prometheus import tools_directory
from otelkit.demo.supervise import Child, Supervisor
from otelkit.errors import ConfigError, ModelUnavailable, OtelkitError, UsageError

STATE_FILE: Final = "stack.json"
_LOCK_FILE: Final = "lock"
_FOLDERS: Final = ("logs", "prometheus", "alertmanager", "collector", "tempo", "grafana", "demo")
_LOOK_EVERY_SECONDS: Final = 0.5
_DEATHS_ALLOWED: Final = 3
_WITHIN_SECONDS: Final = 120.0
_ENDING_SECONDS: Final = 120.0
_NEEDED: Final = (layout.PROMETHEUS, layout.ANALYSER)
"""Without these there is no stack."""
_FETCHED: Final = (layout.PROMETHEUS, layout.ALERTMANAGER)


def examine(
    directory: Path, settings: Settings, *, profiles: tuple[str, ...] = (), memory_mib: int | None = None
) -> list[Finding]:
    """Everything that the stack without Docker needs.

    Args:
        directory: the folder with the generated files.
        memory_mib: memory it may have; None asks the system.
    """
    parts = settings.parts(profiles)
    findings = []
    if not (directory / SPEC_FILE).is_file():
        findings.append(
            Finding(
                "files",
                Level.PROBLEM,
                f"{directory / SPEC_FILE}: is missing",
                f"Write it: `otelkit generate compose -o {directory}`; or name its folder: --directory DIR.",
            )
        )
    if not parts:
        findings.append(nothing_chosen(directory))
    findings += _programs(parts)
    there = _there(parts)
    ports = Ports.chosen(settings).wanted(there)
    taken = {name: problem for name, port in ports.items() if (problem := machine.port_problem(port))}
    findings += [
        Finding(
            "ports",
            Level.PROBLEM,
            f"port {ports[name]} of 127.0.0.1 {problem}",
            f"End that, or choose another: {name}={another(ports[name])} in the environment or in .env.",
        )
        for name, problem in taken.items()
    ]
    if ports and not taken:
        listed = ", ".join(str(port) for port in ports.values())
        findings.append(Finding("ports", Level.OK, f"ports {listed} can be had"))
    available = memory_mib if memory_mib is not None else machine.available_memory_mib()
    return [*findings, memory(there, available, more="Close other programs."), disk(directory)]


def _programs(parts: tuple[layout.Part, ...]) -> Iterator[Finding]:
    for part in parts:
        if part.name not in local_parts.NAMES:
            continue
        found = local_parts.program(part.name)
        lacks = local_parts.template_missing() if part is layout.ALERTMANAGER else ""
        if found is not None and not lacks:
            yield Finding("programs", Level.OK, f"{part.name}: {found}")
            continue
        fetched = tools_directory() is not None
        why = f"no {local_parts.NAMES[part.name][0]} {'in .tools or ' if fetched else ''}on PATH"
        step = "`make tools` fetches it." if fetched and part in _FETCHED else "Put one on PATH."
        yield Finding(
            "programs",
            Level.PROBLEM if part in _NEEDED else Level.WARNING,
            f"{part.name}: {f'{found}: {lacks}' if lacks else why}, so {local_parts.WITHOUT[part.name]}",
            "Install Debian's package prometheus-alertmanager, or put upstream's on PATH." if lacks else step,
        )
    missing = local_parts.missing_packages() if layout.CHAT in parts else []
    if missing:
        yield Finding(
            "programs",
            Level.WARNING,
            f"demo: {', '.join(missing)} not installed, so {local_parts.WITHOUT[layout.CHAT.name]}",
            "Install them: pip install 'otelkit[demo]'",
        )


def _there(parts: tuple[layout.Part, ...]) -> tuple[layout.Part, ...]:
    """Those of ``parts`` that can be started here."""
    no_demo = bool(local_parts.missing_packages())
    return tuple(
        part
        for part in parts
        if not (no_demo and part.profiles == (layout.DEMO,))
        and (part.name not in local_parts.NAMES or local_parts.program(part.name) is not None)
    )


@dataclass(slots=True)
class _Running:
    program: Program
    child: Child | None = None
    state: str = "starting"
    deaths: list[float] = field(default_factory=list)


def up(directory: Path, data: Path, settings: Settings, *, profiles: tuple[str, ...] = ()) -> None:
    """Start what there is and keep it running until SIGINT or SIGTERM. Must be called from the main thread.

    Args:
        directory: the folder with the generated files.
        data: where configuration, data and logs go; it holds one running stack at a time.

    Raises:
        OtelkitError: it could not be started, or a part that it needs keeps ending.
        KeyboardInterrupt: Ctrl-C.
    """
    directory, data = directory.resolve(), data.resolve()
    if not settings.parts(profiles):
        raise UsageError(nothing_chosen(directory).message, hint=nothing_chosen(directory).next_step)
    try:
        (data / "logs").mkdir(parents=True, exist_ok=True)
        with _only_one(data), Supervisor(data / "logs") as supervisor:
            stack = _Stack(directory, data, settings, profiles, supervisor)
            stack.start()
            stack.keep()
    except OSError as error:
        raise OtelkitError(
            f"{error.filename or data}: {error.strerror or error}",
            hint="It takes a folder that can be written, with space left: --data DIR",
        ) from error


class _Stack:
    def __init__(
        self,
        directory: Path,
        data: Path,
        settings: Settings,
        profiles: tuple[str, ...],
        supervisor: Supervisor,
    ) -> None:
        self._directory = directory
        self._data = data
        self._settings = settings
        self._parts = _there(settings.parts(profiles))
        self._ports = Ports.chosen(settings)
        self._supervisor = supervisor
        self._running = [_Running(one) for one in self._programs()]
        self._configure()
        self._stopped = False
        self._reload = False
        self._changed = False
        """Who is there has changed, and with it what the others are told."""
        self._complaint = ""

    def _programs(self) -> list[Program]:
        def made() -> list[Program]:
            return local_parts.programs(self._directory, self._data, self._settings, self._ports, self._parts)

        try:
            return made()
        except ModelUnavailable as error:
            if self._settings.get("OTELKIT_MODEL_FILE", ""):
                raise
            say(f"{error}\n  The demo is left out.")
            self._parts = tuple(part for part in self._parts if part.profiles != (layout.DEMO,))
            return made()

    def start(self) -> None:
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGHUP, self._on_reload)
        self._write_state()
        for running in self._running:
            if self._stopped:
                return
            self._start(running)
        if not self._stopped:
            say("everything that is here runs; Ctrl-C or `otelkit stack down --local` ends it")

    def keep(self) -> None:
        while not self._stopped:
            time.sleep(_LOOK_EVERY_SECONDS)
            if self._reload or self._changed:
                restart, self._reload, self._changed = self._reload, False, False
                self._reread(restart=restart)
            for running in self._running:
                if running.child is not None and not running.child.running:
                    self._revive(running)

    def _reread(self, *, restart: bool) -> None:
        """Write the configuration again and have all that can do so read it.

        Args:
            restart: also have those read it that do so only when they start.
        """
        try:
            self._configure()
        except (ConfigError, OSError) as error:
            why = f"{self._data}: {error.strerror}" if isinstance(error, OSError) else error
            say(f"{why}\n  What was read before stays in force.")
            return
        for running in self._running:
            if running.child is None or not running.child.running:
                continue
            if running.program.reloads:
                os.kill(running.child.pid, signal.SIGHUP)
            elif running.program.restarts and restart and not self._stopped:
                self._supervisor.stop(running.child)
                self._start(running)

    def _start(self, running: _Running) -> None:
        program = running.program
        child = self._supervisor.start(
            program.name, program.command, env={**_without_telemetry(), **program.environment}
        )
        running.child, running.state = child, "starting"
        self._write_state()
        try:
            child.wait_until(lambda: self._stopped or program.ready(), timeout=program.timeout)
        except OtelkitError as error:
            if self._is_needed(program):
                raise OtelkitError(f"{error.message}{self._full()}", hint=error.hint) from error
            self._give_up(running, f"{error.message}{self._full()}")
        else:
            running.state = "running"
            say(f"{program.name}: {program.url or 'runs'}")
        self._write_state()

    def _revive(self, running: _Running) -> None:
        assert running.child is not None
        now = time.monotonic()
        died = running.child.died()
        died = OtelkitError(f"{died.message}{self._full()}", hint=died.hint)
        running.deaths = [one for one in running.deaths if now - one < _WITHIN_SECONDS] + [now]
        self._supervisor.stop(running.child)
        if len(running.deaths) > _DEATHS_ALLOWED:
            if self._is_needed(running.program):
                raise died
            self._leave_out(running)
            self._write_state()
            say(f"{died.message} It is left out now: it ended {len(running.deaths)} times.")
        else:
            say(f"{died.message} It is started again.")
            self._start(running)

    def _give_up(self, running: _Running, why: str) -> None:
        assert running.child is not None
        self._supervisor.stop(running.child)
        self._leave_out(running)
        say(f"{why}\n  {running.program.name} is left out.")

    def _leave_out(self, running: _Running) -> None:
        """Nobody is to wait for it: others are configured as if it had never been there."""
        running.child, running.state = None, "left out"
        self._parts = tuple(part for part in self._parts if part.name != running.program.name)
        self._changed = True

    def _full(self) -> str:
        """A sentence where the likely reason is a disk without space."""
        return f" The disk of {self._data} is full." if machine.free_disk_mib(self._data) == 0 else ""

    @staticmethod
    def _is_needed(program: Program) -> bool:
        return program.name in {part.name for part in _NEEDED}

    def _configure(self) -> None:
        local_configuration.configure(self._directory, self._data, self._settings, self._ports, self._parts)

    def _write_state(self) -> None:
        parts = {
            one.program.name: {"pid": one.child.pid, "url": one.program.url, "state": one.state}
            for one in self._running
            if one.child is not None
        }
        left_out = [one.program.name for one in self._running if one.state == "left out"]
        text = json.dumps({"pid": os.getpid(), "parts": parts, "left_out": left_out})
        complaint = ""
        try:
            fresh = self._data / f"{STATE_FILE}.new"
            fresh.write_text(f"{text}\n", encoding="utf-8")
            fresh.replace(self._data / STATE_FILE)
        except OSError as error:
            complaint = f"{self._data / STATE_FILE}: can't be written: {error.strerror}. The stack goes on."
        if complaint and complaint != self._complaint:
            say(complaint)
        self._complaint = complaint

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stopped = True

    def _on_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload = True


def _without_telemetry() -> dict[str, str]:
    """This process' environment without what the user's shell has set for other programs' telemetry."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


@contextlib.contextmanager
def _only_one(data: Path) -> Iterator[None]:
    """Hold the data folder's lock, which the system lets go of however this process ends."""
    with (data / _LOCK_FILE).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(
                f"{data}: a stack is running on this folder already",
                hint="`otelkit stack down --local` ends it; --data DIR starts another beside it.",
            ) from None
        # Of an earlier run; its process ids may be those of strangers by now.
        (data / STATE_FILE).unlink(missing_ok=True)
        yield


def state(data: Path) -> dict[str, Any] | None:
    """What runs on a data folder: ``pid``, ``parts`` and ``left_out``; None when nothing does."""
    try:
        with (data / _LOCK_FILE).open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        with contextlib.suppress(OSError, ValueError):
            read: dict[str, Any] = json.loads((data / STATE_FILE).read_text(encoding="utf-8"))
            for part in read["parts"].values():
                if not machine.is_running(part["pid"]):
                    part["state"] = "ended"
            return read
    except OSError:
        pass
    return None


def ask_reload(directory: Path, data: Path, settings: Settings) -> None:
    """Have the stack on a data folder read its configuration again.

    Raises:
        ConfigError: a program would refuse it; then nothing is reloaded.
        OtelkitError: no stack runs there.
    """
    running = _demand(data)
    refused = local_configuration.refusals(directory.resolve(), settings, running["parts"])
    if refused:
        raise ConfigError(refused, hint=f"Nothing was reloaded. The files are below {directory}.")
    os.kill(running["pid"], signal.SIGHUP)


def down(data: Path) -> None:
    """End the stack on a data folder, and wait until it has ended.

    Raises:
        OtelkitError: none runs there, or it does not end.
    """
    os.kill(_demand(data)["pid"], signal.SIGTERM)
    deadline = time.monotonic() + _ENDING_SECONDS
    while state(data) is not None:
        if time.monotonic() > deadline:
            raise OtelkitError(
                f"{data}: the stack did not end within {_ENDING_SECONDS:.0f} s",
                hint=f"Its processes are listed in {data / STATE_FILE}.",
            )
        time.sleep(0.1)


def forget(data: Path) -> None:
    """Remove what a stack that has ended left in its data folder, and nothing else that may be there."""
    for name in _FOLDERS:
        shutil.rmtree(data / name, ignore_errors=True)
    for name in (STATE_FILE, _LOCK_FILE):
        (data / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        data.rmdir()


def _demand(data: Path) -> dict[str, Any]:
    running = state(data)
    if running is None:
        raise OtelkitError(
            f"{data}: no stack runs on this folder", hint="`otelkit stack up --local` starts one."
        )
    return running
