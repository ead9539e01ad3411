"""Read the changes of an incident bundle."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from otelkit.model import UNSET, ChangeSource, ParameterChange
from otelkit.query.bundle import CHANGES
from otelkit.query.bundle_problems import LATEST_SECONDS, Problems, messages


def unix_seconds(value: Any) -> Any:
    """Unix seconds from a number, or from an ISO date and time with its offset.

    Raises:
        ValueError: it is no time, has no offset, or is no Unix seconds.
    """
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"{value!r} is no time; write Unix seconds or 2026-03-01T14:00:00+01:00"
            ) from None
        if moment.tzinfo is None:
            raise ValueError(f"{value!r} has no offset from UTC; write for instance {value}+00:00")
        return moment.timestamp()
    if isinstance(value, int | float) and abs(value) >= LATEST_SECONDS:
        raise ValueError(f"{value!r} is too large for Unix seconds; is it in milliseconds?")
    return value


_Time = Annotated[float, BeforeValidator(unix_seconds), Field(allow_inf_nan=False)]


_Share = Annotated[float, Field(ge=0, le=1)]


class _ChangeLine(BaseModel):
    """One line of ``changes.jsonl``."""

    model_config = ConfigDict(extra="forbid")

    service: str = Field(min_length=1)
    parameter: str = Field(min_length=1)
    old: Any = UNSET
    new: Any = UNSET
    first_seen: _Time
    last_seen: _Time | None = None
    scope: str = ""
    source: ChangeSource = ChangeSource.OBSERVED
    workers: int = Field(default=1, ge=1)
    origin: str = ""
    effective_at: _Time | None = None
    shares: tuple[_Share, _Share] | None = None


def read_changes(problems: Problems) -> tuple[ParameterChange, ...]:
    """The changes, oldest first; what is wrong with a line is noted, and the line left out."""
    changes = []
    for number, line in enumerate((problems.text_of(CHANGES) or "").split("\n"), 1):
        if not line.strip():
            continue
        try:
            read = _ChangeLine.model_validate(json.loads(line))
        except json.JSONDecodeError as error:
            problems.add(CHANGES, f"is not JSON: {error.msg} at column {error.colno}", number)
            continue
        except ValidationError as error:
            for message in messages(error):
                problems.add(CHANGES, message, number)
            continue
        if read.old is UNSET and read.new is UNSET:
            problems.add(CHANGES, "has neither old nor new", number)
        last_seen = read.first_seen if read.last_seen is None else read.last_seen
        if last_seen < read.first_seen:
            problems.add(CHANGES, "last_seen: lies before first_seen", number)
        changes.append(ParameterChange(**dict(read) | {"last_seen": last_seen}))
    return tuple(sorted(changes, key=lambda change: (change.first_seen, change.service, change.parameter)))
