"""A user's own dashboards: ``*.dashboard.py`` files, each with a variable ``dashboard``, as grafanalib has
it."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grafanalib import core as g

from otelkit.dashboards.grafana import dashboard_json, panels_of
from otelkit.errors import ConfigError, UsageError

SUFFIX: Final = ".dashboard.py"
_LONGEST_UID: Final = 40
_NOT_IN_UIDS: Final = re.compile(r"[^a-zA-Z0-9_-]+")


@dataclass(frozen=True, slots=True)
class UserDashboard:
    path: Path
    file_name: str
    """Of its JSON, relative to the folder that JSON goes to: as the file lies in its own."""
    document: dict[str, Any]
    """Its JSON; the uid comes from the file's name where the file sets none, so that it stays the same."""


def load_dashboards(directory: Path, *, taken: Iterable[str] = ()) -> list[UserDashboard]:
    """Run every ``*.dashboard.py`` below a folder, in order of their names.

    What a file prints goes to standard error; modules beside it can be imported.

    Args:
        taken: uids that other dashboards have already.

    Raises:
        UsageError: the folder is missing or has no such file.
        ConfigError: a file raises or exits, has no ``dashboard`` or one that Grafana can't read, or has
            another's uid; names all of them.
    """
    if not directory.is_dir():
        raise UsageError(
            f"{directory}: is no folder", hint=f"Name the folder that holds your *{SUFFIX} files."
        )
    paths = sorted(directory.rglob(f"*{SUFFIX}"))
    if not paths:
        raise UsageError(
            f"{directory}: holds no *{SUFFIX} file",
            hint="A dashboard is such a Python file with a variable `dashboard` made with grafanalib.",
        )
    problems: list[str] = []
    loaded: list[UserDashboard] = []
    owners = dict.fromkeys(taken, "a dashboard of otelkit")
    for path in paths:
        name = path.relative_to(directory).as_posix().removesuffix(SUFFIX)
        try:
            document = _document(path, default_uid=uid_of(name))
        except ConfigError as error:
            problems += error.problems
            continue
        uid = document["uid"]
        if uid in owners:
            problems.append(f"{path}: uid {uid!r} is that of {owners[uid]} too; give one of them another")
        owners.setdefault(uid, str(path))
        loaded.append(UserDashboard(path, f"{name}.json", document))
    if problems:
        raise ConfigError(problems)
    return loaded


def _document(path: Path, *, default_uid: str) -> dict[str, Any]:
    try:
        with _running(path):
            variables = runpy.run_path(str(path))
    except SystemExit as stopped:
        raise ConfigError([f"{path}:{_line(stopped, path)}: exits ({stopped}) when it is run"]) from None
    except Exception as error:
        said = f"raises {type(error).__name__}: {_words(error)}"
        raise ConfigError([f"{path}:{_line(error, path)}: {said}"]) from None
    made = variables.get("dashboard")
    if made is None:
        raise ConfigError([f"{path}: has no variable `dashboard`; assign your grafanalib Dashboard to it"])
    if not isinstance(made, g.Dashboard):
        several = "; one file holds one" if isinstance(made, list | tuple) else ""
        raise ConfigError(
            [f"{path}: `dashboard` is a {type(made).__name__}, not a grafanalib Dashboard{several}"]
        )
    contents = [*made.panels, *(panel for row in made.rows for panel in getattr(row, "panels", ()))]
    strangers = [
        f"{path}: panel {number} of `dashboard` is a {type(one).__name__}, not a panel of grafanalib"
        for number, one in enumerate(contents, 1)
        if not isinstance(one, g.Panel)
    ]
    if strangers:
        raise ConfigError(strangers)
    try:
        document = dashboard_json(made)
    except Exception as error:
        raise ConfigError([f"{path}: `dashboard` can't be written as JSON: {_words(error)}"]) from None
    if document.get("uid") in (None, ""):
        document["uid"] = default_uid
    problems = [f"{path}: {problem}" for problem in refused_by_grafana(document)]
    if problems:
        raise ConfigError(problems)
    return document


@contextlib.contextmanager
def _running(path: Path) -> Iterator[None]:
    """As Python runs a script: its folder is first on the path. Standard output is kept for results."""
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.path.pop(0)


def refused_by_grafana(document: dict[str, Any]) -> Iterator[str]:
    """Values that JSON can hold and Grafana refuses, or takes for something else."""
    title, uid = document.get("title"), document["uid"]
    if not isinstance(title, str) or not title.strip():
        yield f"the dashboard's title is {title!r}; give it a text"
    if not isinstance(uid, str) or not uid or len(uid) > _LONGEST_UID or _NOT_IN_UIDS.search(uid):
        yield f"uid {uid!r}: Grafana takes up to {_LONGEST_UID} letters, digits, - and _"
    for panel in panels_of(document):
        if not isinstance(panel.get("title") or "", str):
            yield f"panel {panel['title']!r}: its title is no text"
        for target in panel.get("targets") or []:
            if not isinstance(target.get("expr") or "", str):
                yield f"panel {panel.get('title')!r}: query {target['expr']!r} is no text"
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        found = error.object[error.start : error.end]
        yield f"holds {found!a}, half a character, which no file can hold"


def _words(error: Exception) -> str:
    """What a library says, without the rest that attrs adds for programs."""
    said = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
    return " ".join(said.split())


def _line(error: BaseException, path: Path) -> int:
    """The line of the file itself at which it failed, however deep in a library the error came up."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == str(path)), 1)


def uid_of(name: str) -> str:
    """A uid from a file's name."""
    return _NOT_IN_UIDS.sub("-", name).strip("-")[:_LONGEST_UID] or "dashboard"
