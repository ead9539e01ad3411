"""otelkit's environment variables: good ones are read, bad ones are named and change nothing."""

from __future__ import annotations

import math
from dataclasses import fields

from otelkit.emit import settings
from otelkit.emit.settings import Settings


def test_every_variable_is_read() -> None:
    """Otherwise a documented variable would have no effect."""
    read, problems = settings.read(
        {
            settings.PROMETHEUS_HOST: "0.0.0.0",
            settings.PROMETHEUS_PORT: "9464",
            settings.LATENCY_SLO: "0.8, 1.5",
            settings.SPANS_PER_SECOND: "inf",
            settings.SPANS_PER_GENERATION: "100",
            settings.BUFFER_BYTES: "1000",
            settings.BATCH_BYTES: "500",
            settings.RETRY_SECONDS: "3.5",
            settings.QUEUE_SIZE: "7",
            settings.LABEL_SETS: "9",
            settings.SHUTDOWN_SECONDS: "0.5",
        }
    )
    assert problems == []
    assert read == Settings("0.0.0.0", 9464, (0.8, 1.5), math.inf, 100, 1000, 500, 3.5, 7, 9, 0.5)
    assert all(getattr(read, field.name) != field.default for field in fields(Settings))


def test_bad_values_are_all_named_and_leave_the_defaults() -> None:
    """Otherwise a typing error would take a service down at its start, or be found one at a time."""
    bad = {
        settings.PROMETHEUS_PORT: "http",
        settings.LATENCY_SLO: "fast",
        settings.SPANS_PER_SECOND: "-1",
        settings.SPANS_PER_GENERATION: "0",
        settings.BUFFER_BYTES: "32MiB",
        settings.RETRY_SECONDS: "nan",
    }
    read, problems = settings.read(bad)
    assert read == Settings()
    assert len(problems) == len(bad)
    for (variable, value), problem in zip(bad.items(), problems, strict=True):
        assert variable in problem
        assert repr(value) in problem


def test_empty_variables_count_as_unset() -> None:
    """Otherwise `VARIABLE=` in a compose file would be an error, unlike for OTEL_* variables."""
    assert settings.read({settings.PROMETHEUS_PORT: "", settings.LATENCY_SLO: " "}) == (Settings(), [])
