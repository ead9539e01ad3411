"""The verdicts for people and programs: a terminal table, JSON, and one self-contained HTML page."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from otelkit.report.document import from_json as from_json
    from otelkit.report.document import json_schema as json_schema
    from otelkit.report.document import to_json as to_json
    from otelkit.report.exemplars import Exemplars as Exemplars
    from otelkit.report.exemplars import choose_exemplars as choose_exemplars
    from otelkit.report.jumps import jumps_to_json as jumps_to_json
    from otelkit.report.jumps import render_jumps as render_jumps
    from otelkit.report.page import render_page as render_page
    from otelkit.report.table import render_table as render_table

_HOMES = {
    "Exemplars": "exemplars",
    "choose_exemplars": "exemplars",
    "from_json": "document",
    "json_schema": "document",
    "jumps_to_json": "jumps",
    "render_jumps": "jumps",
    "render_page": "page",
    "render_table": "table",
    "to_json": "document",
}
"""Public name -> its module: the terminal table must not wait for Jinja, nor JSON for rich."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_HOMES)
