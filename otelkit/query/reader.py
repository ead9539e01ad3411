"""What both sources do alike once they hold raw series: names, the grid, the panel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

from otelkit.errors import DataError
from otelkit.query.assemble import bucket_counts, covariates
from otelkit.query.panel import FloatArray, Panel, ServiceSeries
from otelkit.query.samples import Grid, RawData, RawSeries
from otelkit.spec import ServiceMetrics, Spec, selector

_SCRAPES_BEFORE: Final = 4
"""Scrape intervals read before the grid begins, so that its first step has a sample to start from."""


class Reader(ABC):
    """Base of the sources. They differ in where samples and quantiles come from, and in nothing else."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self._warnings: dict[str, None] = {}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader should know of the data read so far, each once."""
        return tuple(self._warnings)

    def warn(self, message: str) -> None:
        self._warnings.setdefault(message)

    def panel(
        self,
        services: Sequence[str] | None,
        start: float,
        end: float,
        step: float,
        *,
        window_seconds: float | None = None,
    ) -> Panel:
        """Series of services (all where None) on the grid ``start, start + step, ... <= end`` (Unix seconds).

        Args:
            window_seconds: Window of the quantiles; the shortest one of each service where None.

        Raises:
            BackendUnreachable: the backend did not answer, or answered with an error.
            DataError: a service has no latency series in that time.
            UsageError: times or step make no grid.
        """
        grid = Grid.between(start, end, step)
        names = tuple(services) if services is not None else self.service_names(start, end)
        known = {name: self.spec.service(name) for name in names}
        return Panel(
            times=grid.times,
            step_seconds=step,
            services={name: self._service(one, grid, window_seconds) for name, one in known.items()},
            dependencies={name: one.depends_on for name, one in known.items() if one.depends_on},
            controls={name: one.controls for name, one in known.items() if one.controls is not None},
        )

    def _service(self, service: ServiceMetrics, grid: Grid, window_seconds: float | None) -> ServiceSeries:
        window = window_seconds or service.windows[0].seconds
        margin = max(_SCRAPES_BEFORE * self._scrape_seconds(), window)
        data = RawData(self._raw(service, grid.times[0] - grid.step - margin, grid.times[-1]))
        counts = bucket_counts(data, service, grid)
        if counts is None:
            raise self._no_series(service, float(grid.times[0]), float(grid.times[-1]))
        for scrapes in data.scrapes.values():
            if grid.step_ms < 0.9 * scrapes.interval_ms < float("inf"):
                self.warn(
                    f"{service.name} was scraped every {scrapes.interval_ms / 1000:g} s, so steps of "
                    f"{grid.step:g} s have no bucket counts and no load; use a longer step"
                )
        bounds, by_step = counts
        return ServiceSeries(
            service=service.name,
            quantiles=self._quantiles(service, data, grid, window),
            window_seconds=window,
            bucket_bounds=bounds,
            bucket_counts=by_step,
            covariates=covariates(data, service, grid),
        )

    def _no_series(self, service: ServiceMetrics, start: float, end: float) -> DataError:
        others = [name for name in self.service_names(start, end) if name != service.name]
        missing = selector(f"{service.latency}_bucket", service.matchers)
        return DataError(
            f"{self.address} has no {missing} between {start:.0f} and {end:.0f} (Unix seconds)",
            hint=f"Services with data then: {', '.join(others)}."
            if others
            else "No service has data then. Is it scraped, and is its preset in otelkit.yaml the right one?",
        )

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the data comes from, for messages."""

    @abstractmethod
    def service_names(self, start: float, end: float) -> tuple[str, ...]:
        """Services with latency between two Unix times, sorted."""

    @abstractmethod
    def _scrape_seconds(self) -> float:
        """The time between two scrapes, as configured."""

    @abstractmethod
    def _raw(self, service: ServiceMetrics, start: float, end: float) -> list[RawSeries]:
        """Raw samples of a service's metrics in ``(start, end]`` (Unix seconds)."""

    @abstractmethod
    def _quantiles(
        self, service: ServiceMetrics, data: RawData, grid: Grid, window: float
    ) -> Mapping[float, FloatArray]:
        """Latency quantiles in seconds on the grid over a trailing window (seconds)."""
