"""For ``opentelemetry-instrument``: found through the ``opentelemetry_instrumentor`` entry points.

Needs the extra ``otelkit[auto]``. One instrumentor serves all providers: which clients are there is found out
as they are imported.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor  # type: ignore[attr-defined]

import otelkit


class Instrumentor(BaseInstrumentor):  # type: ignore[misc]
    """``otelkit.instrument()`` in OpenTelemetry's own terms; together with other ways to switch it on it
    doubles nothing."""

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **kwargs: Any) -> None:
        otelkit.instrument()

    def _uninstrument(self, **kwargs: Any) -> None:
        otelkit.uninstrument()
