"""otelkit: which parameter change moved this service's P99, by how much, and through what?"""

from __future__ import annotations

__version__ = "0.1.0"
