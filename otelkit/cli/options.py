"""Options that several verbs share."""

from __future__ import annotations

import importlib.util
import re
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from datetime import time as clock_time
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from otelkit.errors import UsageError
from otelkit.spec import SPEC_FILE, Duration, Spec, load_spec

DEFAULT_PROMETHEUS: Final = "http://127.0.0.1:9090"
_F = TypeVar("_F", bound=Callable[..., Any])


class SpecOption:
    """Where the spec is, and whether that was asked for."""

    def __init__(self, path: Path | None) -> None:
        self.path = path or Path(SPEC_FILE)
        self.asked_for = path is not None

    def load(self) -> Spec:
        """The spec; without a file, and unless one was asked for, the one that covers any gen_ai service.

        Raises:
            ConfigError: the file is missing or makes no sense.
        """
        if not self.asked_for and not self.path.exists():
            click.echo(
                f"no {SPEC_FILE} here: taking every service that has the metrics of generative AI calls",
                err=True,
            )
            return Spec()
        return load_spec(self.path)


def demand_numpy(what: str) -> None:
    """Say which extra brings numpy, which writing rules does without.

    Raises:
        UsageError: it is not installed.
    """
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(
            f"{what} needs numpy, which is not installed", hint="pip install 'otelkit[analysis]'"
        )


def spec_option(function: _F) -> _F:
    """``--spec FILE``, passed on as a :class:`SpecOption` named ``spec``."""
    return click.option(
        "--spec",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar="OTELKIT_SPEC",
        show_envvar=True,
        callback=lambda context, parameter, value: SpecOption(value),
        help=f"The file that lists the services; {SPEC_FILE} if there is one.",
    )(function)


def prometheus_option(function: _F) -> _F:
    """``--prometheus URL``; None when it was not given."""
    return click.option(
        "--prometheus",
        metavar="URL",
        envvar="OTELKIT_PROMETHEUS",
        show_envvar=True,
        help="Address of Prometheus, Thanos, Mimir or VictoriaMetrics; else prometheus: of the spec, else "
        f"{DEFAULT_PROMETHEUS}.",
    )(function)


def header_option(function: _F) -> _F:
    """``--header NAME=VALUE``, passed on as a dictionary named ``headers``."""
    return click.option(
        "--header",
        "headers",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_headers,
        help="Send this header with each question (X-Scope-OrgID=TENANT for Mimir); may be repeated. Secrets "
        "belong into the environment: OTELKIT_PROMETHEUS_TOKEN, or _USERNAME and _PASSWORD, or _HEADERS.",
    )(function)


def _headers(context: click.Context, parameter: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        match = re.match(r"\s*([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*[=:]\s*(.*?)\s*$", one)
        if match is None:
            raise click.BadParameter("has no name and value; write for instance X-Scope-OrgID=team-a")
        found[match[1]] = match[2]
    return found


class Moment(click.ParamType[float]):
    """Unix seconds, an ISO date and time, a time of day, ``now``, or an age such as ``6h``; converts to Unix
    seconds. A time of day is the last one that has been."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        text = str(value).strip()
        if text == "now":
            return time.time()
        if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
            return float(text)
        try:
            return time.time() - Duration.parse(text).seconds
        except ValueError:
            pass
        try:
            if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text):
                return _last(clock_time.fromisoformat(text.zfill(5 if len(text) < 6 else 8)))
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            self.fail(
                f"{text!r} is no time; write for instance 6h, 14:03, 2026-03-01T14:00 or Unix seconds",
                param,
                ctx,
            )


def _last(moment: clock_time) -> float:
    """Unix seconds at which it last was this time of day."""
    now = datetime.now()
    at = datetime.combine(now.date(), moment)
    return (at if at <= now else at - timedelta(days=1)).timestamp()


class Span(click.ParamType[float]):
    """A length of time as Prometheus writes it, such as ``15s``; converts to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return Duration.parse(str(value).strip()).seconds
        except ValueError as error:
            self.fail(str(error), param, ctx)
