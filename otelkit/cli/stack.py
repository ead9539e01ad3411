"""``otelkit stack``: start, watch and end the stack, in containers or as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

from otelkit.cli.stack_options import (
    data_option,
    directory_option,
    files_option,
    format_option,
    local_option,
    profile_option,
)
from otelkit.errors import OtelkitError, UsageError

if TYPE_CHECKING:
    from otelkit.compose.engine import Compose
    from otelkit.compose.settings import Settings

_GRAFANA_PASSWORD: Final = ".grafana-admin-password"


@click.group()
def command() -> None:
    """The stack: collector, Prometheus, Alertmanager, Tempo, Grafana, the analyser, and a demo under load."""


@command.command()
@directory_option
@profile_option
@files_option
@local_option
@data_option
@click.option("--no-build", is_flag=True, help="Take the images that are there; build none.")
@click.option("--no-checks", is_flag=True, help="Start even where `otelkit doctor` finds problems.")
@click.option(
    "--timeout",
    type=click.IntRange(min=1),
    default=900,
    show_default=True,
    metavar="SECONDS",
    help="How long everything may take to become healthy; the first start downloads images and a model.",
)
def up(
    directory: Path,
    profiles: tuple[str, ...],
    files: tuple[Path, ...],
    local: bool,
    data: Path | None,
    no_build: bool,
    no_checks: bool,
    timeout: int,
) -> None:
    """Start the stack and wait until all of it is healthy.

    With --local it stays in the foreground until Ctrl-C.
    """
    from otelkit.compose.settings import Settings

    settings = Settings(directory, os.environ)
    if local:
        _refuse_files(files)
        _up_local(directory, settings, profiles, data, checks=not no_checks)
        return
    if not no_checks:
        from otelkit.compose.doctor import examine

        _stop_on_problems(
            examine(directory, settings, environment=os.environ, profiles=profiles, files=files)
        )
    compose = _compose(directory, files, profiles)
    arguments = ["up", "--detach", "--wait", "--wait-timeout", str(timeout)]
    if no_build:
        arguments.append("--no-build")
    elif not any(settings.get(name, "") for name in ("OTELKIT_IMAGE", "OTELKIT_DEMO_IMAGE")):
        # Images of the user's own are not to be replaced by what is built here.
        arguments.append("--build")
    if compose.run(*arguments):
        unwell = ""
        with contextlib.suppress(OtelkitError):
            unwell = ", ".join(
                f"{one.service} ({one.health or one.state})" for one in compose.states() if not one.well
            )
        raise OtelkitError(
            f"the stack did not come up: {unwell or 'see the lines above'}",
            hint="`otelkit stack logs NAME` shows what a part said, `otelkit doctor` what is amiss here.",
        )
    _say_where(compose, settings, profiles)


@command.command()
@directory_option
@files_option
@local_option
@data_option
@click.option("--volumes", is_flag=True, help="Also remove all that was recorded.")
@click.option("--yes", is_flag=True, help="Do not ask before removing what was recorded.")
def down(
    directory: Path, files: tuple[Path, ...], local: bool, data: Path | None, volumes: bool, yes: bool
) -> None:
    """End the stack. What was recorded is kept, unless --volumes is given."""
    if volumes and not yes:
        click.confirm("Remove all recorded metrics, traces and dashboard changes?", abort=True, err=True)
    if local:
        from otelkit.demo import local as processes

        _refuse_files(files)
        folder = data or directory / ".local"
        if not volumes or processes.state(folder) is not None:
            processes.down(folder)
        if volumes:
            processes.forget(folder)
        click.echo("the stack has ended", err=True)
        return
    compose = _compose(directory, files, ()).everything()
    if compose.run("down", "--remove-orphans", *(["--volumes"] if volumes else [])):
        raise OtelkitError(
            "the stack could not be ended",
            hint="The lines above say why; `otelkit doctor` looks for the cause.",
        )


@command.command()
@directory_option
@files_option
@local_option
@data_option
@format_option("states")
@click.pass_context
def status(
    context: click.Context,
    directory: Path,
    files: tuple[Path, ...],
    local: bool,
    data: Path | None,
    output_format: str,
) -> None:
    """Each part and how it is. Exits with 1 when one is not well, or none runs."""
    rows = _local_rows(data or directory / ".local") if local else _rows(_compose(directory, files, ()))
    if output_format == "json":
        click.echo(json.dumps({"version": 1, "parts": rows}))
    else:
        for row in rows:
            click.echo(f"{row['name']:<15} {row['state']:<12} {' '.join(row['addresses'])}".rstrip())
        if not rows:
            click.echo("nothing of the stack runs; `otelkit stack up` starts it", err=True)
    if not rows or not all(row["well"] for row in rows):
        context.exit(1)


@command.command()
@directory_option
@files_option
@local_option
@data_option
@click.option("-f", "--follow", is_flag=True, help="Go on showing what is written.")
@click.option(
    "--tail", type=click.IntRange(min=0), default=100, show_default=True, help="Lines of each part."
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def logs(
    directory: Path,
    files: tuple[Path, ...],
    local: bool,
    data: Path | None,
    follow: bool,
    tail: int,
    names: tuple[str, ...],
) -> None:
    """What the parts, or the named ones, have written."""
    if local:
        _local_logs((data or directory / ".local") / "logs", names, follow=follow, tail=tail)
    compose = _compose(directory, files, ()).everything()
    line = compose.command("logs", "--tail", str(tail), *(["--follow"] if follow else []), *names)
    sys.stdout.flush()
    os.execve(line[0], line, dict(compose.docker.environment or os.environ))


@command.command("reload")
@directory_option
@files_option
@local_option
@data_option
def reload_configuration(directory: Path, files: tuple[Path, ...], local: bool, data: Path | None) -> None:
    """Have everything that runs read its configuration again, without losing what was recorded.

    Configuration that its program refuses is not taken into use.
    """
    if local:
        from otelkit.compose.settings import Settings
        from otelkit.demo import local as processes

        processes.ask_reload(directory, data or directory / ".local", Settings(directory, os.environ))
        click.echo("the parts read their configuration again", err=True)
        return
    from otelkit.compose.reload import reload

    for line in reload(_compose(directory, files, ())):
        click.echo(line, err=True)


def _compose(directory: Path, files: tuple[Path, ...], profiles: tuple[str, ...]) -> Compose:
    """Docker Compose on the stack's files.

    Raises:
        OtelkitError: there is no Docker, or no such file.
    """
    from otelkit.compose.engine import Compose, Docker
    from otelkit.compose.settings import Settings

    # The generated files look for it under the usual name of their folder.
    dockerfile = Settings(directory, os.environ).get(
        "OTELKIT_DOCKERFILE", str((directory / "Dockerfile").resolve())
    )
    docker = Docker.found({**os.environ, "OTELKIT_DOCKERFILE": dockerfile})
    if docker is None:
        raise OtelkitError(
            "there is no docker command on PATH.",
            hint="Install Docker, or use --local: the programs that are here, as processes.",
        )
    if not (directory / "compose.yaml").is_file():
        raise UsageError(
            f"{directory / 'compose.yaml'}: is missing",
            hint="`otelkit generate compose` writes it; --directory DIR names another folder.",
        )
    return Compose(docker, directory, files, profiles)


def _refuse_files(files: tuple[Path, ...]) -> None:
    if files:
        raise click.UsageError("--file changes what Docker Compose does; it has no meaning with --local")


def _stop_on_problems(findings: list[Any]) -> None:
    """Say every problem at once.

    Raises:
        OtelkitError: there is one.
    """
    from otelkit.cli.doctor import as_text
    from otelkit.compose.doctor import Level

    problems = [one for one in findings if one.level is Level.PROBLEM]
    if problems:
        raise OtelkitError(
            f"the stack can't run here yet:\n{as_text(problems).rstrip()}",
            hint="`otelkit doctor` shows all it looked at; --no-checks starts nevertheless.",
        )


def _up_local(
    directory: Path, settings: Settings, profiles: tuple[str, ...], data: Path | None, *, checks: bool
) -> None:
    from otelkit.compose.doctor import Level
    from otelkit.demo import local as processes

    folder = data or directory / ".local"
    findings = processes.examine(directory, settings, profiles=profiles)
    if checks and processes.state(folder) is None:
        _stop_on_problems(findings)
    for one in findings:
        if one.level is Level.WARNING:
            click.echo(f"note: {one.message}", err=True)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    processes.up(directory, folder, settings, profiles=profiles)


def _say_where(compose: Compose, settings: Settings, profiles: tuple[str, ...]) -> None:
    from otelkit.compose.layout import GRAFANA

    started = compose.services()
    parts = [part for part in settings.parts(profiles) if part.name in started]
    for part in parts:
        for variable, default in part.ports:
            click.echo(f"{part.name:<15} http://127.0.0.1:{settings.port(variable, default)}")
    if GRAFANA in parts:
        _keep_password(compose)


def _keep_password(compose: Compose) -> None:
    """Put Grafana's generated password into a file that only this user reads."""
    answer = compose.ask("exec", "-T", "grafana", "cat", "/var/lib/grafana/admin-password")
    if answer.code or not answer.out.strip():
        click.echo("Grafana's password is in its volume: /var/lib/grafana/admin-password", err=True)
        return
    path = compose.directory / _GRAFANA_PASSWORD
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(answer.out.strip() + "\n")
    click.echo(f"Grafana's user is admin, its password is in {path}", err=True)


def _rows(compose: Compose) -> list[dict[str, Any]]:
    return [
        {
            "name": one.service,
            "state": one.health if one.state == "running" and one.health else one.state,
            "well": one.well,
            "addresses": [f"127.0.0.1:{port}" for port in one.ports],
        }
        for one in compose.states()
    ]


def _local_rows(data: Path) -> list[dict[str, Any]]:
    from otelkit.demo import local as processes

    running = processes.state(data) or {"parts": {}, "left_out": ()}
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "state": part["state"],
            "well": part["state"] == "running",
            "addresses": [part["url"].removeprefix("http://")] if part["url"] else [],
        }
        for name, part in running["parts"].items()
    ]
    left_out = running["left_out"]
    return [
        *rows,
        *({"name": name, "state": "left out", "well": False, "addresses": []} for name in left_out),
    ]


def _local_logs(folder: Path, names: tuple[str, ...], *, follow: bool, tail: int) -> NoReturn:
    """Replace this process by ``tail`` on the log files."""
    import shutil

    there = {path.stem: path for path in sorted(folder.glob("*.log"))}
    unknown = [name for name in names if name not in there]
    if unknown or not there:
        raise UsageError(
            f"{folder}: no log of {', '.join(unknown) or 'anything'}",
            hint=f"There are {', '.join(there)}." if there else "`otelkit stack up --local` writes them.",
        )
    binary = shutil.which("tail")
    if binary is None:
        raise OtelkitError(f"there is no `tail` on PATH; the logs are in {folder}")
    sys.stdout.flush()
    chosen = [str(there[name]) for name in names or there]
    os.execv(binary, ["tail", "-n", str(tail), *(["-F"] if follow else []), *chosen])
