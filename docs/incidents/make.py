"""Write the simulated incidents that docs/incidents.md reads: ``python docs/incidents/make.py``. With
``--text``, run the page's commands instead, and put what they print under them.

Each is a scenario of the causal benchmark, cut to an hour and a half around changes of one service, and with
names that say what they are. The same scenario gives the same files.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parent.parent
PAGE: Final = HERE.with_suffix(".md")
PROMPT: Final = "    $ otelkit "
sys.path.insert(0, str(ROOT))

from benchmarks.causal import kinds  # noqa: E402  (found by the line above)
from otelkit.causal.windows import cut  # noqa: E402
from otelkit.model import ParameterChange  # noqa: E402
from otelkit.query.bundle import write_bundle  # noqa: E402
from otelkit.query.panel import Panel  # noqa: E402

INCIDENTS: Final = {
    "surge": ("surge", 3),
    "deploy": ("deploy", 3),
    "dependency": ("dependency", 27),
    "two-changes": ("two_close_one_real", 5),
}
"""Folder -> kind of scenario and its seed."""
NAMES: Final = ("chat", "search", "embed", "summarise", "translate", "rank")
MOST_SERVICES: Final = 4
AROUND_SECONDS: Final = 2700.0
VALUES: Final[dict[str, tuple[Any, Any]]] = {
    "cache_ttl": (300, 600),
    "log_level": ("info", "debug"),
    "max_num_seqs": (16, 32),
    "max_tokens": (256, 512),
    "model": ("small-2026-08", "small-2026-11"),
    "presence_penalty": (0.0, 0.4),
    "prompt_template": ("v7", "v8"),
    "rate_limit": (40, 25),
    "route_weight": (0.1, 0.5),
    "seed": (1, 4181),
    "timeout": (30, 60),
    "top_k": (40, 50),
    "user_tag": ("a", "b"),
}
THRESHOLDS: Final = {"max_tokens": 0.12, "rate_limit": 0.085, "route_weight": 0.12}


def incident(kind: str, seed: int) -> tuple[Panel, list[ParameterChange]]:
    """Series and changes as a bundle holds them."""
    scenario = kinds.scenario(kind, seed)
    times = [change.first_seen for change in scenario.changes if change.service == kinds.TARGET]
    at = times[(len(times) - 1) // 2]
    panel = named(cut(scenario.panel, at - AROUND_SECONDS, at + AROUND_SECONDS))
    kept = [
        replace(change, service=name_of(change.service), old=values[0], new=values[1])
        for change in scenario.changes
        if (values := VALUES[change.parameter]) and name_of(change.service) in panel.services
    ]
    begin, end = float(panel.times[0]), float(panel.times[-1])
    return panel, [change for change in kept if begin < change.first_seen < end]


def named(panel: Panel) -> Panel:
    """The panel with services by name: the one in question, those that it calls, and a few others."""
    called = panel.dependencies.get(kinds.TARGET, ())
    others = [name for name in panel.services if name not in (kinds.TARGET, *called)]
    kept = (kinds.TARGET, *called, *others)[:MOST_SERVICES]
    return replace(
        panel,
        services={
            name_of(name): replace(series, service=name_of(name))
            for name, series in panel.services.items()
            if name in kept
        },
        dependencies={
            name_of(name): tuple(map(name_of, below))
            for name, below in panel.dependencies.items()
            if name in kept
        },
    )


def name_of(service: str) -> str:
    return NAMES[int(service.rpartition("-")[2])]


def write_text() -> None:
    """Put the output of each ``$ otelkit ...`` of the page in place of the lines that follow it."""
    lines: list[str] = []
    replaced = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith(PROMPT):
            command = [sys.executable, "-m", "otelkit.cli.main", *shlex.split(line[len(PROMPT) :])]
            done = subprocess.run(
                command,
                cwd=ROOT,
                env={**os.environ, "TZ": "UTC"},
                capture_output=True,
                text=True,
                check=False,
            )
            lines += [line, *(f"    {text}".rstrip() for text in done.stdout.splitlines())]
            replaced = True
        elif not (replaced and (line.startswith("    ") or not line)):
            lines += ["", line] if replaced else [line]
            replaced = False
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_bundles() -> None:
    for folder, (kind, seed) in INCIDENTS.items():
        panel, changes = incident(kind, seed)
        parameters = {change.parameter for change in changes if change.service == NAMES[0]}
        stated = {name: value for name, value in THRESHOLDS.items() if name in parameters}
        write_bundle(HERE / folder, panel, changes, thresholds={NAMES[0]: stated} if stated else {})
        print(f"{folder}: {kind}, seed {seed}", file=sys.stderr)


def main() -> None:
    if sys.argv[1:] == ["--text"]:
        write_text()
    else:
        write_bundles()


if __name__ == "__main__":
    main()
