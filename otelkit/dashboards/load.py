"""A user's own dashboards: ``*.dashboard.py`` files, each with a variable ``dashboard``, as grafanalib has
it."""

from __future__ import annotations

import re
import runpy
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from grafanalib import core as g

from otelkit.dashboards.grafana import dashboard_json
from otelkit.errors import ConfigError, UsageError

SUFFIX: Final = ".dashboard.py"
_LONGEST_UID: Final = 40


@dataclass(frozen=True, slots=True)
class UserDashboard:
    path: Path
    document: dict[str, Any]
    """Its JSON; the uid comes from the file's name where the file sets none, so that it stays the same."""

    @property
    def file_name(self) -> str:
        return f"{self.path.name.removesuffix(SUFFIX)}.json"


def load_dashboards(directory: Path, *, taken: Iterable[str] = ()) -> list[UserDashboard]:
    """Run every ``*.dashboard.py`` below a folder, in order of their names.

    Args:
        taken: uids that other dashboards have already.

    Raises:
        UsageError: the folder is missing or has no such file.
        ConfigError: a file raises, has no ``dashboard``, or has another's uid; names all of them.
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
        try:
            document = _document(path)
        except ConfigError as error:
            problems += error.problems
            continue
        uid = document["uid"]
        if uid in owners:
            problems.append(f"{path}: uid {uid!r} is that of {owners[uid]} too; give one of them another")
        owners.setdefault(uid, str(path))
        loaded.append(UserDashboard(path, document))
    if problems:
        raise ConfigError(problems)
    return loaded


def _document(path: Path) -> dict[str, Any]:
    try:
        variables = runpy.run_path(str(path))
    except Exception as error:
        raise ConfigError([f"{path}:{_line(error, path)}: raises {type(error).__name__}: {error}"]) from None
    made = variables.get("dashboard")
    if made is None:
        raise ConfigError([f"{path}: has no variable `dashboard`; assign your grafanalib Dashboard to it"])
    if not isinstance(made, g.Dashboard):
        raise ConfigError([f"{path}: `dashboard` is a {type(made).__name__}, not a grafanalib Dashboard"])
    try:
        document = dashboard_json(made)
    except Exception as error:
        raise ConfigError([f"{path}: `dashboard` can't be written as JSON: {error}"]) from None
    document.setdefault("uid", _uid(path))
    return document


def _line(error: Exception, path: Path) -> int:
    """The line of the file itself at which it failed, however deep in a library the error came up."""
    if isinstance(error, SyntaxError):
        return error.lineno or 1
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno or 1 for frame in reversed(frames) if frame.filename == str(path)), 1)


def _uid(path: Path) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", path.name.removesuffix(SUFFIX)).strip("-")[:_LONGEST_UID]
