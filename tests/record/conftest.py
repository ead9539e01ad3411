"""What the recorder's tests share: a provider's server, an in-memory recording, and a guard against ERROR
logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from wire_server import Wire, serve

from otelkit import testing
from otelkit.record import paused
from otelkit.testing import Recorded


@pytest.fixture
def wire() -> Iterator[Wire]:
    with serve() as wire:
        yield wire


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams that were left alone are reported soon."""
    monkeypatch.setattr(paused, "GRACE_SECONDS", 0.05)


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with testing.recording() as recorded:
        yield recorded


@pytest.fixture(autouse=True)
def no_error_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Peers log `Failed to detach context` and the like, or write to ended spans; otelkit must not,
    on any exit path."""
    yield
    errors = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.ERROR
        or (record.levelno >= logging.WARNING and record.name.startswith("opentelemetry"))
    ]
    assert not errors
