"""The stack's files: Docker Compose, and the configuration of everything in it."""

from __future__ import annotations

from otelkit.compose.generate import (
    HEADER,
    Address,
    Place,
    default_spec_text,
    generate,
    generate_for_processes,
    starters,
)

__all__ = [
    "HEADER",
    "Address",
    "Place",
    "default_spec_text",
    "generate",
    "generate_for_processes",
    "starters",
]
