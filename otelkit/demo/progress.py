"""What the user sees while the demo runs, on stderr: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

_LINE_EVERY_SECONDS: Final = 30.0


def say(text: str) -> None:
    """One line on stderr."""
    print(text, file=sys.stderr, flush=True)


class LoadProgress:
    """Progress of the load over ``seconds``."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._bar: Progress | None = None
        self._task = TaskID(0)
        self._next_line = _LINE_EVERY_SECONDS
        if sys.stderr.isatty():
            self._bar = Progress(
                TextColumn("load"),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[state]}"),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("load", total=seconds, state="")

    def update(self, elapsed: float, *, sent: int, answered: int, failed: int) -> None:
        """Show the state ``elapsed`` seconds after the start."""
        under_way = sent - answered
        state = f"{sent} requests sent, {under_way} under way" + (f", {failed} failed" if failed else "")
        if self._bar is not None:
            self._bar.update(self._task, completed=min(elapsed, self._seconds), state=state)
        elif elapsed >= self._next_line:
            self._next_line += _LINE_EVERY_SECONDS
            say(f"load: {elapsed:.0f} of {self._seconds:.0f} s, {state}")

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
