"""A figure with the goal it has to reach."""

from __future__ import annotations

from typing import Any


def bar(
    name: str, value: float, *, at_least: float | None = None, at_most: float | None = None
) -> dict[str, Any]:
    """An entry of ``bars``. The figure is rounded to four digits after the point, once it has been judged."""
    met = (at_least is None or value >= at_least) and (at_most is None or value <= at_most)
    goal = f">= {at_least:g}" if at_least is not None else f"<= {at_most:g}"
    return {"name": name, "value": round(value, 4), "goal": goal, "ok": met}
