"""The Docker engine as its command line client shows it: asked, never assumed."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from otelkit.errors import ConfigError, OtelkitError

_ASKING_SECONDS: Final = 60.0
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command gave."""

    code: int
    out: str
    error: str

    @property
    def last_line(self) -> str:
        """The end of what it complained of."""
        lines = [line.strip() for line in (self.error or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class Docker:
    """The client on PATH.

    Args:
        environment: of each command; None for this process' own.
    """

    binary: str
    environment: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def found(cls, environment: Mapping[str, str] | None = None) -> Docker | None:
        """The client, if there is one on PATH."""
        path = None if environment is None else environment.get("PATH", "")
        binary = shutil.which("docker", path=path)
        return cls(binary, environment) if binary else None

    def ask(self, *arguments: str, timeout: float = _ASKING_SECONDS) -> Answer:
        """Run a command that answers at once; a client that hangs is an answer too."""
        try:
            done = subprocess.run(
                [self.binary, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=timeout,
                env=self.environment,
            )
        except subprocess.TimeoutExpired:
            return Answer(124, "", f"no answer within {timeout:.0f} s")
        except OSError as error:
            return Answer(126, "", f"{self.binary}: {error.strerror or error}")
        return Answer(done.returncode, done.stdout, done.stderr)

    def compose_version(self) -> tuple[int, int, int] | None:
        """Version of ``docker compose``; None where there is no such command."""
        answer = self.ask("compose", "version", "--short")
        return read_version(answer.out) if answer.code == 0 else None

    def information(self) -> dict[str, Any]:
        """What ``docker info`` says; empty where it says nothing that can be read."""
        answer = self.ask("info", "--format", "{{json .}}")
        return read_json(answer.out) if answer.code == 0 else {}

    def project_folders(self, project: str) -> tuple[Path, ...]:
        """Folders of the Compose files that running containers of a project were started from."""
        answer = self.ask(
            *("ps", "--filter", f"label=com.docker.compose.project={project}"),
            *("--format", '{{.Label "com.docker.compose.project.working_dir"}}'),
        )
        lines = answer.out.splitlines() if answer.code == 0 else []
        return tuple(Path(line) for line in sorted({line.strip() for line in lines} - {""}))

    def volume_labels(self, project: str) -> dict[str, dict[str, str]]:
        """Name of each volume of a Compose project -> its labels."""
        answer = self.ask(
            *("volume", "ls", "--filter", f"label=com.docker.compose.project={project}"),
            *("--format", "{{.Name}}"),
        )
        names = answer.out.split() if answer.code == 0 else []
        if not names:
            return {}
        shown = self.ask("volume", "inspect", *names)
        try:
            volumes = json.loads(shown.out)
        except ValueError:
            return {}
        return {volume["Name"]: volume.get("Labels") or {} for volume in volumes}


@dataclass(frozen=True, slots=True)
class State:
    """One container of the stack."""

    service: str
    state: str
    """``running``, ``exited``, ``restarting``, ..."""
    health: str
    """``healthy``, ``unhealthy``, ``starting``; empty where there is no check."""
    exit_code: int
    ports: tuple[int, ...]
    """Published on this machine."""

    @property
    def well(self) -> bool:
        return self.state == "running" and self.health in ("", "healthy")


@dataclass(frozen=True, slots=True)
class Compose:
    """``docker compose`` on the generated files."""

    docker: Docker
    directory: Path
    files: tuple[Path, ...] = ()
    """Further Compose files, which change the generated one."""
    profiles: tuple[str, ...] = ()
    """Instead of those that .env names."""

    def command(self, *arguments: str) -> list[str]:
        """The whole command line."""
        files = [self.directory / "compose.yaml", *self.files]
        options = [word for file in files for word in ("-f", str(file))]
        options += [word for profile in self.profiles for word in ("--profile", profile)]
        # Compose takes .env from beside the first file, and paths in further files from there too.
        return [
            self.docker.binary,
            "compose",
            "--project-directory",
            str(self.directory),
            *options,
            *arguments,
        ]

    def ask(self, *arguments: str, timeout: float = _ASKING_SECONDS) -> Answer:
        """Run a command that answers at once."""
        return self.docker.ask(*self.command(*arguments)[1:], timeout=timeout)

    def run(self, *arguments: str) -> int:
        """Run a command that the user watches: what it says goes where this process' errors go."""
        return subprocess.run(
            self.command(*arguments),
            stdin=subprocess.DEVNULL,
            stdout=2,
            check=False,
            env=self.docker.environment,
        ).returncode

    def services(self) -> frozenset[str]:
        """Names of what the files start under these profiles.

        Raises:
            ConfigError: Compose refuses the files.
        """
        answer = self.ask("config", "--services")
        if answer.code:
            files = ", ".join(str(file) for file in (self.directory / "compose.yaml", *self.files))
            raise ConfigError(
                [f"Docker Compose refuses {files}: {answer.last_line}"],
                hint="Set what it misses in .env; `otelkit generate compose` writes the other files again.",
            )
        return frozenset(answer.out.split())

    def states(self) -> tuple[State, ...]:
        """All containers of the stack, whatever their profile, by name of their service.

        Raises:
            OtelkitError: Compose does not say: that is not the same as that nothing runs.
        """
        answer = self.everything().ask("ps", "--all", "--format", "json")
        if answer.code:
            raise OtelkitError(
                f"`docker compose ps` failed: {answer.last_line}",
                hint="`otelkit doctor` says what is amiss, and the next step.",
            )
        return tuple(sorted(_states(answer.out), key=lambda one: one.service))

    def everything(self) -> Compose:
        """The same files with all profiles, as for ending what was started under any."""
        return Compose(self.docker, self.directory, self.files, ("*",))


def _states(text: str) -> Sequence[State]:
    """Compose writes a line of JSON for each container; before 2.21 it was one list."""
    rows: list[dict[str, Any]] = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        rows += value if isinstance(value, list) else [value]
    return [
        State(
            service=str(row.get("Service", "")),
            state=str(row.get("State", "")),
            health=str(row.get("Health", "")),
            exit_code=int(row.get("ExitCode") or 0),
            ports=tuple(
                sorted(
                    {int(one["PublishedPort"]) for one in row.get("Publishers") or () if one["PublishedPort"]}
                )
            ),
        )
        for row in rows
    ]


def read_version(text: str) -> tuple[int, int, int] | None:
    """The first version of three numbers in ``text``."""
    match = _VERSION.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def read_json(text: str) -> dict[str, Any]:
    """The object that ``text`` holds; empty where it holds none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
