"""The PromQL that the dashboards share, apart from their panels; every name comes from ``semconv``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otelkit import semconv
from otelkit.spec import Duration, Spec

ONE_SERVICE: Final = f'{semconv.LABEL_SERVICE}="$service"'
SERVICES: Final = f'{semconv.LABEL_SERVICE}=~"$service"'
CALLS: Final = f'{SERVICES}, {semconv.LABEL_MODEL}=~"$model"'
CALLS_OF_ONE: Final = f'{ONE_SERVICE}, {semconv.LABEL_MODEL}=~"$model"'
BY_SERVICE: Final = (semconv.LABEL_SERVICE,)

OF_CHANGE: Final = tuple(
    label
    for label in semconv.LABELS_OF_VERDICTS
    if label not in (semconv.LABEL_SERVICE, semconv.LABEL_VERDICT)
)
"""Labels that tell one change of a service from another."""
CHANGE_AND_VERDICT: Final = (*OF_CHANGE, semconv.LABEL_VERDICT)
NOT_JUDGED: Final = "not judged yet"
"""Shown as the verdict of a change that the analyser has not looked at."""
NODE_LABELS: Final = (
    semconv.LABEL_ID,
    semconv.LABEL_TITLE,
    semconv.LABEL_SUBTITLE,
    semconv.LABEL_KIND,
    semconv.LABEL_VERDICT,
)
EDGE_LABELS: Final = (
    semconv.LABEL_ID,
    semconv.LABEL_SOURCE,
    semconv.LABEL_TARGET,
    semconv.LABEL_VERDICT,
)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Names of the recorded series that a spec's rules write."""

    window: Duration
    """The shortest window that all services have."""
    longer: Duration
    """The longest of the short windows that all services have; what burn rates are summed from."""
    step: Duration
    """How often the series over the shortest window get a point."""

    @classmethod
    def of(cls, spec: Spec) -> Recorded:
        each = [set(service.windows) for service in spec.resolved()] or [set(spec.windows)]
        shared = sorted(set.intersection(*each)) or sorted(set(spec.windows))
        return cls(shared[0], shared[-1], spec.evaluation_interval)

    def quantile(self, q: float, matchers: str) -> str:
        """Latency quantile over the shortest window, seconds."""
        return f"{semconv.recorded_quantile(q, str(self.window))}{{{matchers}}}"

    def per_second(self, quantity: str, matchers: str) -> str:
        """Recorded rate, for instance of ``semconv.RECORDED_REQUESTS``, over the shortest window."""
        return f"{quantity}{self.window}{{{matchers}}}"

    def error_share(self, matchers: str, over: str) -> str:
        """Share of failed calls by service over a long span, summed from recorded rates rather than raw
        series."""
        errors = f"sum_over_time({semconv.RECORDED_ERRORS}{self.longer}{{{matchers}}}[{over}])"
        calls = f"sum_over_time({semconv.RECORDED_REQUESTS}{self.longer}{{{matchers}}}[{over}])"
        return f"({errors} or 0 * {calls}) / ({calls} > 0)"


def rate(metric: str, matchers: str, by: tuple[str, ...] = (), *, over: str = "$__rate_interval") -> str:
    """Sum of a counter's rates."""
    return f"sum{_by(by)} (rate({metric}{{{matchers}}}[{over}]))"


def quantile(
    q: float, histogram: str, matchers: str, by: tuple[str, ...] = (), *, over: str = "$__rate_interval"
) -> str:
    """Quantile of a classic histogram, from summed buckets."""
    return f"histogram_quantile({q:g}, {rate(f'{histogram}_bucket', matchers, ('le', *by), over=over)})"


def mean(histogram: str, matchers: str, by: tuple[str, ...] = (), *, over: str = "$__rate_interval") -> str:
    """Mean of a histogram's observations; no value while there are none."""
    total = rate(f"{histogram}_sum", matchers, by, over=over)
    return f"{total} / ({rate(f'{histogram}_count', matchers, by, over=over)} > 0)"


def slower_than(bound: str, histogram: str, matchers: str, by: tuple[str, ...] = ()) -> str:
    """Share of a histogram's observations above the bucket bound ``bound`` (0 to 1)."""
    within = rate(f"{histogram}_bucket", f'{matchers}, le="{bound}"', by)
    return f"1 - {within} / ({rate(f'{histogram}_count', matchers, by)} > 0)"


def newest(metric: str, matchers: str, by: tuple[str, ...]) -> str:
    """A gauge of the analyser; several analysers that see the same Prometheus count once."""
    return f"max{_by(by)} ({metric}{{{matchers}}})"


def changes_with_verdict(only: str = "") -> str:
    """Unix seconds of each change of the service, with its verdict as a label.

    ``@ end()``: over time, a change would first be there as not judged and then once more with its verdict.

    Args:
        only: a verdict, or ``NOT_JUDGED``; empty for all changes.
    """
    times = f"max{_by(OF_CHANGE)} ({_seen_in_span(ONE_SERVICE)})"
    on = f"on ({semconv.LABEL_CHANGE_ID})"
    by = (semconv.LABEL_CHANGE_ID, semconv.LABEL_VERDICT)
    picked = (
        f'{ONE_SERVICE}, {semconv.LABEL_VERDICT}="{only}"' if only and only != NOT_JUDGED else ONE_SERVICE
    )
    verdicts = f"max{_by(by)} ({semconv.METRIC_CHANGE_VERDICT}{{{picked}}} @ end())"
    judged = f"{times} * {on} group_left ({semconv.LABEL_VERDICT}) {verdicts}"
    not_judged = labelled(f"{times} unless {on} {verdicts}", semconv.LABEL_VERDICT, NOT_JUDGED)
    if only:
        return not_judged if only == NOT_JUDGED else judged
    return f"{judged} or {not_judged}"


def in_effect() -> str:
    """1 for the value of ``$parameter`` that the service ran with at each moment, as label ``value``.

    That is what the newest change so far set; before the first change, what that change replaced. ``@ end()``
    makes a change known before it was made, since its old value was in use then.
    """
    times = f"max{_by(_PARAMETER_LABELS)} ({_seen_in_span(_OF_PARAMETER)})"
    by = f"by ({semconv.LABEL_SERVICE})"
    on = f"on ({semconv.LABEL_SERVICE})"
    after = f"topk {by} (1, {times} <= time())"
    before = f"bottomk {by} (1, {times} > time()) unless {on} ({times} <= time())"
    values = f"{copied(after, semconv.LABEL_NEW, 'value')} or {copied(before, semconv.LABEL_OLD, 'value')}"
    return f"max by ({semconv.LABEL_SERVICE}, value) (0 * ({values}) + 1)"


def by_value(expr: str) -> str:
    """A series of the service, given the label ``value`` of the parameter value in effect at each moment."""
    return f"({expr}) * on ({semconv.LABEL_SERVICE}) group_left (value) {in_effect()}"


def copied(expr: str, source: str, target: str) -> str:
    """Copy a label."""
    return f'label_replace({expr}, "{target}", "$1", "{source}", "(.*)")'


def labelled(expr: str, label: str, value: str) -> str:
    """Give all series one label value."""
    return f'label_replace({expr}, "{label}", "{value}", "", "")'


def joined(expr: str, target: str, separator: str, *labels: str) -> str:
    """Join labels into one."""
    sources = ", ".join(f'"{label}"' for label in labels)
    return f'label_join({expr}, "{target}", "{separator}", {sources})'


_PARAMETER_LABELS = (semconv.LABEL_SERVICE, semconv.LABEL_CHANGE_ID, semconv.LABEL_OLD, semconv.LABEL_NEW)
_OF_PARAMETER = f'{ONE_SERVICE}, {semconv.LABEL_PARAMETER}="$parameter"'


def _seen_in_span(matchers: str) -> str:
    """Times of all changes of the span, at each moment; also of those whose process has ended since."""
    return f"last_over_time({semconv.METRIC_PARAMETER_CHANGE_TIMESTAMP}{{{matchers}}}[$__range] @ end())"


def _by(labels: tuple[str, ...]) -> str:
    return f" by ({', '.join(labels)})" if labels else ""
