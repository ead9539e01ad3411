"""What was asked of a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from otelkit.model import ParameterValue


@dataclass(slots=True)  # not frozen: that triples the cost of making one
class Request:
    """What an adapter read from a request, before it is sent."""

    provider: str
    operation: str
    model: str
    parameters: Mapping[str, ParameterValue]
    """Under the convention's names."""
    originals: Mapping[str, ParameterValue] = field(default_factory=dict)
    """Parameters that the convention calls by another name, as the provider calls them."""
    streamed: bool = False
    location: str = ""
    request_id: str = ""
    """``x-request-id`` that is sent along; empty for that of the request being served."""
    server_address: str = ""
    server_port: int | None = None
    sent: tuple[object, Mapping[str, Any]] | None = field(default=None, compare=False)
    """The span's attributes of the request once they were asked for, and the rules that they were made by."""
