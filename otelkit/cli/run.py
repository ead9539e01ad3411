"""``otelkit run -- CMD``: starts a program with recording on, without a change to its code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from otelkit import record
from otelkit.errors import OtelkitError, UsageError

AUTOLOAD: Final = Path(record.__file__).resolve().parent / "autoload"
DEFAULT_METRICS_HOST: Final = "127.0.0.1"
DEFAULT_METRICS_PORT: Final = 9464


class CommandMissing(OtelkitError):  # noqa: N818  (states a condition, like its siblings)
    """The program to run does not exist, or can't be run."""

    exit_code = 127


def child_environment(
    environment: Mapping[str, str], *, service: str | None, metrics_port: int | None
) -> dict[str, str]:
    """The environment for the program: PYTHONPATH switches recording on, the rest are standard variables.

    Args:
        environment: of this process; what is set there stays unless an option says otherwise.
        service: ``service.name``, or None to leave it.
        metrics_port: of the /metrics page, or None for the variable's value or the default.
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
    return child


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="Name of the service; sets OTEL_SERVICE_NAME.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="Port of the /metrics page [default: OTEL_EXPORTER_PROMETHEUS_PORT, else 9464].",
)
@click.argument("command_line", nargs=-1, required=True, metavar="-- CMD [ARGS]...", type=click.UNPROCESSED)
def command(service: str | None, metrics_port: int | None, command_line: tuple[str, ...]) -> None:
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
    environment = child_environment(os.environ, service=service, metrics_port=metrics_port)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(program, list(command_line), environment)
    except OSError as error:
        raise CommandMissing(
            f"can't run {program!r}: {error.strerror}.",
            hint="A script needs a first line such as `#!/usr/bin/env python3`; or name its interpreter.",
        ) from error
