"""What the user may choose, and everything that can be refused before anything is started."""

from __future__ import annotations

import importlib.util
import math
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from otelkit.demo import missing_packages
from otelkit.demo.model import check_gguf, ensure_model
from otelkit.demo.progress import say
from otelkit.demo.prometheus import checked, find_tool
from otelkit.demo.script import FEWEST_MINUTES, Script, default_script
from otelkit.demo.supervise import check_port
from otelkit.errors import BackendUnreachable, UsageError

_CHILDREN_NEED: Final = ("openai", "starlette", "uvicorn", "xllamacpp")


@dataclass(frozen=True, slots=True)
class Options:
    """One run of the demo, as it was asked for."""

    output: Path = Path("otelkit-demo")
    """Folder in which each run gets a folder of its own."""
    minutes: float | None = None
    """Length of the load; None takes the script's own, and more of it on a slow machine."""
    seed: int = 1
    rate: float | None = None
    """Requests a second; None is chosen from what the machine carries."""
    model: Path | None = None
    otlp: str | None = None
    """Base URL of an OTLP/HTTP receiver; None writes to files in the run's folder."""
    prometheus: Path | None = None
    use_prometheus: bool = True
    service_port: int | None = None
    metrics_port: int | None = None
    prometheus_port: int | None = None
    script: Script | None = None
    """Another script than the demo's own, which ``minutes`` and ``seed`` then do not shape."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Options that were found to be possible, with what they stand for."""

    options: Options
    model: Path
    prometheus: Path | None
    """None: scrape in process."""
    script: Script
    directory: Path
    """The run's own folder, made and empty."""


def prepare(options: Options) -> Prepared:
    """Check everything that can be checked, fetch the model if need be, and make the run's folder.

    Raises:
        UsageError: an option makes no sense, or a port is taken.
        BackendUnreachable: nothing answers at ``otlp``.
        ModelUnavailable: there is no model to be had.
    """
    missing = [name for name in _CHILDREN_NEED if importlib.util.find_spec(name) is None]
    if missing:
        raise missing_packages(missing)
    if options.minutes is not None and not FEWEST_MINUTES <= options.minutes < math.inf:
        raise UsageError(
            f"--minutes {options.minutes:g}: too short for the script, or endless.",
            hint=f"Use {FEWEST_MINUTES:g} or more.",
        )
    if options.rate is not None and not 0 < options.rate < math.inf:
        raise UsageError(f"--rate {options.rate:g}: must be more than 0 requests per second.")
    _check_ports(options)
    if options.otlp is not None:
        _check_reachable(options.otlp)
    prometheus = _prometheus_binary(options)
    model = check_gguf(options.model) if options.model else ensure_model(say=say)
    return Prepared(
        options=options,
        model=model,
        prometheus=prometheus,
        script=options.script or default_script(minutes=options.minutes, seed=options.seed),
        directory=_new_directory(options.output),
    )


def _check_ports(options: Options) -> None:
    asked = {
        "--service-port": options.service_port,
        "--metrics-port": options.metrics_port,
        "--prometheus-port": options.prometheus_port,
    }
    seen: dict[int, str] = {}
    for name, port in asked.items():
        if port is None:
            continue
        if port in seen:
            raise UsageError(f"{name} {port}: is also given as {seen[port]}.", hint="Give each its own port.")
        seen[port] = name
        check_port(port, option=name)


def _check_reachable(url: str) -> None:
    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if parts.scheme not in ("http", "https") or not parts.hostname or not port:
        raise UsageError(
            f"--otlp {url}: not an http or https address.", hint="Write for instance http://127.0.0.1:4318"
        )
    try:
        socket.create_connection((parts.hostname, port), timeout=5).close()
    except OSError as error:
        raise BackendUnreachable(
            f"--otlp {url}: nothing answers there: {error.strerror or error}.",
            hint="Start the receiver, or leave --otlp out to have spans written to a file.",
        ) from error


def _prometheus_binary(options: Options) -> Path | None:
    if not options.use_prometheus:
        return None
    if options.prometheus is not None:
        return checked(options.prometheus)
    found = find_tool("prometheus")
    if found is None:
        say("no prometheus in .tools or on PATH: the same buckets are scraped in process instead")
        return None
    try:
        return checked(found)
    except UsageError as error:
        say(f"{error.message} The same buckets are scraped in process instead.")
        return None


def _new_directory(output: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for attempt in range(100):
        directory = output / (f"{stamp}-{attempt}" if attempt else stamp)
        try:
            directory.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(
                f"{directory}: can't be made: {error.strerror}.",
                hint="Name a folder that can be written: --output DIR",
            ) from error
        return directory.resolve()
    raise UsageError(f"{output}: a hundred runs began there this second.", hint="Try again.")
