"""The README's commands, as printed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from otelkit.cli.main import cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    line.split("  #")[0].strip()
    for line in README.splitlines()
    if re.match(r" {4}(make|otelkit|pip|printf) ", line)
]


def _otelkit_commands() -> list[str]:
    return [command for command in COMMANDS if command.startswith("otelkit ")]


def test_first_screen_names_the_two_commands() -> None:
    """Broken if a newcomer had to look for how to begin."""
    first_screen = "\n".join(README.splitlines()[:12])
    assert "    make demo" in first_screen and "    make test" in first_screen


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("make ")])
def test_make_targets_exist(command: str) -> None:
    """Broken if the README names a target that make does not have."""
    done = subprocess.run(
        [*shlex.split(command), "--dry-run"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", _otelkit_commands())
def test_commands_take_the_options_printed(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken if an option in the README is misspelt, was renamed, or a verb is gone."""
    words = shlex.split(command)[1:]
    for name in re.findall(r"\S+\.gguf", command):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    with cli.make_context("otelkit", words) as context:
        arguments = [*context._protected_args, *context.args]
        parent: click.Command = cli
        while isinstance(parent, click.Group):
            name, found, arguments = parent.resolve_command(context, arguments)
            assert found is not None
            context = found.make_context(name, arguments, parent=context)
            arguments = [*context._protected_args, *context.args]
            parent = found


def test_rules_come_out_of_the_spec_printed(tmp_path: Path) -> None:
    """Broken if the three-line spec of the README were refused, or made no P99 rule."""
    commands = [c for c in COMMANDS if c.startswith(("printf", "otelkit generate rules"))]
    assert len(commands) == 2
    scripts = str(Path(sys.executable).parent)
    for command in commands:
        subprocess.run(
            ["sh", "-ec", command],
            cwd=tmp_path,
            check=True,
            env={**os.environ, "PATH": scripts + os.pathsep + os.environ["PATH"]},
        )
    written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "rules").glob("*.yaml"))
    assert "record: service:p99_latency_seconds:quantile\n" in written


def test_links_lead_somewhere() -> None:
    """Broken if a page or picture that the README shows is not in the repository."""
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", README) if not t.startswith("http")]
    assert targets
    missing = [target for target in targets if not (ROOT / target).exists()]
    assert not missing
