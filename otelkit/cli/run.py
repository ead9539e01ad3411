"""``otelkit run -- CMD``: starts a program with recording on, without a change to its code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import click

from otelkit import record
from otelkit.emit.settings import LATENCY_SLO
from otelkit.errors import ConfigError, OtelkitError, UsageError

AUTOLOAD: Final = Path(record.__file__).resolve().parent / "autoload"
DEFAULT_METRICS_HOST: Final = "127.0.0.1"
DEFAULT_METRICS_PORT: Final = 9464
SPEC_FILE: Final = "otelkit.yaml"


class CommandMissing(OtelkitError):  # noqa: N818  (states a condition, like its siblings)
    """The program to run does not exist, or can't be run."""

    exit_code = 127


def child_environment(
    environment: Mapping[str, str],
    *,
    service: str | None,
    metrics_port: int | None,
    fine_around: Sequence[float] = (),
) -> dict[str, str]:
    """The environment for the program: PYTHONPATH switches recording on, the rest are standard variables.

    Args:
        environment: of this process; what is set there stays unless an option says otherwise.
        service: ``service.name``, or None to leave it.
        metrics_port: of the /metrics page, or None for the variable's value or the default.
        fine_around: latencies in seconds around which histogram buckets are to be fine.
    """
    child = dict(environment)
    own = str(AUTOLOAD)
    given = environment.get("PYTHONPATH", "").split(os.pathsep)
    # An empty entry would mean the working folder, which was not on the path before.
    child["PYTHONPATH"] = os.pathsep.join([own, *(entry for entry in given if entry not in ("", own))])
    if service is not None:
        child["OTEL_SERVICE_NAME"] = service
    child.setdefault("OTEL_EXPORTER_PROMETHEUS_HOST", DEFAULT_METRICS_HOST)
    child.setdefault("OTEL_EXPORTER_PROMETHEUS_PORT", str(DEFAULT_METRICS_PORT))
    if metrics_port is not None:
        child["OTEL_EXPORTER_PROMETHEUS_PORT"] = str(metrics_port)
    if fine_around:
        child.setdefault(LATENCY_SLO, ",".join(f"{seconds:.12g}" for seconds in fine_around))
    return child


def stated_latencies(
    environment: Mapping[str, str], *, service: str | None, spec: Path | None
) -> tuple[float, ...]:
    """Latencies (seconds) that a spec states for a service; the program itself then needs no spec.

    Args:
        service: its name, or None for what the standard variables say.
        spec: the file, or None for the one in the working folder, if there is one. What is wrong in that
            one is told on standard error, and is no reason not to start a service.

    Raises:
        ConfigError: the file that was asked for is missing or makes no sense.
    """
    path = spec or Path(SPEC_FILE)
    if LATENCY_SLO in environment or (spec is None and not path.is_file()):
        return ()
    # Reading specs takes a tenth of a second, which programs without one need not spend.
    from otelkit.spec import load_spec

    try:
        read = load_spec(path)
    except ConfigError as error:
        if spec is not None:
            raise
        click.echo(f"otelkit: histogram buckets stay as they are: {error}", err=True)
        return ()
    name = service or environment.get("OTEL_SERVICE_NAME") or _resource_name(environment)
    if not name and len(read.services) == 1:
        name = read.services[0].name
    # What the file does not list has its defaults, whatever its name is made of.
    return read.service(name if name in {one.name for one in read.services} else "*").worth_fine_bounds


def _resource_name(environment: Mapping[str, str]) -> str:
    pairs = (pair.partition("=") for pair in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    return next((unquote(value.strip()) for key, _, value in pairs if key.strip() == "service.name"), "")


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="Name of the service; sets OTEL_SERVICE_NAME.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the /metrics page [default: OTEL_EXPORTER_PROMETHEUS_PORT, else 9464].",
)
@click.option(
    "--spec",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="OTELKIT_SPEC",
    show_envvar=True,
    help="Make histogram buckets fine around the service's objectives; otelkit.yaml if there is one. "
    "OTELKIT_LATENCY_SLO_SECONDS, where it is set, goes first.",
)
@click.argument("command_line", nargs=-1, required=True, metavar="-- CMD [ARGS]...", type=click.UNPROCESSED)
def command(
    service: str | None, metrics_port: int | None, spec: Path | None, command_line: tuple[str, ...]
) -> None:
    """Run CMD with every call of a language model recorded.

    CMD replaces this process: signals reach it, and its exit code is the exit code. 127 when CMD does not
    exist.

    \b
    Example:
      otelkit run --service chat -- python server.py
    """
    if service is not None and not service.strip():
        raise UsageError("--service is empty.", hint="Give the name under which the metrics are kept.")
    name = command_line[0]
    program = shutil.which(name)
    if program is None:
        raise CommandMissing(
            f"can't run {name!r}: there is no such program on PATH, or it is not executable.",
            hint="Name a program after `--`, for example `otelkit run -- python server.py`.",
        )
    environment = child_environment(
        os.environ,
        service=service,
        metrics_port=metrics_port,
        fine_around=stated_latencies(os.environ, service=service, spec=spec),
    )
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, list(command_line), environment)
    except OSError as error:
        raise CommandMissing(
            f"can't run {program!r}: {error.strerror}.",
            hint="A script needs a first line such as `#!/usr/bin/env python3`; or name its interpreter.",
        ) from error
