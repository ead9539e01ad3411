"""A .env file means to otelkit what it means to Docker Compose."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from otelkit.compose import dotenv
from otelkit.compose.engine import Docker
from otelkit.compose.settings import Settings
from otelkit.errors import ConfigError

_FILE = r"""
# V0=comment
V1="a # b"
V2='a # b' # c
V3=a#b
V4 = spaced
V5: colon
export V6=exported
V7="tab\tand \"quote\""
V8=${V3}x
V9='$V3'
V10=
V11="${ABSENT:-fallback}"
V12=a b   # c
V13="two
lines"
V14= # no comment
V15=a\nb
V16="\$V2 $$x"
V17=${V3:+set}|${ABSENT-unset}|${V10:-empty}
V18
V19=it's
V20="é"
V21=$V6!
"""
_NAMES = [f"V{number}" for number in range(1, 22)]
_OUTSIDE = {"V3": "", "V18": "from outside"}
_MEANT = {
    "V1": "a # b",
    "V2": "a # b",
    "V4": "spaced",
    "V5": "colon",
    "V6": "exported",
    "V7": 'tab\tand "quote"',
    "V8": "x",
    "V9": "$V3",
    "V11": "fallback",
    "V12": "a b",
    "V13": "two\nlines",
    "V14": "# no comment",
    "V15": "a\\nb",
    "V16": "$V2 $x",
    "V17": "|unset|empty",
    "V18": "from outside",
    "V19": "it's",
    "V20": "é",
    "V21": "exported!",
}
"""V3 and V10 are empty, which counts as not set; V3 because the environment says so."""


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_values(tmp_path: Path, ending: str) -> None:
    """Broken if quotes, comments, escapes or variables in .env changed what otelkit takes a value for."""
    text = "\ufeff" + _FILE.replace("\n", ending)
    (tmp_path / ".env").write_text(text, encoding="utf-8", newline="")
    settings = Settings(tmp_path, _OUTSIDE)
    assert {name: value for name in _NAMES if (value := settings.get(name, ""))} == _MEANT


def test_compose_takes_the_same_values(tmp_path: Path, missing: Callable[[str], NoReturn]) -> None:
    """Broken if otelkit looked at one port and Compose published another."""
    docker = Docker.found(os.environ)
    if docker is None or docker.compose_version() is None:
        missing("no `docker compose` on this machine; Debian's package is called docker-compose")
    (tmp_path / ".env").write_text(_FILE, encoding="utf-8")
    environment = {name: f"${{{name}:-}}" for name in _NAMES}
    (tmp_path / "compose.yaml").write_text(
        json.dumps({"name": "t", "services": {"a": {"image": "x", "environment": environment}}})
    )
    done = subprocess.run(
        [docker.binary, "compose", "-f", "compose.yaml", "config", "--format", "json"],
        cwd=tmp_path,
        env={**os.environ, **_OUTSIDE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    taken = json.loads(done.stdout)["services"]["a"]["environment"]
    # What it prints can be read by Compose again, so dollars are doubled.
    assert {name: value.replace("$$", "$") for name, value in taken.items() if value} == _MEANT


def test_every_line_that_makes_no_sense_is_named_without_its_value(tmp_path: Path) -> None:
    """Broken if a slip in .env was passed over here and refused by Compose, or a secret was shown."""
    path = tmp_path / ".env"
    path.write_text("A=1\nmy port=secret\nB=2\n\n=3\nC='open\nD=4\n")
    with pytest.raises(ConfigError) as refused:
        dotenv.read(path, {})
    assert [problem.removeprefix(str(path)) for problem in refused.value.problems] == [
        ":2: 'my port' is no name of a variable",
        ":5: '' is no name of a variable",
        ":6: the quote of C is never closed",
    ]


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    """Broken if bytes that are no UTF-8 were a stack trace."""
    (tmp_path / ".env").write_bytes(b"A=\xff\n")
    with pytest.raises(ConfigError, match=r"\.env: can't be read"):
        Settings(tmp_path, {})
