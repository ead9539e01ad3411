"""What the analyser shows: the verdicts as gauges, and how it fares itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from otelkit import semconv
from otelkit.analyse import graph
from otelkit.analyse.looks import Judgement
from otelkit.analyse.state import Movement, State
from otelkit.causal import Verdict
from otelkit.model import label_text
from otelkit.spec import Spec

_SERVICE: Final = (semconv.LABEL_SERVICE,)
_NODE: Final = (
    semconv.LABEL_SERVICE,
    semconv.LABEL_ID,
    semconv.LABEL_TITLE,
    semconv.LABEL_SUBTITLE,
    semconv.LABEL_KIND,
    semconv.LABEL_VERDICT,
)
_EDGE: Final = (
    semconv.LABEL_SERVICE,
    semconv.LABEL_ID,
    semconv.LABEL_SOURCE,
    semconv.LABEL_TARGET,
    semconv.LABEL_VERDICT,
)
_FAMILIES: Final = {
    semconv.METRIC_CHANGE_VERDICT: ("Always 1; one series a judged change.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_EFFECT: ("Effect of the change on P99.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_EFFECT_LOW: ("Lower end of its 95 % interval.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_EFFECT_HIGH: ("Upper end of its 95 % interval.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_LAG: ("From the change to the onset of its effect.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_PEARSON_R: ("Shown, never deciding.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_P_VALUE: ("From placebo dates.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_Q_VALUE: ("False-discovery rate.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_THRESHOLD: ("Effect from which to act.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_CROSSED: (
        "1 where this change moved P99 by its threshold.",
        semconv.LABELS_OF_VERDICTS,
    ),
    semconv.METRIC_CHANGE_JUDGED: ("Unix time up to which data counted.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_DUE: ("Unix time of the next look.", semconv.LABELS_OF_VERDICTS),
    semconv.METRIC_CHANGE_MECHANISM: (
        "Part of the effect that goes through one path.",
        (*semconv.LABELS_OF_VERDICTS, semconv.LABEL_MECHANISM),
    ),
    semconv.METRIC_P99_BEFORE: ("P99 before its largest movement.", _SERVICE),
    semconv.METRIC_P99_AFTER: ("P99 after its largest movement.", _SERVICE),
    semconv.METRIC_P99_UNEXPLAINED: ("What no change explains of the movement.", _SERVICE),
    semconv.METRIC_P99_COUNTERFACTUAL: ("P99 now, without the causal changes.", _SERVICE),
    semconv.METRIC_CAUSAL_NODE: ("Effect that passes through a node of the causal graph.", _NODE),
    semconv.METRIC_CAUSAL_EDGE: ("Effect along an edge of the causal graph.", _EDGE),
    semconv.METRIC_CAUSAL_EDGE_CONFIDENCE: ("1 - q of the change.", _EDGE),
}
"""Name -> what it is, and its labels."""
_Sample = tuple[str, tuple[str, ...], float | None]
"""Name, values of its labels, value; None where it is not known, and so not shown."""


class Verdicts(Collector):
    """The newest state as gauges; read anew at each scrape.

    Args:
        state: Gives it.
        spec: Tells the thresholds.
    """

    def __init__(self, state: Callable[[], State], spec: Spec) -> None:
        self._state, self._spec = state, spec

    def describe(self) -> Iterable[Metric]:
        """The names alone, so that registering needs no state."""
        return self._families().values()

    def collect(self) -> Iterable[Metric]:
        """All gauges."""
        families = self._families()
        state = self._state()
        for service in sorted({*state.judgements, *state.movements}):
            for name, labels, value in self._samples(service, state):
                if value is not None and math.isfinite(value):
                    families[name].add_metric(labels, value)
        return families.values()

    @staticmethod
    def _families() -> dict[str, GaugeMetricFamily]:
        return {
            name: GaugeMetricFamily(name, text, labels=labels) for name, (text, labels) in _FAMILIES.items()
        }

    def _samples(self, service: str, state: State) -> Iterator[_Sample]:
        judgements = state.judgements.get(service, ())
        movement = state.movements.get(service, Movement())
        for one in judgements:
            yield from self._of_change(one, state.step)
        yield semconv.METRIC_P99_BEFORE, (service,), movement.p99_before
        yield semconv.METRIC_P99_AFTER, (service,), movement.p99_after
        yield semconv.METRIC_P99_UNEXPLAINED, (service,), movement.unexplained
        yield semconv.METRIC_P99_COUNTERFACTUAL, (service,), state.counterfactual(service)
        nodes, edges = graph.graph(service, judgements, movement.p99_now)
        for node in nodes:
            labels = (service, node.id, node.title, node.subtitle, node.kind, node.verdict)
            yield semconv.METRIC_CAUSAL_NODE, labels, node.seconds
        for edge in edges:
            ends = (service, edge.id, edge.source, edge.target, edge.verdict)
            yield semconv.METRIC_CAUSAL_EDGE, ends, edge.seconds
            yield semconv.METRIC_CAUSAL_EDGE_CONFIDENCE, ends, edge.confidence

    def _of_change(self, one: Judgement, step: float) -> Iterator[_Sample]:
        change, finding = one.change, one.finding
        labels = (
            change.service,
            change.parameter,
            label_text(change.old),
            label_text(change.new),
            change.scope,
            change.id,
            one.verdict,
        )
        yield semconv.METRIC_CHANGE_VERDICT, labels, 1.0
        yield semconv.METRIC_CHANGE_DUE, labels, one.due(step)
        threshold = self._spec.service(change.service).threshold(change.parameter)
        yield semconv.METRIC_CHANGE_THRESHOLD, labels, threshold
        if finding is None:
            return
        yield semconv.METRIC_CHANGE_JUDGED, labels, one.judged_at
        yield semconv.METRIC_CHANGE_CROSSED, labels, replace(finding, threshold=threshold).crosses_threshold
        if finding.effect is not None:
            yield semconv.METRIC_CHANGE_EFFECT, labels, finding.effect.value
            yield semconv.METRIC_CHANGE_EFFECT_LOW, labels, finding.effect.low
            yield semconv.METRIC_CHANGE_EFFECT_HIGH, labels, finding.effect.high
        yield semconv.METRIC_CHANGE_LAG, labels, finding.lag_seconds
        yield semconv.METRIC_CHANGE_PEARSON_R, labels, finding.pearson_r
        yield semconv.METRIC_CHANGE_P_VALUE, labels, finding.p_value
        yield semconv.METRIC_CHANGE_Q_VALUE, labels, finding.q_value
        if finding.verdict is Verdict.CAUSAL:
            for path, seconds in graph.parts(one).items():
                yield semconv.METRIC_CHANGE_MECHANISM, (*labels, path), seconds


class OwnMetrics:
    """How the analyser fares, with its memory and CPU time. Counters of services start when something happens
    to one."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        ProcessCollector(registry=registry)
        values = (semconv.LABEL_SERVICE, semconv.LABEL_OLD, semconv.LABEL_NEW)
        self._flips = counter(semconv.METRIC_VERDICT_FLIPS, "Verdicts that were replaced.", *values)
        self._evicted = counter(semconv.METRIC_CHANGES_EVICTED, "Changes that made room.", *_SERVICE)
        self._faults = counter(semconv.METRIC_ANALYSER_FAULTS, "Analyses that failed.", *_SERVICE)
        self.rounds = counter(semconv.METRIC_ANALYSER_ROUNDS, "Rounds by outcome.", semconv.LABEL_OUTCOME)
        for outcome in ("done", "unreachable", "failed"):
            self.rounds.labels(outcome)
        self.annotations = counter(
            semconv.METRIC_ANALYSER_ANNOTATIONS, "Annotations in Grafana.", semconv.LABEL_OUTCOME
        )
        self.round_seconds = gauge(semconv.METRIC_ANALYSER_ROUND_SECONDS, "Length of the newest round.")
        self.cpu = counter(semconv.METRIC_ANALYSER_CPU, "CPU time of all rounds.")
        self.data_until = gauge(semconv.METRIC_ANALYSER_DATA_TIMESTAMP, "Unix time that data was read up to.")
        self.stale = gauge(semconv.METRIC_ANALYSER_STALE, "1 while Prometheus does not answer.")
        self.waiting = gauge(semconv.METRIC_ANALYSER_WAITING, "Services that wait to be analysed.")

    def flipped(self, service: str, old: str, new: str) -> None:
        """A verdict was replaced."""
        self._flips.labels(service, old, new).inc()

    def evicted(self, service: str, changes: int) -> None:
        """Changes left the page for newer ones."""
        self._evicted.labels(service).inc(changes)

    def fault(self, service: str) -> None:
        """The analysis of a service failed."""
        self._faults.labels(service).inc()
