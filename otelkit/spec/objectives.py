"""Objectives and alerts of a service, as ``otelkit.yaml`` states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from otelkit import semconv
from otelkit.spec.durations import Duration
from otelkit.spec.matchers import BOUND_LABEL, parse_matchers
from otelkit.spec.values import Seconds, Share

Severity = Literal["page", "ticket"]


def _checked_matchers(text: str) -> str:
    if any(matcher.label == BOUND_LABEL for matcher in parse_matchers(text)):
        raise ValueError(f"{text!r} would pick no call: calls are counted without {BOUND_LABEL}")
    return text


def _recorded(quantile: float) -> float:
    if quantile not in semconv.RECORDED_QUANTILES:
        known = ", ".join(f"{one:g}" for one in semconv.RECORDED_QUANTILES)
        raise ValueError(f"{quantile:g} is not recorded; recorded are {known}")
    return quantile


Matchers = Annotated[str, AfterValidator(_checked_matchers)]
MinCalls = Annotated[int, Field(ge=1)]

DEFAULT_MIN_CALLS: Final = 5
"""More than one failing call makes with three retries of its client: nobody is woken for that."""


class Strict(BaseModel):
    """A mapping of the file: a key that is not known is an error, since it would else silently do nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


@dataclass(frozen=True, slots=True)
class BurnAlert:
    """One pair of windows: fires when the error budget burns too fast over both of them."""

    name: str
    short: Duration
    """Ends the alert soon after the burning ends."""
    long: Duration
    budget_share: float
    """Share of the budget that is gone when the long window has burnt at the threshold throughout."""
    severity: Severity

    def factor(self, window: Duration) -> float:
        """How many times faster than sustainable the budget of ``window`` burns at the threshold."""
        return round(self.budget_share * window.seconds / self.long.seconds, 6)


BURN_ALERTS: Final = (
    BurnAlert("5m/1h", Duration.parse("5m"), Duration.parse("1h"), 0.02, "page"),
    BurnAlert("30m/6h", Duration.parse("30m"), Duration.parse("6h"), 0.05, "page"),
    BurnAlert("2h/1d", Duration.parse("2h"), Duration.parse("1d"), 0.10, "ticket"),
    BurnAlert("6h/3d", Duration.parse("6h"), Duration.parse("3d"), 0.10, "ticket"),
)
"""For 30 days the factors are 14.4, 6, 3 and 1."""

BurnAlertName = Literal["5m/1h", "30m/6h", "2h/1d", "6h/3d"]


class Slo(Strict):
    """An objective: a share of calls that must be fast, or that must not fail."""

    name: str = Field(default="", description="Value of the label `slo`; else `latency` or `errors`.")
    latency: Seconds | None = Field(default=None, description="Calls slower than this break the objective.")
    quantile: Share = Field(default=0.99, description="Share of calls that must be faster (0.99: P99).")
    errors: Share | None = Field(default=None, description="Share of calls that may fail, for instance 0.1%.")
    matching: Matchers | None = Field(
        default=None, description='Which calls count as failed, if not those of the service: code=~"5..".'
    )
    window: Duration = Field(default=Duration.parse("30d"), description="The span that the budget is for.")
    burn_alerts: tuple[BurnAlertName, ...] | None = Field(
        default=None,
        min_length=1,
        description="Which burn-rate alerts to write; all that make sense if not given.",
    )

    min_calls: MinCalls = Field(
        default=DEFAULT_MIN_CALLS,
        description="Alerts need at least this many calls that broke the objective, over their long window.",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.latency is None) == (self.errors is None):
            raise ValueError("needs either latency: or errors:, as an objective is about one of them")
        if self.matching is not None and self.errors is None:
            raise ValueError("matching: says which calls failed, so it goes with errors:, not with latency:")
        if self.budget <= 0:
            raise ValueError(
                f"quantile: {self.quantile!r} leaves no calls that may break it; use 0.9999 or less"
            )
        return self

    @property
    def label(self) -> str:
        return self.name or ("latency" if self.latency is not None else "errors")

    @property
    def budget(self) -> float:
        """Share of calls that may break the objective."""
        return self.errors if self.errors is not None else round(1 - self.quantile, 12)

    @property
    def alerts(self) -> tuple[BurnAlert, ...]:
        """Burn-rate alerts: those asked for, else all whose threshold lies above what the budget sustains."""
        if self.burn_alerts is not None:
            return tuple(alert for alert in BURN_ALERTS if alert.name in self.burn_alerts)
        return tuple(alert for alert in BURN_ALERTS if alert.factor(self.window) >= 1)


class Alert(Strict):
    """An alert on a level: a quantile of latency, or a share of calls."""

    name: str = Field(
        default="", description="Value of the label `alert_on`; made from the rest if not given."
    )
    latency_above: Seconds | None = Field(default=None, description="Fires while the quantile is above this.")
    quantile: Annotated[float, AfterValidator(_recorded)] = Field(
        default=0.95, description="The quantile that is compared: 0.5, 0.95 or 0.99."
    )
    errors_above: Share | None = Field(default=None, description="Fires while this share of calls fails.")
    matching: Matchers | None = Field(
        default=None, description='Which calls count, if not the service\'s failed ones: code=~"4..".'
    )
    for_: Duration = Field(
        default=Duration.parse("5m"), alias="for", description="How long it must last before the alert fires."
    )
    severity: Severity = Field(default="ticket", description="Where Alertmanager sends it.")
    min_calls: MinCalls = Field(
        default=DEFAULT_MIN_CALLS,
        description="Fires only if at least this many calls failed in its window (for latency: ended).",
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.latency_above is None) == (self.errors_above is None):
            raise ValueError("needs either latency_above: or errors_above:, as an alert is about one of them")
        if self.matching is not None and self.errors_above is None:
            raise ValueError("matching: says which calls count, so it goes with errors_above:")
        return self

    @property
    def label(self) -> str:
        if self.name:
            return self.name
        return "errors" if self.latency_above is None else semconv.quantile_text(self.quantile)


class Parameter(Strict):
    """A parameter whose changes matter."""

    name: str = Field(min_length=1)
    threshold: Seconds | None = Field(
        default=None,
        description="Effect on P99 from which a change of it is one to act on, for instance 120ms.",
    )
