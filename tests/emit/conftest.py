"""What several tests of deliveries share."""

from __future__ import annotations

import pytest
from emit_deliveries import Tally

from otelkit.emit.otlp import delivery


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first retry comes soon."""
    monkeypatch.setattr(delivery, "FIRST_BACKOFF", 0.02)


@pytest.fixture
def tally() -> Tally:
    return Tally()
