"""Jinja2 templates of the stack's files, and how they are rendered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

SUFFIX: Final = ".j2"


def _environment() -> Environment:
    # YAML has `<<:`, and Grafana, Prometheus and Docker have braces of their own; none has double brackets.
    environment = Environment(
        loader=PackageLoader("otelkit.compose"),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        variable_start_string="[[",
        variable_end_string="]]",
        block_start_string="[%",
        block_end_string="%]",
        comment_start_string="[#",
        comment_end_string="#]",
    )
    environment.filters["json"] = partial(json.dumps, ensure_ascii=False)
    return environment


def render(name: str, context: Mapping[str, Any]) -> str:
    """The text that the template of ``name`` gives; a name that the context lacks is an error."""
    return _environment().get_template(name + SUFFIX).render(context)
