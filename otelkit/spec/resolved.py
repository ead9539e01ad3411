"""A service with every default filled in: what rules are written from and series are read by."""

from __future__ import annotations

from dataclasses import dataclass

from otelkit import semconv
from otelkit.spec.durations import Duration
from otelkit.spec.matchers import Matcher
from otelkit.spec.objectives import Alert, Parameter, Slo
from otelkit.spec.presets import Preset, Series


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """One service of a spec."""

    name: str
    preset: Preset
    latency: str
    """The latency histogram, without ``_bucket``."""
    unit: str
    """``s`` or ``ms``: unit of the latency histogram."""
    native: bool
    """Histograms are native ones (or converted by Prometheus on scraping), so there is no ``_bucket``."""
    buckets: tuple[float, ...] | None
    """Finite bounds of the latency histogram in its own unit, ascending; None where they are not known."""
    sharpened: tuple[float, ...]
    """What OTELKIT_LATENCY_SLO_SECONDS is stated to hold in the service, in seconds."""
    service_label: str
    own_selector: bool
    """Picked by matchers of its own rather than by the label that names services."""
    matchers: tuple[Matcher, ...]
    """Pick the service's series in its own metrics."""
    errors: tuple[Matcher, ...]
    """Which calls of the latency histogram failed."""
    failures: Series | None
    """Counter of calls that failed, where the latency histogram does not tell them apart."""
    base_window: Duration
    windows: tuple[Duration, ...]
    """Ascending, each once."""
    split_by: tuple[str, ...]
    slos: tuple[Slo, ...]
    alerts: tuple[Alert, ...]
    alert_when_absent: bool
    parameters: tuple[Parameter, ...]
    """Parameters of interest."""
    controls: tuple[str, ...] | None
    """Services to compare it with; None for all that it has no part in."""
    depends_on: tuple[str, ...]

    @property
    def tells_failures(self) -> bool:
        return bool(self.errors) or self.failures is not None

    @property
    def seconds_per_unit(self) -> float:
        return 0.001 if self.unit == "ms" else 1.0

    @property
    def recorded_latency(self) -> str:
        """The part of recorded bucket series' names that states the unit of their bounds."""
        return semconv.RECORDED_LATENCY_MS if self.unit == "ms" else semconv.RECORDED_LATENCY

    @property
    def recorded_by_otelkit(self) -> bool:
        """Its latency histogram is the one that otelkit writes, whose bounds a variable sharpens."""
        return self.latency == semconv.METRIC_OPERATION_DURATION

    @property
    def worth_fine_bounds(self) -> tuple[float, ...]:
        """Latencies in seconds that it has an objective or alert on, or says its bounds are fine around."""
        objectives = (slo.latency for slo in self.slos)
        levels = (alert.latency_above for alert in self.alerts)
        stated = {one for one in (*objectives, *levels) if one is not None}
        return tuple(sorted(stated.union(self.sharpened))) if self.recorded_by_otelkit else ()

    def threshold(self, parameter: str) -> float | None:
        """Seconds of effect on P99 from which a change of a parameter is one to act on, if stated."""
        return next((one.threshold for one in self.parameters if one.name == parameter), None)

    def in_own_unit(self, seconds: float) -> float:
        """A threshold as the latency histogram's bounds would write it."""
        return round(seconds / self.seconds_per_unit, 9)
