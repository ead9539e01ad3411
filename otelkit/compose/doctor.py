"""Finds what keeps the stack from running, before it is started, and says the next step."""

from __future__ import annotations

import contextlib
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from otelkit.compose import machine
from otelkit.compose.engine import Answer, Compose, Docker, read_version
from otelkit.compose.layout import GRAFANA, OLDEST_COMPOSE, OLDEST_ENGINE, PARTS, VOLUME_LABEL, Part
from otelkit.compose.settings import Settings
from otelkit.errors import ConfigError, OtelkitError

VERSION: Final = 1
"""Of the JSON form."""
PROJECT: Final = "otelkit"
LEAST_DISK_MIB: Final = 1024
GOOD_DISK_MIB: Final = 6 * 1024
"""All that Prometheus keeps, and as much as traces and images take besides."""
_SYSTEM_MIB: Final = 256
"""Memory that the engine and the system need beside the stack."""
_ENGINE: Final = f"{OLDEST_ENGINE[0]}.{OLDEST_ENGINE[1]}"
_COMPOSE: Final = ".".join(str(number) for number in OLDEST_COMPOSE)
_MORE_MEMORY: Final = "Close other programs, or let Docker Desktop's machine have more (Settings, Resources)."
_LOCAL: Final = "`otelkit stack up --local` does without Docker."


class Level(Enum):
    """How bad it is."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    level: Level
    message: str
    next_step: str = ""

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "level": self.level.value}


def to_json(findings: Iterable[Finding]) -> dict[str, Any]:
    """All findings as one versioned object."""
    listed = list(findings)
    return {
        "version": VERSION,
        "ok": all(one.level is not Level.PROBLEM for one in listed),
        "findings": [one.as_json() for one in listed],
    }


def examine(
    directory: Path,
    settings: Settings,
    *,
    environment: Mapping[str, str],
    profiles: tuple[str, ...] = (),
    files: tuple[Path, ...] = (),
    memory_mib: int | None = None,
) -> list[Finding]:
    """Everything that the stack on Docker needs.

    Args:
        directory: the folder with the generated files.
        profiles: to be started, else those of the settings.
        files: further Compose files, which may leave out parts.
        memory_mib: memory of the engine's machine; None asks the engine.
    """
    parts = settings.parts(profiles)
    docker = Docker.found(environment)
    versions = [] if docker is None else [_compose(docker)]
    refused = []
    if docker is not None and versions[0].level is Level.OK and (directory / "compose.yaml").is_file():
        try:
            names = Compose(docker, directory, files, profiles).services()
        except ConfigError as error:
            refused.append(Finding("files", Level.PROBLEM, error.message, error.hint))
        else:
            parts = tuple(part for part in parts if part.name in names)
    findings = [*_files(directory, settings, parts), *refused]
    if not parts and not findings:
        findings.append(nothing_chosen(directory))
    if docker is None:
        findings.append(
            Finding(
                "engine",
                Level.PROBLEM,
                "there is no docker command on PATH",
                f"Install Docker Engine or Docker Desktop (docs.docker.com/get-docker). {_LOCAL}",
            )
        )
        return [*findings, *ports(settings, parts, ()), disk(directory)]
    running = _engine(docker)
    findings += [running, *versions]
    if running.level is Level.PROBLEM:
        return [*findings, *ports(settings, parts, ()), disk(directory)]
    information = docker.information()
    findings.append(memory(parts, memory_mib if memory_mib is not None else _engine_memory(information)))
    # Where Compose can't say what runs, its reason is among the findings, or nothing runs.
    ours: list[int] = []
    with contextlib.suppress(OtelkitError):
        ours = [port for one in Compose(docker, directory).states() for port in one.ports]
    findings += ports(settings, parts, ours)
    project = settings.get("COMPOSE_PROJECT_NAME", PROJECT)
    findings += _neighbours(docker.project_folders(project), directory, project)
    findings.append(_volumes(docker.volume_labels(project), project))
    root = Path(str(information.get("DockerRootDir") or directory))
    # Docker Desktop keeps its data in a machine of its own.
    findings.append(disk(root if root.exists() else directory))
    return findings


def nothing_chosen(directory: Path) -> Finding:
    """What to say where no profile was asked for."""
    return Finding(
        "profiles",
        Level.PROBLEM,
        "no profile is chosen, so nothing would be started",
        f"COMPOSE_PROFILES=core,demo,alerts in {directory / '.env'}, or --profile core.",
    )


def _engine(docker: Docker) -> Finding:
    answer = docker.ask("version", "--format", "{{.Server.Version}}")
    if answer.code:
        return Finding("engine", Level.PROBLEM, *_refusal(answer))
    text = answer.out.strip()
    version = read_version(text)
    if version is not None and version < OLDEST_ENGINE:
        return Finding(
            "engine",
            Level.PROBLEM,
            f"Docker Engine {text} is too old: the stack needs {_ENGINE} or newer",
            "Update it (docs.docker.com/engine/install).",
        )
    return Finding("engine", Level.OK, f"Docker Engine {text} answers")


def _refusal(answer: Answer) -> tuple[str, str]:
    said = (answer.error + answer.out).lower()
    if "permission denied" in said:
        return (
            "this user has no rights on the Docker socket",
            "Join its group: `sudo usermod -aG docker $USER`, then log in again (or set up rootless Docker).",
        )
    if "cannot connect" in said or "is the docker daemon running" in said or "no such file" in said:
        return (
            "the Docker engine is not running",
            f"Start it: `sudo systemctl start docker`, or open Docker Desktop. {_LOCAL}",
        )
    return (
        f"the Docker engine does not answer: {answer.last_line}",
        f"Does `docker version` work? {_LOCAL}",
    )


def _compose(docker: Docker) -> Finding:
    version = docker.compose_version()
    if version is None:
        return Finding(
            "compose",
            Level.PROBLEM,
            "`docker compose` is not there",
            f"Install the Compose plugin {_COMPOSE} or newer (docs.docker.com/compose/install/linux).",
        )
    text = ".".join(str(number) for number in version)
    if version < OLDEST_COMPOSE:
        return Finding(
            "compose",
            Level.PROBLEM,
            f"Docker Compose {text} is too old: the stack needs {_COMPOSE} or newer",
            "Update the Compose plugin (docs.docker.com/compose/install/linux).",
        )
    return Finding("compose", Level.OK, f"Docker Compose {text}")


def ports(settings: Settings, parts: Iterable[Part], ours: Iterable[int]) -> Iterator[Finding]:
    """Whether each port is free, or already the stack's.

    Args:
        ours: ports that the running stack has published.
    """
    own = set(ours)
    free = []
    asked: dict[int, str] = {}
    for part in parts:
        for variable, default in part.ports:
            port = settings.port(variable, default)
            if port in asked:
                yield Finding(
                    "ports",
                    Level.PROBLEM,
                    f"{variable} and {asked[port]} are both {port}",
                    "Give each its own port, in .env or in the environment.",
                )
                continue
            asked[port] = variable
            problem = "" if port in own else machine.port_problem(port)
            if problem:
                yield Finding(
                    "ports",
                    Level.PROBLEM,
                    f"port {port} of 127.0.0.1, for {part.name}, {problem}",
                    f"End that, or give {part.name} another port: {variable}={another(port)} in .env.",
                )
            else:
                free.append(port)
    if len(free) == len(asked):
        yield Finding("ports", Level.OK, f"ports {', '.join(str(port) for port in free)} can be had")


def another(port: int) -> int:
    """A port to try in place of one that is taken."""
    return port + 10_000 if port < 50_000 else port - 10_000


def memory(parts: Iterable[Part], available_mib: int | None, *, more: str = _MORE_MEMORY) -> Finding:
    """Whether the parts' limits fit.

    Args:
        more: how there can be more of it.
    """
    listed = tuple(parts)
    needed = sum(part.memory_mib for part in listed) + _SYSTEM_MIB
    if available_mib is None:
        return Finding(
            "memory", Level.WARNING, "can't see how much memory there is", f"It takes {needed} MiB."
        )
    if available_mib >= needed:
        return Finding("memory", Level.OK, f"{available_mib} MiB of memory, {needed} MiB are needed")
    fewer = tuple(part for part in PARTS if part in listed and "core" in part.profiles)
    hint = more
    if fewer != listed and sum(part.memory_mib for part in fewer) + _SYSTEM_MIB <= available_mib:
        hint = f"Start less: --profile core takes {sum(part.memory_mib for part in fewer)} MiB. {more}"
    return Finding(
        "memory",
        Level.PROBLEM,
        f"{available_mib} MiB of memory are too little: {needed} MiB are needed",
        hint,
    )


def _engine_memory(information: Mapping[str, Any]) -> int | None:
    total = information.get("MemTotal")
    return int(total) >> 20 if isinstance(total, int) and total > 0 else None


def _volumes(labels: Mapping[str, Mapping[str, str]], project: str) -> Finding:
    expected = {f"{project}_{volume.name}": volume.format for part in PARTS for volume in part.volumes}
    foreign = [
        f"{name} holds {labels[name].get(VOLUME_LABEL) or 'data of an unknown version'}, not {format}"
        for name, format in expected.items()
        if name in labels and labels[name].get(VOLUME_LABEL) != format
    ]
    if not foreign:
        kept = sorted(name for name in expected if name in labels)
        return Finding("volumes", Level.OK, f"volumes in place: {', '.join(kept) or 'none yet'}")
    names = " ".join(text.split()[0] for text in foreign)
    return Finding(
        "volumes",
        Level.PROBLEM,
        f"volumes of another version: {'; '.join(foreign)}",
        f"Keep a copy if you need it, then: `otelkit stack down` and `docker volume rm {names}`; "
        "or leave them and start beside them: COMPOSE_PROJECT_NAME=otelkit2 in .env.",
    )


def _neighbours(folders: Iterable[Path], directory: Path, project: str) -> Iterator[Finding]:
    """Whether a stack of another folder runs under the same name, whose containers would be replaced."""
    for folder in folders:
        # A folder that has been renamed is no other.
        if folder.is_dir() and not folder.samefile(directory):
            yield Finding(
                "name",
                Level.PROBLEM,
                f"a stack called {project} runs from {folder}; this one would take its place, on its data",
                f"End it (`otelkit stack down --directory {shlex.quote(str(folder))}`), or give this one a "
                f"name and ports of its own in .env: COMPOSE_PROJECT_NAME={project}2, GRAFANA_PORT=13000 ...",
            )


def disk(path: Path) -> Finding:
    """Whether what is recorded has room where ``path`` is."""
    free = machine.free_disk_mib(path)
    if free is None:
        return Finding("disk", Level.WARNING, f"can't see how much space is left at {path}")
    hint = (
        "Free some (`docker system df` shows what Docker holds), or lower PROMETHEUS_RETENTION_SIZE in .env."
    )
    if free < LEAST_DISK_MIB:
        return Finding("disk", Level.PROBLEM, f"only {free} MiB are left on the disk of {path}", hint)
    if free < GOOD_DISK_MIB:
        return Finding(
            "disk",
            Level.WARNING,
            f"{free} MiB are left on the disk of {path}; it may take {GOOD_DISK_MIB}",
            hint,
        )
    return Finding("disk", Level.OK, f"{free} MiB are left on the disk of {path}")


def _files(directory: Path, settings: Settings, parts: Iterable[Part]) -> Iterator[Finding]:
    """Whether what is mounted into containers is there, and readable by their users."""
    if not (directory / "compose.yaml").is_file():
        yield Finding(
            "files",
            Level.PROBLEM,
            f"{directory / 'compose.yaml'}: is missing",
            f"Write it: `otelkit generate compose -o {directory}`; or name its folder: --directory DIR.",
        )
        return
    names = {part.name for part in parts}
    mounted = [directory / name for name in ("prometheus", "tempo", "collector", "analyser", "alertmanager")]
    if GRAFANA.name in names:
        dashboards = directory / settings.get("OTELKIT_DASHBOARDS", "../dashboards")
        mounted += [directory / "grafana", dashboards]
        if not dashboards.is_dir():
            yield Finding(
                "files",
                Level.PROBLEM,
                f"{dashboards}: the folder of dashboards is missing",
                "Write it: `otelkit generate dashboards`; or name yours: OTELKIT_DASHBOARDS in .env.",
            )
    source = directory / settings.get("OTELKIT_SOURCE", "..")
    if not (source / "pyproject.toml").is_file() and not settings.get("OTELKIT_IMAGE", ""):
        yield Finding(
            "files",
            Level.PROBLEM,
            f"{source}: holds no source of otelkit, which the analyser's image is built from",
            "In .env, name a checkout (OTELKIT_SOURCE), or images (OTELKIT_IMAGE, OTELKIT_DEMO_IMAGE).",
        )
    hidden = sorted(_unreadable(mounted))
    if hidden:
        folders = " ".join(str(one) for one in mounted if one.exists())
        yield Finding(
            "files",
            Level.PROBLEM,
            f"containers run as users of their own and can't read {', '.join(map(str, hidden[:3]))}",
            f"Let others read them: `chmod -R o+rX {folders}`",
        )


def _unreadable(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for path in (folder, *folder.rglob("*")) if folder.is_dir() else ():
            mode = path.stat().st_mode
            wanted = stat.S_IROTH | (stat.S_IXOTH if stat.S_ISDIR(mode) else 0)
            if mode & wanted != wanted:
                yield path
