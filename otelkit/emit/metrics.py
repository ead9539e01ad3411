"""What the /metrics page says of generations and parameter changes."""

from __future__ import annotations

import time
from array import array
from collections import Counter as Tally
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from otelkit import semconv
from otelkit.emit.histogram import NANOSECONDS, BulkHistogram, Example, duration_bounds
from otelkit.emit.output_metrics import OutputMetrics
from otelkit.model import MAX_LABEL_TEXT, CallSite, Generation, ParameterChange, label_text, shares_text
from otelkit.record.times import gaps

MAX_CHANGES: Final = 256
MAX_ERROR_TYPES: Final = 50
MAX_CACHED_CALL_SITES: Final = 4_096

_CALL_LABELS: Final = (
    semconv.LABEL_SERVICE,
    semconv.LABEL_OPERATION,
    semconv.LABEL_PROVIDER,
    semconv.LABEL_MODEL,
)
CallLabels = tuple[str, str, str, str]


@dataclass(slots=True)
class _Series:
    """The series of one call site, looked up once: ``labels()`` costs more than the update itself."""

    started: Counter
    in_flight: Gauge | None
    """In prometheus multiprocess mode, where a gauge can't ask at a scrape."""
    first_chunk: BulkHistogram
    per_chunk: BulkHistogram
    input_tokens: BulkHistogram
    output_tokens: BulkHistogram
    durations: dict[str, BulkHistogram]
    """By error type."""


class GenerationMetrics:
    """The GenAI histograms and the counters beside them; complete whatever is sampled, of bounded number.

    Args:
        registry: where the metrics are registered; prometheus_client's global one by default.
        slo_seconds: latency objectives (seconds) around which duration bounds are added.
        label_sets: combinations of service, operation, provider and model kept apart; the model of any beyond
            them is ``_OTHER``.
        exemplars: False in prometheus multiprocess mode, which can't keep them.
        uncounted: how many calls have ended that ``ended`` and ``lost`` are still to be told of.
    """

    def __init__(
        self,
        registry: CollectorRegistry = REGISTRY,
        *,
        slo_seconds: tuple[float, ...] = (),
        label_sets: int = 200,
        exemplars: bool = True,
        multiprocess: bool = False,
        uncounted: Callable[[], int] = lambda: 0,
    ) -> None:
        self._registry = registry
        self._uncounted = uncounted
        self._not_in_flight: Tally[str] = Tally()
        """Calls begun that have ended, and those of the process that this one was forked from; by service."""
        self._label_sets = label_sets
        self._exemplars = exemplars
        self._multiprocess = multiprocess
        self._known: set[CallLabels] = set()
        self._error_types: set[str] = set()
        self._series: dict[CallSite, _Series] = {}
        self._last: tuple[CallSite | None, _Series | None] = None, None
        """The call site, and its series, of the call that ended last."""
        self._changes: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        bounds = duration_bounds(slo_seconds)

        def histogram(
            name: str, text: str, labels: tuple[str, ...], buckets: tuple[float, ...]
        ) -> BulkHistogram:
            return BulkHistogram(name, text, labels, buckets=buckets, registry=registry)

        self._started = Counter(
            semconv.METRIC_GENERATIONS_STARTED, "Calls begun.", _CALL_LABELS, registry=registry
        )
        self._in_flight = Gauge(
            semconv.METRIC_GENERATIONS_IN_FLIGHT,
            "Calls begun that have not ended.",
            (semconv.LABEL_SERVICE,),
            registry=registry,
            multiprocess_mode="livesum",
        )
        self._duration = histogram(
            semconv.METRIC_OPERATION_DURATION,
            "Seconds from the start of a call to its last token step.",
            (*_CALL_LABELS, semconv.LABEL_ERROR),
            bounds,
        )
        self._first_chunk = histogram(
            semconv.METRIC_TIME_TO_FIRST_CHUNK,
            "Seconds from the start of a streamed call to its first token step.",
            _CALL_LABELS,
            bounds,
        )
        self._per_chunk = histogram(
            semconv.METRIC_TIME_PER_OUTPUT_CHUNK,
            "Seconds between one token step and the next.",
            _CALL_LABELS,
            semconv.DURATION_BUCKETS,
        )
        self._tokens = histogram(
            semconv.METRIC_TOKEN_USAGE,
            "Tokens per call.",
            (*_CALL_LABELS, semconv.LABEL_TOKEN_TYPE),
            semconv.TOKEN_BUCKETS,
        )
        self._outputs = OutputMetrics(registry)
        self._change_count = Counter(
            semconv.METRIC_PARAMETER_CHANGES,
            "Parameter changes.",
            (semconv.LABEL_SERVICE, semconv.LABEL_PARAMETER, semconv.LABEL_SOURCE),
            registry=registry,
        )
        self._change_time = Gauge(
            semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP,
            "Unix seconds at which a parameter's new value was first in use.",
            (
                semconv.LABEL_SERVICE,
                semconv.LABEL_PARAMETER,
                semconv.LABEL_OLD,
                semconv.LABEL_NEW,
                semconv.LABEL_SOURCE,
                semconv.LABEL_SCOPE,
                semconv.LABEL_CHANGE_ID,
                semconv.LABEL_ORIGIN,
                semconv.LABEL_SHARES,
            ),
            registry=registry,
            # Of each process, with a label ``pid``: a rollout has as many reports as processes.
            multiprocess_mode="all",
        )

    def started(self, call_site: CallSite, calls: int = 1) -> None:
        """Count calls that have begun. May be called by several threads."""
        series = self._series.get(call_site) or self._resolve(call_site)
        series.started.inc(calls)
        if series.in_flight is not None:
            series.in_flight.inc(calls)

    def ended(self, generation: Generation, *, traced: bool) -> None:
        """Count a call that has ended: every histogram once, whatever the number of its token steps.

        Args:
            traced: whether its span is exported, so that exemplars may point to it.
        """
        site, span = generation.call_site, generation.span
        last, series = self._last
        if site is not last or series is None:  # most come from where the last one came: no hash is needed
            series = self._series.get(site) or self._resolve(site)
            self._last = site, series
        self._landed(site.service)
        exemplar = Example(span, time.time()) if traced and self._exemplars and span is not None else None
        duration = max(0, generation.end_ns - generation.start_ns)
        durations = series.durations.get(generation.error_type) or self._duration_of(series, generation)
        durations.add(duration, NANOSECONDS, exemplar)
        steps = generation.step_ns
        if steps and generation.streamed:
            series.first_chunk.add(max(0, steps[0] - generation.start_ns), NANOSECONDS, exemplar)
            times = steps if isinstance(steps, array) else array("Q", steps)
            between = gaps(times)
            if between.length:
                parts = self._outputs.by_position(generation, times)
                series.per_chunk.add_parts(between, parts, NANOSECONDS, exemplar)
        if generation.input_tokens is not None:
            series.input_tokens.add(generation.input_tokens, 1, exemplar)
        if generation.output_tokens is not None:
            series.output_tokens.add(generation.output_tokens, 1, exemplar)
        self._outputs.ended(generation, exemplar)

    def lost(self, service: str) -> None:
        """A call has ended of which nothing else is known: it is no longer in flight."""
        self._landed(service)

    def _landed(self, service: str) -> None:
        if self._multiprocess:
            self._in_flight.labels(service).dec()
        else:
            self._not_in_flight[service] += 1

    def _begun(self) -> Tally[str]:
        """Calls begun, by service."""
        begun: Tally[str] = Tally()
        for metric in self._started.collect():
            for sample in metric.samples:
                if sample.name.endswith("_total"):
                    begun[sample.labels[semconv.LABEL_SERVICE]] += int(sample.value)
        return begun

    def _count_in_flight(self, service: str) -> int:
        """At a scrape: whatever the background thread has still to do."""
        over = self._not_in_flight[service] + self._uncounted()
        return max(0, self._begun()[service] - over)

    def changed(self, change: ParameterChange) -> bool:
        """Count and date a change, once however often it is reported.

        Returns:
            Whether this is the first report of the change in this process.
        """
        labels = (
            change.service,
            change.parameter,
            label_text(change.old),
            label_text(change.new),
            change.source.value,
            change.scope,
            change.id,
            change.origin[:MAX_LABEL_TEXT],
            shares_text(change.shares),
        )
        if change.id in self._changes:
            return False
        self._changes[change.id] = labels
        self._change_count.labels(change.service, change.parameter, change.source.value).inc()
        self._change_time.labels(*labels).set(change.first_seen)
        if len(self._changes) > MAX_CHANGES:
            _, oldest = self._changes.popitem(last=False)
            if not self._multiprocess:  # files shared with other processes can't lose a series
                self._change_time.remove(*oldest)
        return True

    def unregister(self) -> None:
        """Take the metrics off the registry, so that they can be registered again."""
        self._outputs.unregister()
        for collector in (
            self._started,
            self._in_flight,
            self._duration,
            self._first_chunk,
            self._per_chunk,
            self._tokens,
            self._change_count,
            self._change_time,
        ):
            self._registry.unregister(collector)

    def after_fork(self) -> None:
        """In the child: the calls in flight are the parent's. Files shared between processes start anew by
        themselves."""
        if not self._multiprocess:
            self._not_in_flight = self._begun()
        self._series.clear()
        self._last = None, None
        self._outputs.after_fork()

    def _duration_of(self, series: _Series, generation: Generation) -> BulkHistogram:
        labels = self._labels(generation.call_site)
        bounded = self._bounded_error(generation.error_type)
        histogram = series.durations[bounded] = self._duration.labels(*labels, bounded)
        return histogram

    def _bounded_error(self, error: str) -> str:
        if not error or error in self._error_types:
            return error
        if len(self._error_types) >= MAX_ERROR_TYPES:
            return semconv.OTHER
        self._error_types.add(error)
        return error

    def _labels(self, site: CallSite) -> CallLabels:
        labels = (site.service, site.operation, site.provider, site.model)
        if labels in self._known:
            return labels
        if len(self._known) >= self._label_sets:
            labels = (site.service, site.operation, site.provider, semconv.OTHER)
            if labels not in self._known and len(self._known) >= 2 * self._label_sets:
                labels = (site.service, semconv.OTHER, semconv.OTHER, semconv.OTHER)
        self._known.add(labels)
        return labels

    def _resolve(self, site: CallSite) -> _Series:
        labels = self._labels(site)
        if len(self._series) >= MAX_CACHED_CALL_SITES:
            self._series.clear()
        in_flight: Gauge | None = self._in_flight.labels(site.service)
        if in_flight is not None and not self._multiprocess:
            in_flight.set_function(partial(self._count_in_flight, site.service))
            in_flight = None
        series = self._series[site] = _Series(
            started=self._started.labels(*labels),
            in_flight=in_flight,
            first_chunk=self._first_chunk.labels(*labels),
            per_chunk=self._per_chunk.labels(*labels),
            input_tokens=self._tokens.labels(*labels, "input"),
            output_tokens=self._tokens.labels(*labels, "output"),
            durations={},
        )
        return series
