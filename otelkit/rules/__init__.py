"""Prometheus rules from a spec, through Jinja2 templates that read like the rule files they make."""

from __future__ import annotations

from otelkit.rules.generate import HEADER, as_one_file, evaluation_interval, generate

__all__ = ["HEADER", "as_one_file", "evaluation_interval", "generate"]
