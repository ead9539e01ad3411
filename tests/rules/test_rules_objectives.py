"""Objectives and alerts: each can fire, each says what to do, and what can't fire is refused."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from otelkit.errors import ConfigError
from otelkit.rules import generate, generate_alertmanager, generate_with_warnings
from otelkit.rules.lint import known_metrics, lint
from otelkit.spec import Duration, parse_spec

ROOT = Path(__file__).parents[2]


def alerts_of(text: str) -> list[dict[str, Any]]:
    document = yaml.safe_load(generate(parse_spec(text))["alerts.rules.yaml"])
    return [rule for group in document["groups"] for rule in group["rules"]]


def problem(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_spec(text)
    (line,) = caught.value.problems
    return line


def test_burn_rates_are_those_of_thirty_days() -> None:
    """14.4, 6, 3 and 1 over 1h, 6h, 1d and 3d: other factors would page for nothing, or too late."""
    alerts = alerts_of("services: [{name: a, slos: [{errors: 0.1%}]}]")
    burning = [rule for rule in alerts if rule["alert"] == "OtelkitErrorBudgetBurn"]
    found = [
        (rule["labels"]["windows"], rule["labels"]["severity"], re.search(r"> (\S+)", rule["expr"])[1])
        for rule in burning
    ]
    assert found == [
        ("5m/1h", "page", "14.4"),
        ("30m/6h", "page", "6"),
        ("2h/1d", "ticket", "3"),
        ("6h/3d", "ticket", "1"),
    ]


def test_few_calls_are_no_evidence() -> None:
    """One failed call in a quiet night is a large share of it, and no reason to wake anybody."""
    spec = """
services:
  - {name: a}
  - {name: b, slos: [{errors: 0.1%, min_calls: 20}]}
  - {name: c, slos: [{errors: 0.1%, min_calls: 1}]}
slos: [{errors: 0.1%}]
alerts: [{errors_above: 1%}, {latency_above: 1s, min_calls: 30}, {errors_above: 1%, name: any, min_calls: 1}]
"""
    alerts = alerts_of(spec)
    paging = [rule["expr"] for rule in alerts if rule["labels"].get("windows") == "5m/1h"]
    assert [re.findall(r'min_calls="(\d*)"', expr)[0] for expr in paging] == ["1", "", "20"]
    assert "broken_calls" not in paging[0]
    assert paging[1].endswith('service_slo:broken_calls:increase_1h{slo_window="30d",min_calls=""} > 4.5')
    assert paging[2].endswith('service_slo:broken_calls:increase_1h{slo_window="30d",min_calls="20"} > 19.5')
    levels = {rule["labels"]["alert_on"]: rule["expr"] for rule in alerts if "alert_on" in rule["labels"]}
    assert levels["errors"].endswith('service:errors:rate5m{service=~"a|b|c"} * 300 > 4.5')
    assert levels["p95"].endswith('service:requests:rate5m{service=~"a|b|c"} * 300 > 29.5')
    assert levels["any"].endswith("> 0.01")


def test_every_alert_says_where_to_look() -> None:
    """A runbook that exists, a severity that Alertmanager routes by, and a dashboard."""
    text = "services: [{name: a, slos: [{errors: 1%}], alerts: [{errors_above: 1%}, {latency_above: 1s}]}]"
    alerts = alerts_of(text)
    assert {rule["alert"] for rule in alerts} == {
        "OtelkitErrorBudgetBurn",
        "OtelkitHighLatency",
        "OtelkitHighErrorRatio",
        "OtelkitServiceAbsent",
    }
    for rule in alerts:
        page = ROOT / "docs" / rule["annotations"]["runbook_url"]
        assert page.read_text().startswith(f"# {rule['alert']}\n")
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert "var-service={{ $labels.service" in rule["annotations"]["dashboard_url"]


@pytest.mark.parametrize(
    ("slo", "said"),
    [
        ("{errors: 10%}", r"144% of calls.*can never fire.*burn_alerts: \[30m/6h, 2h/1d, 6h/3d\]"),
        ("{latency: 0.64, quantile: 0.9}", "can never fire"),
        ("{latency: 800ms}", r"no bucket bound at 0\.8 s; the nearest are 0\.64 and 1\.28"),
        ("{latency: 90s}", r"beyond the last bucket bound.*81\.92"),
        ("{errors: 1%, window: 1d}", "too short to alert on"),
        ("{errors: 1%, window: 7d, burn_alerts: [6h/3d]}", "while the objective holds"),
        ("{latency: 1s, errors: 1%}", "either latency: or errors:"),
        ("{errors: 150%}", "less than 1"),
    ],
)
def test_objectives_that_can_not_work_are_refused(slo: str, said: str) -> None:
    """An alert that can never fire looks like a service without trouble."""
    line = problem(f"services:\n  - name: a\n    slos:\n      - {slo}\n")
    assert line.startswith("otelkit.yaml:4: services.0.slos.0")
    assert re.search(said, line), line


@pytest.mark.parametrize(
    ("service", "said"),
    [
        ("alerts: [{latency_above: 82s}]", "can never fire"),
        ("alerts: [{latency_above: 1s, quantile: 0.9}]", "recorded are 0.5, 0.95, 0.99"),
        ("alerts: [{latency_above: 1s}, {latency_above: 2s}]", "same name as alerts.0"),
        ("preset: envoy\n    latency: own_ms\n    slos: [{errors: 1%}]", "can't tell failed calls"),
        ("preset: vllm\n    slos: [{errors: 1%}]", "can't tell failed calls"),
        ("latency: own_seconds\n    slos: [{latency: 1s}]", "bounds of own_seconds are not known"),
    ],
)
def test_alerts_that_can_not_work_are_refused(service: str, said: str) -> None:
    """The message names the line, the reason and a way out."""
    assert said in problem(f"services:\n  - name: a\n    {service}\n")


def test_sharpened_buckets_make_an_objective_possible() -> None:
    """What the refusal advises must work."""
    spec = parse_spec("services: [{name: a, latency: {sharpened: [0.8]}, slos: [{latency: 800ms}]}]")
    assert 'le="0.8"' in generate(spec)["slo.rules.yaml"]


def test_whole_bounds_match_as_prometheus_writes_them() -> None:
    """Prometheus 3 stores `le="1.0"` where 2 stored `le="1"`; matching one of them only would see no call."""
    spec = parse_spec("services: [{name: a, preset: http, slos: [{latency: 1s}]}]")
    assert r'le=~"1(\\.0)?"' in generate(spec)["slo.rules.yaml"]


def test_bounds_of_a_million_and_more_match_too() -> None:
    """Prometheus 3 stores 1,800,000 ms as `le="1.8e+06"`: an objective of 30m would count nothing."""
    spec = parse_spec("services: [{name: a, preset: envoy, slos: [{latency: 30m}]}]")
    (found,) = set(re.findall(r'le=~("18[^"]*")', generate(spec)["slo.rules.yaml"]))
    pattern = re.compile(json.loads(found))
    assert all(pattern.fullmatch(le) for le in ("1.8e+06", "1800000", "1800000.0"))
    assert not pattern.fullmatch("18000000")


def test_rules_that_can_not_keep_up_are_told() -> None:
    """A group that overruns its interval skips evaluations, and nobody sees why alerts come late."""
    services = ",".join(f"{{name: s{index}}}" for index in range(2000))
    spec = parse_spec(f"{{services: [{services}], instances: 20, evaluation_interval: 15s}}")
    assert any("rules over 1h" in warning for warning in generate_with_warnings(spec).warnings)
    assert generate_with_warnings(parse_spec("services: [{name: a}]")).warnings == ()


def test_many_selected_services_are_spread_over_groups() -> None:
    """Rules of a group run one after another: a thousand of them in one group would overrun."""
    services = ",".join(f"{{name: s{index:03}, selector: {{job: j{index}}}}}" for index in range(250))
    document = yaml.safe_load(generate(parse_spec(f"services: [{services}]"))["latency.rules.yaml"])
    groups = [group for group in document["groups"] if group["name"].startswith("otelkit-latency-1m")]
    assert [group["name"].removeprefix("otelkit-latency-1m") for group in groups] == ["-1", "-2", "-3", ""]
    rates = [rule for group in groups[:3] for rule in group["rules"]]
    assert all(rule["record"].startswith("service_le:") and "labels" in rule for rule in rates)
    # One rule for all of them: several of one name and equal labels are duplicates.
    recorded = [rule["record"] for rule in groups[3]["rules"]]
    assert "service:p99_latency_seconds:quantile_1m" in recorded and len(set(recorded)) == len(recorded)


def test_a_series_outlives_one_evaluation_that_fails() -> None:
    """Prometheus forgets a series after five minutes: alerts on older burn rates would end at random."""
    document = yaml.safe_load(generate(parse_spec("slos: [{errors: 1%}]"))["slo.rules.yaml"])
    intervals = [Duration.parse(group["interval"]) for group in document["groups"]]
    assert max(intervals) == Duration.parse("2m")
    assert "use 2m or less" in problem("evaluation_interval: 5m\n")


def test_lint_finds_what_promtool_accepts() -> None:
    """An averaged quantile, a bare counter, a label summed away and a metric that nobody has."""
    spec = parse_spec("services: [{name: a, preset: http}]")
    text = """\
groups:
- name: g
  rules:
  - record: mean
    expr: avg(service:p99_latency_seconds:quantile)
  - record: bare
    expr: sum by (service) (http_request_duration_seconds_count)
  - record: gone
    expr: service:p99_latency_seconds:quantile{instance="x"} / on (job) group_left () vllm:nothing
  - record: broken
    expr: sum(
"""
    files = {**generate(spec), "mine.yaml": text}
    found = lint(files, known_metrics(spec))
    assert [line.split(": ")[:2] for line in found] == [
        ["mine.yaml:10", "broken"],
        ["mine.yaml:4", "mean"],
        ["mine.yaml:6", "bare"],
        ["mine.yaml:8", "gone"],
        ["mine.yaml:8", "gone"],
        ["mine.yaml:8", "gone"],
    ]
    assert "vllm:nothing" in "".join(found)


def test_a_template_can_be_replaced_and_a_stray_one_is_refused(tmp_path: Path) -> None:
    """A misnamed template would silently replace nothing; a broken one must name its line."""
    (tmp_path / "changes.rules.yaml.j2").write_text(
        "groups:\n- name: mine\n  rules:\n  - {record: a:b, expr: << budget_use >>}\n"
    )
    files = generate(parse_spec(""), tmp_path)
    assert "service_slo:budget_use:rate5m" in files["changes.rules.yaml"]
    for wrong, said in (
        ("a\n<% for %>", "Expected"),
        ("a\n<< nothing_of_the_kind >>", "nothing_of_the_kind"),
        ("a\n<< 1 / 0 >>", "division by zero"),
        ("a\n<% include 'gone.j2' %>", "gone.j2"),
    ):
        (tmp_path / "changes.rules.yaml.j2").write_text(wrong)
        with pytest.raises(ConfigError) as caught:
            generate(parse_spec(""), tmp_path)
        (line,) = caught.value.problems
        assert line.startswith(f"{tmp_path}/changes.rules.yaml.j2:2: ") and said in line
    (tmp_path / "chnges.rules.yaml.j2").write_text("")
    with pytest.raises(ConfigError, match=r"chnges.*replaces no template"):
        generate(parse_spec(""), tmp_path)


def test_alertmanager_routes_by_severity() -> None:
    """Pages must not end up among tickets; the rollback route is there only if asked for."""
    plain = yaml.safe_load(generate_alertmanager(parse_spec("")))
    assert [route["receiver"] for route in plain["route"]["routes"]] == ["pages", "tickets"]
    asked = yaml.safe_load(
        generate_alertmanager(parse_spec("{links: {rollback_webhook: 'http://127.0.0.1:9/x'}}"))
    )
    assert asked["route"]["routes"][0] == {
        "matchers": ['severity="page"', 'alertname="OtelkitErrorBudgetBurn"'],
        "receiver": "rollback",
        "group_wait": "0s",
        "continue": True,
    }
    assert {one["name"] for one in asked["receivers"]} == {"pages", "tickets", "rollback"}


GOLDEN = sorted(path.parent.name for path in Path(__file__).parent.glob("golden/*/otelkit.yaml"))


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files(name: str) -> None:
    """What the real command writes is what was reviewed; after a wanted change, run it without --check."""
    from test_rules_command import otelkit

    done = otelkit(
        "generate", "rules", "--with-tests", "--check", cwd=Path(__file__).parent / "golden" / name
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", GOLDEN)
def test_generated_tests_pass(name: str, promtool_binary: Path) -> None:
    """Every rule and alert of the examples does what its test says: P99, resets, gaps, silence, alarms."""
    folder = Path(__file__).parent / "golden" / name / "rules"
    for command in (
        ["check", "rules", "--lint=all", "--lint-fatal", *sorted(map(str, folder.glob("*.yaml")))],
        ["test", "rules", str(folder / "tests" / "otelkit.test.yaml")],
    ):
        done = subprocess.run([promtool_binary, *command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("example", "mistake", "tests", "said"),
    [
        ("http", ("histogram_quantile(0.95", "histogram_quantile(0.9"), "steady", "p95"),
        ("objectives", ("> 4.5", "> 0"), "by one call", "OtelkitErrorBudgetBurn"),
        ("objectives", ("and service_slo:burn_rate:ratio_5m", "and service_slo:burn_rate:ratio_1h"),
         "recovers", "OtelkitErrorBudgetBurn"),
        ("objectives", ("> 14.4", "> 1e9"), "recovers", "OtelkitErrorBudgetBurn"),
    ],
)  # fmt: skip
def test_a_wrong_rule_fails_its_generated_test(
    example: str, mistake: tuple[str, str], tests: str, said: str, promtool_binary: Path, tmp_path: Path
) -> None:
    """Tests that pass whatever the rules say would be worse than none.

    A wrong quantile; one failed call at night that pages; a page that does not end when the trouble does; and
    one that never comes.
    """
    folder = Path(__file__).parent / "golden" / example / "rules"
    (tmp_path / "tests").mkdir()
    for path in folder.glob("*.yaml"):
        text = path.read_text()
        (tmp_path / path.name).write_text(text.replace(*mistake))
    document = yaml.safe_load((folder / "tests" / "otelkit.test.yaml").read_text())
    document["tests"] = [test for test in document["tests"] if tests in test["name"]]
    (tmp_path / "tests" / "some.test.yaml").write_text(yaml.safe_dump(document))
    command = [promtool_binary, "test", "rules", tmp_path / "tests" / "some.test.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert document["tests"] and done.returncode != 0 and said in done.stdout + done.stderr
