"""``otelkit.yaml``: the services, and which metrics hold their latency, errors, tokens and load."""

from __future__ import annotations

from otelkit.spec.durations import Duration
from otelkit.spec.loader import SPEC_FILE, load_spec, parse_spec
from otelkit.spec.matchers import Matcher, parse_matchers, selector
from otelkit.spec.model import Latency, Service, ServiceMetrics, Spec
from otelkit.spec.presets import PRESETS, Preset, Series

__all__ = [
    "PRESETS",
    "SPEC_FILE",
    "Duration",
    "Latency",
    "Matcher",
    "Preset",
    "Series",
    "Service",
    "ServiceMetrics",
    "Spec",
    "load_spec",
    "parse_matchers",
    "parse_spec",
    "selector",
]
