"""A service with a real model, a load from a real trace, scripted changes, and the verdict on them."""

from __future__ import annotations

from collections.abc import Sequence

from otelkit.errors import UsageError


def missing_packages(names: Sequence[str]) -> UsageError:
    """The error that says that the demo's optional packages are not installed."""
    return UsageError(
        f"otelkit demo needs packages that are not installed: {', '.join(names)}.",
        hint="Install them: pip install 'otelkit[demo]'",
    )
