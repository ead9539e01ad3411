"""The shape of ``otelkit.yaml``: pydantic models that refuse unknown keys, and what they resolve to."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from otelkit import semconv
from otelkit.emit.histogram import duration_bounds
from otelkit.spec.durations import Duration
from otelkit.spec.matchers import (
    BOUND_LABEL,
    NAME_PATTERN,
    Matcher,
    checked_name,
    equality_matchers,
    parse_matchers,
)
from otelkit.spec.objectives import Alert, Matchers, Parameter, Slo, Strict
from otelkit.spec.presets import PRESETS, Preset
from otelkit.spec.resolved import ServiceMetrics
from otelkit.spec.values import Seconds

_NAME_SCHEMA: Final = WithJsonSchema({"type": "string", "pattern": NAME_PATTERN})
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")]

RUNBOOKS: Final = "runbooks"
"""Folder beside the rules for the runbooks of their alerts, where a spec names no address of its own."""
SLO_WINDOW: Final = Duration.parse("5m")
"""What burn rates are built from; recorded for every service that has an objective."""


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"{name!r} is no preset; there are {', '.join(sorted(PRESETS))}")
    return name


def _checked_selector(value: str | dict[str, str]) -> str | dict[str, str]:
    found = parse_matchers(value) if isinstance(value, str) else equality_matchers(value)
    if not found:
        raise ValueError("is empty and would pick the series of every service; name a label")
    return value


def _histogram_alone(value: Any) -> Any:
    """``latency: my_histogram`` is short for ``latency: {histogram: my_histogram}``."""
    return {"histogram": value} if isinstance(value, str) else value


def _histogram_name(name: str) -> str:
    if name.endswith("_bucket"):
        raise ValueError(f"{name!r} are a histogram's buckets; use {name.removesuffix('_bucket')}")
    return checked_name(name)


def _own_label(label: str) -> str:
    if label in (BOUND_LABEL, "__name__"):
        raise ValueError(f"{label!r} can't tell services or calls apart; name another label")
    return checked_name(label)


def _split_label(label: str) -> str:
    if label == semconv.LABEL_SERVICE:
        raise ValueError(f"all is recorded by {label!r} already; name another label")
    return _own_label(label)


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    if list(bounds) != sorted(set(bounds)):
        raise ValueError("bounds must ascend, each once")
    return bounds


PresetName = Annotated[str, AfterValidator(_known_preset)]
MetricName = Annotated[str, AfterValidator(_histogram_name), _NAME_SCHEMA]
LabelName = Annotated[str, AfterValidator(_own_label), _NAME_SCHEMA]
SplitLabel = Annotated[str, AfterValidator(_split_label), _NAME_SCHEMA]
Bound = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Windows = Annotated[tuple[Duration, ...], Field(min_length=1)]


class Latency(Strict):
    """Which histogram holds the latency, and where its bounds lie."""

    histogram: MetricName | None = Field(default=None, description="Name of the histogram, without _bucket.")
    unit: Literal["s", "ms"] | None = Field(default=None, description="Unit of its bounds.")
    buckets: Annotated[tuple[Bound, ...], Field(min_length=1), AfterValidator(_ascending)] | None = Field(
        default=None, description="Its finite bounds, in its unit; else those that the preset is known for."
    )
    sharpened: tuple[Seconds, ...] = Field(
        default=(),
        description="What OTELKIT_LATENCY_SLO_SECONDS is set to in the service: adds bounds around each.",
    )


class Service(Strict):
    """One service. What is not given here comes from the preset and from the top of the file."""

    name: str = Field(
        min_length=1, pattern=r"^[^\x00-\x1f]+$", description="The label `service` on all recorded series."
    )
    preset: PresetName | None = Field(default=None, description="The kind of service: which metrics it has.")
    selector: Annotated[str | dict[str, str], AfterValidator(_checked_selector)] | None = Field(
        default=None,
        description="Picks the service's series where they carry no label with its name: "
        'labels, or matchers as in PromQL (job="api",env=~"prod.*").',
    )
    latency: Annotated[Latency, BeforeValidator(_histogram_alone)] | None = Field(
        default=None, description="The latency histogram, where it is not the preset's."
    )
    native: bool | None = Field(
        default=None, description="Its histograms are native, or converted on scraping: no _bucket series."
    )
    service_label: LabelName | None = Field(
        default=None, description="Label that holds the service's name in its metrics."
    )
    errors: Matchers | None = Field(
        default=None, description='Matchers of failed calls, for instance code=~"5..".'
    )
    base_window: Duration | None = Field(
        default=None, description="Window of service:p99_latency_seconds:quantile."
    )
    windows: Windows | None = Field(default=None, description="Short windows recorded besides it.")
    split_by: tuple[SplitLabel, ...] | None = Field(
        default=None, description="Labels of the latency histogram to record P99 by, such as a parameter."
    )
    slos: tuple[Slo, ...] | None = Field(default=None, description="Objectives; else those at the top.")
    alerts: tuple[Alert, ...] | None = Field(default=None, description="Alerts; else those at the top.")
    alert_when_absent: bool | None = Field(
        default=None, description="Alert when the service's latency metric is gone."
    )
    parameters: tuple[Parameter, ...] | None = Field(
        default=None, description="Parameters of interest; else those at the top."
    )
    controls: tuple[str, ...] | None = Field(
        default=None, description="Services that share its load and not its changes; else all others."
    )
    depends_on: tuple[str, ...] = Field(default=(), description="Services that it calls; never its controls.")


class Links(Strict):
    """Where alerts point to."""

    runbooks: str = Field(
        default=RUNBOOKS, description="Address of your own runbooks; else pages are written beside the rules."
    )
    dashboards: str = Field(default="http://127.0.0.1:3000", description="Address of Grafana.")
    rollback_webhook: Url | None = Field(
        default=None, description="Where Alertmanager posts alerts that may be answered by a rollback."
    )


class Spec(Strict):
    """The whole of ``otelkit.yaml``.

    Without any service, rules cover every service that has the preset's metrics.
    """

    services: tuple[Service, ...] = Field(default=(), description="The services to watch.")
    preset: PresetName = Field(default="gen_ai", description="Preset of services that name none.")
    base_window: Duration = Field(
        default=Duration.parse("1h"), description="Window of service:p99_latency_seconds:quantile."
    )
    windows: Windows = Field(
        default=(Duration.parse("1m"), Duration.parse("5m")),
        description="Short windows that P50, P95 and P99 are recorded over as well.",
    )
    slos: tuple[Slo, ...] = Field(default=(), description="Objectives of services that state none.")
    alerts: tuple[Alert, ...] = Field(default=(), description="Alerts of services that state none.")
    alert_when_absent: bool = Field(
        default=True, description="Alert when a listed service's latency metric is gone."
    )
    parameters: tuple[Parameter, ...] = Field(default=(), description="Parameters of interest.")
    split_by: tuple[SplitLabel, ...] = Field(default=(), description="Labels to record P99 by.")
    split_limit: int = Field(
        default=20, ge=1, description="A service with more values of such a label than this is not split."
    )
    native: bool = Field(default=False, description="Histograms are native.")
    scrape_interval: Duration = Field(
        default=Duration.parse("15s"), description="How often Prometheus scrapes the services."
    )
    evaluation_interval: Duration = Field(
        default=Duration.parse("15s"), description="How often rules over the shortest windows are evaluated."
    )
    instances: int = Field(default=3, ge=1, description="Processes per service, to estimate what rules cost.")
    prometheus: Url | None = Field(
        default=None, description="Address of Prometheus, for otelkit's own queries."
    )
    links: Links = Field(default=Links(), description="Where alerts point to.")

    def service(self, name: str) -> ServiceMetrics:
        """The service of that name; one that the file does not list gets the file's defaults."""
        for service in self.services:
            if service.name == name:
                return self.resolve(service)
        return self.resolve(Service(name=name))

    def resolved(self) -> tuple[ServiceMetrics, ...]:
        """All listed services, by name."""
        return tuple(self.resolve(service) for service in sorted(self.services, key=lambda one: one.name))

    def resolve(self, service: Service) -> ServiceMetrics:
        """A service with every default of the file and of its preset filled in."""
        preset = PRESETS[service.preset or self.preset]
        latency = service.latency or Latency()
        label = service.service_label or preset.service_label
        slos = self.slos if service.slos is None else service.slos
        windows = {*(service.windows or self.windows), *((SLO_WINDOW,) if slos else ())}
        return ServiceMetrics(
            name=service.name,
            preset=preset,
            latency=latency.histogram or preset.latency,
            unit=latency.unit or preset.unit,
            native=self.native if service.native is None else service.native,
            buckets=_bounds(latency, preset),
            sharpened=latency.sharpened,
            service_label=label,
            own_selector=service.selector is not None,
            matchers=(*_matchers(service, label), *preset.always),
            errors=parse_matchers(service.errors) if service.errors is not None else preset.errors,
            failures=preset.failures if service.errors is None and latency.histogram is None else None,
            base_window=service.base_window or self.base_window,
            windows=tuple(sorted(windows)),
            split_by=self.split_by if service.split_by is None else service.split_by,
            slos=slos,
            alerts=self.alerts if service.alerts is None else service.alerts,
            alert_when_absent=self.alert_when_absent
            if service.alert_when_absent is None
            else service.alert_when_absent,
            parameters=self.parameters if service.parameters is None else service.parameters,
            controls=service.controls,
            depends_on=service.depends_on,
        )


def _matchers(service: Service, label: str) -> tuple[Matcher, ...]:
    if service.selector is None:
        return (Matcher(label, "=", service.name),)
    if isinstance(service.selector, str):
        return parse_matchers(service.selector)
    return equality_matchers(service.selector)


def _bounds(latency: Latency, preset: Preset) -> tuple[float, ...] | None:
    """Finite bounds in the histogram's own unit, as far as they are known."""
    if latency.buckets is not None:
        return latency.buckets
    if latency.sharpened:
        return duration_bounds(latency.sharpened)
    if latency.histogram in (None, preset.latency):
        return preset.buckets
    return None
