"""A ``docker`` that says what a test wants it to say: a script in a folder that is put on PATH."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from otelkit.compose.layout import PARTS
from otelkit.compose.machine import port_error

_SCRIPT = """\
#!{python} -IS
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
said = " ".join(sys.argv[1:])
for rule in json.loads((here / "answers.json").read_text()):
    if rule["words"] in said:
        sys.stdout.write(rule["out"])
        sys.stderr.write(rule["error"])
        sys.exit(rule["code"])
sys.exit("fake docker: nobody said what to answer to: " + said)
"""


@dataclass
class FakeDocker:
    """Answers by the first rule whose words are in the command line."""

    folder: Path
    rules: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        binary = self.folder / "docker"
        binary.write_text(_SCRIPT.format(python=sys.executable))
        binary.chmod(0o755)
        self._write()

    def answers(self, words: str, out: str = "", *, error: str = "", code: int = 0) -> None:
        """Say what the command with these words gives; what is said last comes first."""
        self.rules.insert(0, {"words": words, "out": out, "error": error, "code": code})
        self._write()

    def calls(self) -> list[list[str]]:
        """All command lines so far."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def _write(self) -> None:
        (self.folder / "answers.json").write_text(json.dumps(self.rules))


def healthy(folder: Path) -> FakeDocker:
    """An engine as it should be, with nothing of the stack on it."""
    docker = FakeDocker(folder)
    docker.answers("version --format", "28.2.2\n")
    docker.answers("compose version", "2.40.3-3\n")
    docker.answers("info --format", json.dumps({"MemTotal": 8 << 30, "DockerRootDir": "/"}))
    docker.answers("volume ls", "")
    docker.answers("ps --all", "")
    docker.answers("config --services", "".join(f"{part.name}\n" for part in PARTS))
    return docker


def free_ports() -> dict[str, str]:
    """A free port for each variable, so that what runs on this machine is no finding.

    Below those that the system hands out to others in between.
    """
    numbers = iter(random.Random().sample(range(20_000, 32_000), 2_000))
    free = (port for port in numbers if port_error(port) is None)
    return {variable: str(next(free)) for part in PARTS for variable, _ in part.ports}
