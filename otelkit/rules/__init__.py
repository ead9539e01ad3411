"""Prometheus rules from a spec, through Jinja2 templates that read like the rule files they make."""

from __future__ import annotations

from otelkit.rules.generate import HEADER, evaluation_interval, generate

__all__ = ["HEADER", "evaluation_interval", "generate"]
