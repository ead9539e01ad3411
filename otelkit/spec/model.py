"""The shape of ``otelkit.yaml``: pydantic models that refuse unknown keys, and what they resolve to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from otelkit import semconv
from otelkit.spec.durations import Duration
from otelkit.spec.matchers import Matcher, equality_matchers, parse_matchers
from otelkit.spec.presets import PRESETS, Preset

_METRIC: Final = r"^[a-zA-Z_:][a-zA-Z0-9_:]*$"
MetricName = Annotated[str, StringConstraints(pattern=_METRIC)]
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$")]


def _known_preset(name: str) -> str:
    if name not in PRESETS:
        raise ValueError(f"{name!r} is no preset; there are {', '.join(sorted(PRESETS))}")
    return name


def _checked_matchers(text: str) -> str:
    parse_matchers(text)
    return text


def _checked_selector(value: str | dict[str, str]) -> str | dict[str, str]:
    if isinstance(value, str):
        return _checked_matchers(value)
    equality_matchers(value)
    return value


def _histogram_alone(value: Any) -> Any:
    """``latency: my_histogram`` is short for ``latency: {histogram: my_histogram}``."""
    return {"histogram": value} if isinstance(value, str) else value


PresetName = Annotated[str, AfterValidator(_known_preset)]
Matchers = Annotated[str, AfterValidator(_checked_matchers)]
Windows = Annotated[tuple[Duration, ...], Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Latency(_Strict):
    """Which histogram holds the latency."""

    histogram: MetricName = Field(description="Name of the histogram, without _bucket.")
    unit: Literal["s", "ms"] = Field(default="s", description="Unit of its bucket bounds.")


class Service(_Strict):
    """One service. What is not given here comes from the preset and from the top of the file."""

    name: str = Field(min_length=1, description="Value of the label `service` on all recorded series.")
    preset: PresetName | None = Field(
        default=None, description="The kind of service, that is which metrics it has."
    )
    selector: Annotated[str | dict[str, str], AfterValidator(_checked_selector)] | None = Field(
        default=None,
        description="Picks the service's series where they carry no label with its name: "
        'labels, or matchers as in PromQL (job="api",env=~"prod.*").',
    )
    latency: Annotated[Latency, BeforeValidator(_histogram_alone)] | None = Field(
        default=None, description="The latency histogram, where it is not the preset's."
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


@dataclass(frozen=True, slots=True)
class ServiceMetrics:
    """A service with every default filled in: what rules are written from and series are read by."""

    name: str
    preset: Preset
    latency: str
    unit: str
    service_label: str
    own_selector: bool
    """Picked by matchers of its own rather than by the label that names services."""
    matchers: tuple[Matcher, ...]
    """Pick the service's series in its own metrics."""
    errors: tuple[Matcher, ...]
    base_window: Duration
    windows: tuple[Duration, ...]
    """Ascending, each once."""

    @property
    def seconds_per_unit(self) -> float:
        return 0.001 if self.unit == "ms" else 1.0

    @property
    def recorded_latency(self) -> str:
        """The part of recorded bucket series' names that states the unit of their bounds."""
        return semconv.RECORDED_LATENCY_MS if self.unit == "ms" else semconv.RECORDED_LATENCY


class Spec(_Strict):
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
    scrape_interval: Duration = Field(
        default=Duration.parse("15s"), description="How often Prometheus scrapes the services."
    )
    evaluation_interval: Duration = Field(
        default=Duration.parse("15s"), description="How often rules over the shortest windows are evaluated."
    )
    prometheus: str | None = Field(
        default=None, description="Address of Prometheus, for otelkit's own queries."
    )

    def service(self, name: str) -> ServiceMetrics:
        """The service of that name; one that the file does not list gets the file's defaults."""
        for service in self.services:
            if service.name == name:
                return self._resolve(service)
        return self._resolve(Service(name=name))

    def resolved(self) -> tuple[ServiceMetrics, ...]:
        """All listed services, by name."""
        return tuple(self._resolve(service) for service in sorted(self.services, key=lambda one: one.name))

    def _resolve(self, service: Service) -> ServiceMetrics:
        preset = PRESETS[service.preset or self.preset]
        label = service.service_label or preset.service_label
        if service.selector is None:
            matchers: tuple[Matcher, ...] = (Matcher(label, "=", service.name),)
        elif isinstance(service.selector, str):
            matchers = parse_matchers(service.selector)
        else:
            matchers = equality_matchers(service.selector)
        return ServiceMetrics(
            name=service.name,
            preset=preset,
            latency=service.latency.histogram if service.latency else preset.latency,
            unit=service.latency.unit if service.latency else preset.unit,
            service_label=label,
            own_selector=service.selector is not None,
            matchers=matchers,
            errors=parse_matchers(service.errors) if service.errors is not None else preset.errors,
            base_window=service.base_window or self.base_window,
            windows=tuple(sorted(set(service.windows or self.windows))),
        )
