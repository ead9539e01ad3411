"""``otelkit.yaml``: the services, and which metrics hold their latency, errors, tokens and load."""

from __future__ import annotations

from otelkit.spec.durations import Duration
from otelkit.spec.loader import SPEC_FILE, load_spec, parse_spec
from otelkit.spec.matchers import Matcher, escaped, label_name, parse_matchers, selector
from otelkit.spec.model import RUNBOOKS, Latency, Links, Service, Spec
from otelkit.spec.objectives import BURN_ALERTS, DEFAULT_MIN_CALLS, Alert, BurnAlert, Parameter, Slo
from otelkit.spec.presets import PRESETS, Preset, Series
from otelkit.spec.resolved import ServiceMetrics
from otelkit.spec.schema import json_schema, json_schema_text

__all__ = [
    "BURN_ALERTS",
    "DEFAULT_MIN_CALLS",
    "PRESETS",
    "RUNBOOKS",
    "SPEC_FILE",
    "Alert",
    "BurnAlert",
    "Duration",
    "Latency",
    "Links",
    "Matcher",
    "Parameter",
    "Preset",
    "Series",
    "Service",
    "ServiceMetrics",
    "Slo",
    "Spec",
    "escaped",
    "json_schema",
    "json_schema_text",
    "label_name",
    "load_spec",
    "parse_matchers",
    "parse_spec",
    "selector",
]
