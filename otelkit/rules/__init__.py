"""Prometheus rules from a spec, through Jinja2 templates that read like the rule files they make."""

from __future__ import annotations

from otelkit.rules.generate import (
    HEADER,
    Generated,
    as_one_file,
    generate,
    generate_alertmanager,
    generate_with_warnings,
    runbooks,
)
from otelkit.rules.steps import evaluation_interval

__all__ = [
    "HEADER",
    "Generated",
    "as_one_file",
    "evaluation_interval",
    "generate",
    "generate_alertmanager",
    "generate_with_warnings",
    "runbooks",
]
