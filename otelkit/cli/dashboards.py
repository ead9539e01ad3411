"""``otelkit dashboards``: look at dashboards before there is a Grafana, and put them into one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from otelkit.cli.options import (
    DEFAULT_PROMETHEUS,
    Moment,
    SpecOption,
    header_option,
    prometheus_option,
    spec_option,
)
from otelkit.errors import ConfigError, OtelkitError, UsageError
from otelkit.spec import Spec

_FINDING: Final = 3
_TOKEN: Final = "GRAFANA_TOKEN"


@click.group()
def command() -> None:
    """Preview dashboards, and push them to a Grafana. `otelkit generate dashboards` writes them to files."""


_from_option = click.option(
    "--from",
    "source",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Your own *.dashboard.py files (grafanalib) instead of otelkit's dashboards.",
)


@command.command()
@spec_option
@prometheus_option
@header_option
@_from_option
@click.argument("names", metavar="[UID|FILE.json]...", nargs=-1)
@click.option(
    "--since", type=Moment(), default="1h", show_default=True, help="Age or time of the oldest data."
)
@click.option(
    "--until", type=Moment(), default="now", show_default=True, help="Age or time of the newest data."
)
@click.option(
    "--var", "chosen", metavar="NAME=VALUE", multiple=True, help="Value of a variable; may be repeated."
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default="dashboards-preview",
    show_default=True,
    help="Folder to write to.",
)
@click.option("--png", is_flag=True, help="Write a picture beside each page; needs a Chromium.")
@click.option(
    "--browser", metavar="PATH", envvar="OTELKIT_BROWSER", help="The Chromium for --png. [default: on PATH]"
)
def preview(
    spec: SpecOption,
    prometheus: str | None,
    headers: Mapping[str, str],
    source: Path | None,
    names: Sequence[str],
    since: float,
    until: float,
    chosen: Sequence[str],
    output: Path,
    png: bool,
    browser: str | None,
) -> None:
    """Draw dashboards over the data of a Prometheus, each as one HTML page that works offline.

    It is a preview, not Grafana: queries, layout and data are the dashboard's, the drawing is not.
    """
    from otelkit.dashboards.preview import PrometheusApi, Span, find_browser, render_preview, take_picture

    if since >= until:
        raise click.UsageError("--since must lie before --until")
    read = spec.load()
    chromium = find_browser(browser) if png else None
    documents = _selected(read, source, names)
    variables = _variables(chosen)
    span = Span(since, until, read.scrape_interval.seconds)
    with PrometheusApi(prometheus or read.prometheus or DEFAULT_PROMETHEUS, headers=headers) as api:
        for document in documents:
            known = {one["name"] for one in document.get("templating", {}).get("list", [])}
            wanted = variables if len(documents) == 1 else {n: v for n, v in variables.items() if n in known}
            page = output / f"{document['uid']}.html"
            _write(page, render_preview(document, api, span, chosen=wanted))
            click.echo(page)
            if chromium is not None:
                picture = page.with_suffix(".png")
                take_picture(chromium, page, picture)
                click.echo(picture)


@command.command()
@spec_option
@_from_option
@click.argument("names", metavar="[UID|FILE.json]...", nargs=-1)
@click.option(
    "--url", metavar="URL", required=True, envvar="GRAFANA_URL", show_envvar=True, help="Address of Grafana."
)
@click.option("--yes", is_flag=True, help="Do it. Without, only what would be done is shown.")
@click.option("--force", is_flag=True, help="Also replace dashboards that were edited in Grafana.")
@click.option(
    "--folder", "folder_uid", metavar="UID", default="otelkit", show_default=True, help="Folder's uid."
)
@click.option(
    "--folder-title", metavar="TEXT", default="otelkit", show_default=True, help="Title of a new folder."
)
@click.option("--message", metavar="TEXT", default="", help="Kept with the version in Grafana's history.")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.pass_context
def push(
    context: click.Context,
    spec: SpecOption,
    source: Path | None,
    names: Sequence[str],
    url: str,
    yes: bool,
    force: bool,
    folder_uid: str,
    folder_title: str,
    message: str,
    form: str,
) -> None:
    """Put dashboards into a Grafana, by its HTTP API. Shows what it would do; --yes does it.

    The token of a service account is read from the environment variable GRAFANA_TOKEN. New dashboards go
    into the folder; those that are there stay in theirs unless --folder is given. Exit code 3: a dashboard
    was left alone because somebody edited it in Grafana; 1: Grafana refused one.
    """
    from otelkit.dashboards.push import Action, Grafana

    documents = _selected(spec.load(), source, names)
    move = context.get_parameter_source("folder_uid") is not click.core.ParameterSource.DEFAULT
    with Grafana(url, os.environ.get(_TOKEN, "")) as grafana:
        if yes:
            steps = grafana.push(
                documents,
                folder_uid=folder_uid,
                folder_title=folder_title,
                message=message,
                force=force,
                move=move,
            )
        else:
            steps = grafana.plan(documents, folder_uid=folder_uid if move else None, force=force)
            if any(one.action is Action.CREATE for one in steps) and not grafana.has_folder(folder_uid):
                click.echo(f"folder {folder_uid!r} is not there and would be created", err=True)
    if form == "json":
        done = [
            {
                "uid": one.uid,
                "title": one.title,
                "action": one.action.value,
                "reason": one.reason,
                "version": one.version,
            }
            for one in steps
        ]
        click.echo(json.dumps({"version": 1, "done": yes, "dashboards": done}, indent=2, ensure_ascii=False))
    else:
        for one in steps:
            click.echo(
                f"{one.action.value:<10} {one.uid:<24} {one.title}{': ' + one.reason if one.reason else ''}"
            )
    if not yes:
        click.echo("nothing was changed; --yes does what is listed", err=True)
    if any(one.action is Action.FAILED for one in steps):
        context.exit(OtelkitError.exit_code)
    if any(one.action is Action.CONFLICT for one in steps):
        context.exit(_FINDING)


def _write(page: Path, text: str) -> None:
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{error.filename or page}: can't be written: {error.strerror}",
            hint="Name another folder with -o DIR.",
        ) from error


def _selected(spec: Spec, source: Path | None, names: Iterable[str]) -> list[dict[str, Any]]:
    """The dashboards asked for, all if none was named."""
    from otelkit.dashboards import documents, load_dashboards

    if source is None:
        known: dict[str, dict[str, Any]] = dict(documents(spec))
    else:
        known = {one.document["uid"]: one.document for one in load_dashboards(source)}
    selected = [_read(Path(name)) if name.endswith(".json") else _named(name, known) for name in names]
    return selected or list(known.values())


def _named(uid: str, known: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    if uid not in known:
        raise UsageError(f"no dashboard {uid!r}; there are {', '.join(known)}", hint="Or name a FILE.json.")
    return known[uid]


def _read(path: Path) -> dict[str, Any]:
    from otelkit.dashboards import refused_by_grafana, uid_of

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: is no JSON: {error}") from None
    panels = document.get("panels") if isinstance(document, dict) else None
    if not isinstance(panels, list) or not all(isinstance(panel, dict) for panel in panels):
        raise UsageError(
            f"{path}: is no dashboard: it has no list of panels", hint="Export it from Grafana as JSON."
        )
    made: dict[str, Any] = {
        **document,
        "uid": document.get("uid") or uid_of(path.stem),
        "title": document.get("title") or path.stem,
    }
    problems = [f"{path}: {problem}" for problem in refused_by_grafana(made)]
    if problems:
        raise ConfigError(problems)
    return made


def _variables(chosen: Iterable[str]) -> dict[str, list[str]]:
    variables: dict[str, list[str]] = {}
    for one in chosen:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise click.UsageError(f"--var {one}: write NAME=VALUE")
        variables.setdefault(name, []).append(value)
    return variables
