"""Dashboard "otelkit itself": is anything lost, what does observing cost, and are scrapes and rules well."""

from __future__ import annotations

from collections.abc import Sequence

from grafanalib import core as g

from otelkit import semconv
from otelkit.dashboards import panels, promql, shared
from otelkit.dashboards.promql import BY_SERVICE, CALLS, SERVICES
from otelkit.spec import Spec

_BY_REASON = (semconv.LABEL_SERVICE, semconv.LABEL_REASON)
_NOT_SCRAPED = "otelkit's own metrics are not scraped"
_NO_ANALYSER = "No analyser: otelkit analyse --serve is not scraped"
_NO_SELF_SCRAPE = "Prometheus does not scrape itself: add a job for its own address"


def dashboard(spec: Spec) -> g.Dashboard:
    return shared.dashboard(
        shared.ITSELF,
        "otelkit / otelkit itself",
        "Whether telemetry is complete and what it costs. Metrics are complete whatever happens to spans; "
        "when something "
        "is dropped, this says what, where and why.",
        [
            *_figures(),
            panels.row("Spans"),
            _spans(),
            _dropped(),
            _not_selected(),
            _lost(),
            panels.row("Cost"),
            _overhead(),
            _per_call(),
            _queue(),
            _started(),
            panels.row("Scrapes and rules"),
            _targets(),
            _scrapes(),
            _rules(),
            _rule_failures(),
            panels.row("Verdicts"),
            _rounds(),
            _age_of_verdicts(),
            _waiting(),
        ],
        variables=[shared.service_variable(several=True), shared.model_variable(SERVICES)],
        span="now-3h",
    )


def _figures() -> list[g.Panel]:
    def total(title: str, description: str, metric: str, usual: str, *above: tuple[float, str]) -> g.Panel:
        return panels.stat(
            title,
            description,
            f"sum(increase({metric}_total{{{SERVICES}}}[$__range])) or vector(0)",
            unit="short",
            decimals=0,
            size=(6, 4),
            steps=((None, usual), *above),
            no_data=_NOT_SCRAPED,
        )

    return [
        total(
            "Spans delivered",
            "In the span shown: a collector accepted them.",
            semconv.METRIC_SPANS_DELIVERED,
            panels.BLUE,
        ),
        total(
            "Spans dropped",
            "In the span shown. Not zero: the reasons are below; the collector is down or too slow.",
            semconv.METRIC_SPANS_DROPPED,
            panels.GREEN,
            (1, panels.ORANGE),
        ),
        total(
            "Calls lost to metrics",
            "In the span shown. Should be zero always; if not, report it with the reason below.",
            semconv.METRIC_GENERATIONS_LOST,
            panels.GREEN,
            (1, panels.RED),
        ),
        panels.stat(
            "CPU of otelkit's threads",
            "Cores used by all chosen services' background threads together.",
            promql.rate(f"{semconv.METRIC_OVERHEAD}_total", SERVICES),
            unit="percentunit",
            curve=True,
            decimals=2,
            size=(6, 4),
            steps=((None, panels.GREEN), (0.05, panels.ORANGE)),
            no_data=_NOT_SCRAPED,
        ),
    ]


def _spans() -> g.Panel:
    pairs = (
        ("written", semconv.METRIC_SPANS_WRITTEN),
        ("delivered", semconv.METRIC_SPANS_DELIVERED),
        ("dropped", semconv.METRIC_SPANS_DROPPED),
        ("requests failed", semconv.METRIC_EXPORT_FAILURES),
    )
    return panels.timeseries(
        "Spans",
        "Per second. Written should equal delivered; a gap that stays is spans waiting or dropped.",
        panels.queries(*((name, promql.rate(f"{metric}_total", SERVICES)) for name, metric in pairs)),
        unit="cps",
        no_data=_NOT_SCRAPED,
        links=[shared.runbook("Spans are dropped")],
    )


def _dropped() -> g.Panel:
    return _by_reason(
        "Spans dropped by reason",
        "buffer_full: the collector is slower than the service; export_failed: it is not reachable; "
        "rejected_by_collector: it refused them, see its log; shut_down: the process ended first.",
        semconv.METRIC_SPANS_DROPPED,
        links=[shared.runbook("Spans are dropped")],
    )


def _not_selected() -> g.Panel:
    return _by_reason(
        "Token steps without a span, on purpose",
        "By reason. Metrics include them. over_rate: raise the budget of spans per second to see more.",
        semconv.METRIC_STEPS_NOT_SELECTED,
    )


def _lost() -> g.Panel:
    return _by_reason(
        "Calls that reached no metric",
        "By reason. queue_full: the service makes calls faster than one thread can count them; fault: a "
        "defect.",
        semconv.METRIC_GENERATIONS_LOST,
    )


def _by_reason(title: str, description: str, metric: str, links: Sequence[g.DataLink] = ()) -> g.Panel:
    return panels.timeseries(
        title,
        description,
        panels.queries(("{{service}} {{reason}}", promql.rate(f"{metric}_total", SERVICES, _BY_REASON))),
        unit="cps",
        no_data=_NOT_SCRAPED,
        links=links,
    )


def _overhead() -> g.Panel:
    by = (semconv.LABEL_SERVICE, semconv.LABEL_STAGE)
    return panels.timeseries(
        "CPU by stage",
        "Share of one core that otelkit's background thread uses in each service.",
        panels.queries(
            ("{{service}} {{stage}}", promql.rate(f"{semconv.METRIC_OVERHEAD}_total", SERVICES, by))
        ),
        unit="percentunit",
        no_data=_NOT_SCRAPED,
    )


def _per_call() -> g.Panel:
    cost = promql.rate(f"{semconv.METRIC_OVERHEAD}_total", SERVICES, BY_SERVICE)
    calls = promql.rate(f"{semconv.METRIC_GENERATIONS_STARTED}_total", SERVICES, BY_SERVICE)
    return panels.timeseries(
        "CPU time per call",
        "Background CPU seconds per call of a model. Grows with the length of outputs, not with load.",
        panels.queries(("{{service}}", f"{cost} / ({calls} > 0)")),
        unit="s",
        no_data=_NOT_SCRAPED,
    )


def _queue() -> g.Panel:
    return panels.timeseries(
        "Finished calls that wait",
        "For the background thread. Near zero is normal; a ramp means that the process is starved of CPU.",
        panels.queries(
            ("{{service}}", f"sum by ({semconv.LABEL_SERVICE}) ({semconv.METRIC_QUEUE_DEPTH}{{{SERVICES}}})")
        ),
        unit="short",
        no_data=_NOT_SCRAPED,
    )


def _started() -> g.Panel:
    by = (semconv.LABEL_SERVICE, semconv.LABEL_MODEL)
    return panels.timeseries(
        "Calls begun",
        "Offered load by service and model, per second. Compare with calls that ended to see a queue build "
        "up.",
        panels.queries(
            (
                "{{service}} {{gen_ai_request_model}}",
                promql.rate(f"{semconv.METRIC_GENERATIONS_STARTED}_total", CALLS, by),
            )
        ),
        unit="reqps",
        no_data=shared.NO_CALLS,
    )


def _targets() -> g.Panel:
    return panels.state_timeline(
        "Scrape targets",
        "Green while Prometheus reaches a target. Red: nothing of it is recorded; every gap in a curve has "
        "its red "
        "stretch here.",
        [panels.query(f"min by (job, instance) ({semconv.METRIC_UP})", "{{job}} {{instance}}")],
        steps=((None, panels.RED), (1, panels.GREEN)),
        mappings=[
            {
                "type": "value",
                "options": {
                    "0": {"text": "down", "color": panels.RED, "index": 0},
                    "1": {"text": "up", "color": panels.GREEN, "index": 1},
                },
            }
        ],
        no_data="Prometheus scrapes nothing",
        size=(24, 6),
    )


def _scrapes() -> g.Panel:
    return panels.timeseries(
        "Scrape time",
        "Per target. Near the scrape interval samples get lost; a page that is slow has too many series.",
        panels.queries(
            ("{{job}} {{instance}}", f"max by (job, instance) ({semconv.METRIC_SCRAPE_DURATION})")
        ),
        unit="s",
        size=(8, 8),
        no_data="Prometheus scrapes nothing",
    )


def _rules() -> g.Panel:
    return panels.timeseries(
        "Rule evaluation time, share of the interval",
        "By group. Near 1, evaluations are skipped and recorded series have gaps: fewer services a rule, or "
        "a longer interval.",
        panels.queries(
            (
                "{{group}}",
                _without_path(
                    f"max by ({semconv.LABEL_RULE_GROUP}) ({semconv.METRIC_RULE_DURATION}) / "
                    f"max by ({semconv.LABEL_RULE_GROUP}) ({semconv.METRIC_RULE_INTERVAL})"
                ),
            )
        ),
        unit="percentunit",
        size=(8, 8),
        no_data=_NO_SELF_SCRAPE,
        steps=((None, "transparent"), (1, panels.RED)),
    )


def _rule_failures() -> g.Panel:
    return panels.timeseries(
        "Rule evaluations that failed",
        "Per second, by group. Not zero: otelkit check names the rule and what is wrong with it.",
        panels.queries(
            (
                "{{group}}",
                _without_path(promql.rate(semconv.METRIC_RULE_FAILURES, "", (semconv.LABEL_RULE_GROUP,))),
            )
        ),
        unit="cps",
        size=(8, 8),
        no_data=_NO_SELF_SCRAPE,
    )


def _rounds() -> g.Panel:
    return panels.timeseries(
        "Analyser rounds",
        "Per second, by outcome. Unreachable: Prometheus did not answer, verdicts are those from before. "
        "Failed: see the analyser's log.",
        panels.queries(
            (
                "{{outcome}}",
                promql.rate(f"{semconv.METRIC_ANALYSER_ROUNDS}_total", "", (semconv.LABEL_OUTCOME,)),
            )
        ),
        unit="cps",
        size=(8, 8),
        no_data=_NO_ANALYSER,
    )


def _age_of_verdicts() -> g.Panel:
    return panels.timeseries(
        "Age of the data behind the verdicts",
        "Of the newest round that was done. It grows while Prometheus does not answer, or while a round "
        "takes longer than the interval: fewer services an analyser.",
        panels.queries(
            ("age", f"time() - max({semconv.METRIC_ANALYSER_DATA_TIMESTAMP} > 0)"),
            ("length of a round", f"max({semconv.METRIC_ANALYSER_ROUND_SECONDS})"),
        ),
        unit="s",
        size=(8, 8),
        no_data=_NO_ANALYSER,
    )


def _waiting() -> g.Panel:
    flips = promql.rate(f"{semconv.METRIC_VERDICT_FLIPS}_total", "")
    return panels.timeseries(
        "Services that wait for a verdict",
        "With changes to look at, and no time for them in the newest round. Flips are verdicts that were "
        "given and then replaced: rare, or else data is too thin for what is asked of it.",
        panels.queries(
            ("waiting", f"max({semconv.METRIC_ANALYSER_WAITING})"),
            ("flips per hour", f"3600 * ({flips} or vector(0))"),
        ),
        unit="short",
        size=(8, 8),
        no_data=_NO_ANALYSER,
    )


def _without_path(expr: str) -> str:
    """Prometheus names a group by file and name; the path of the file is of no use in a legend."""
    return f'label_replace({expr}, "group", "$1", "{semconv.LABEL_RULE_GROUP}", ".*;(.*)")'
