"""The incidents that the documentation reads: each command as printed, and what it must find."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_cli_explain import otelkit

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "incidents.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^    \$ otelkit (.+)$", PAGE, re.M)

TOLD = {
    "longer-answers --service chat": (r"max_tokens 8 -> 16 .*causal: \d+ % longer outputs", None),
    "surge --service chat": (r"seed .*no effect: .*but offered load moved", r"\bcausal: "),
    "deploy --service chat": (r"top_k .*correlated only: .*the other services moved", r"\bcausal: "),
    "dependency": (
        r"route_weight .*not by it .*correlated only: .*search.*\n(.*\n)*.*model .*causal: .*slower tokens",
        r"route_weight .*causal: ",
    ),
    "two-changes --service chat --at 2023-11-14T23:29+00:00": (r"made it\n +model .* [89]\d %\n", None),
    "two-changes --service chat": (r"model .*causal: .*slower tokens", r"timeout .*causal: "),
}
"""Incident and options -> what must stand in the output, and what must not."""


def test_every_command_of_the_page_is_known_here() -> None:
    """Broken if the page printed a command whose answer nobody checks."""
    assert [command.removeprefix("explain --bundle docs/incidents/") for command in COMMANDS] == list(TOLD)


@pytest.mark.parametrize("command", COMMANDS)
def test_incidents_are_read_as_the_page_says(command: str) -> None:
    """Broken if a reader who runs a printed command gets another cause than the page tells of."""
    done = otelkit(*shlex.split(command), cwd=ROOT)
    assert done.returncode in (0, 3), done.stderr
    there, never = TOLD[command.removeprefix("explain --bundle docs/incidents/")]
    assert re.search(there, done.stdout), done.stdout
    assert never is None or not re.search(never, done.stdout), done.stdout
    assert (done.returncode == 3) == bool(re.search(r"\bcausal: |P99 of chat rose", done.stdout))


def test_the_page_links_to_what_is_there() -> None:
    """Broken if a link of the page led nowhere."""
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
