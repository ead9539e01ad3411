"""What emission says to a reader of the service's log: each thing once."""

from __future__ import annotations

import logging
from typing import Final

logger: Final = logging.getLogger("otelkit")
_said: Final[set[str]] = set()


def say_once(message: str) -> None:
    """Warn, unless the same was said before in this process."""
    if message not in _said:
        _said.add(message)
        logger.warning(message)
