"""Rules as a Prometheus user would judge them: promtool accepts them, and they say what is meant."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from otelkit import semconv
from otelkit.rules import HEADER, as_one_file, evaluation_interval, generate
from otelkit.spec import Duration, Spec, parse_spec

MIXED = """
services:
  - {name: web, preset: http, selector: {job: web}}
  - {name: old, preset: http, latency: {histogram: foo_ms, unit: ms}}
  - {name: chat}
  - {name: talk}
  - {name: other, service_label: app}
  - {name: 'odd: "name" # \\', selector: 'job="x"', windows: [2m]}
"""


def rules_of(spec: Spec) -> dict[str, list[dict[str, Any]]]:
    """Recorded series, or alert -> its rules."""
    found: dict[str, list[dict[str, Any]]] = {}
    for text in generate(spec).values():
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                found.setdefault(rule.get("record", rule.get("alert")), []).append(rule)
    return found


def test_the_rule_users_know_is_there_word_for_word() -> None:
    """Whoever looks for P99 of an HTTP service looks for this expression under this name."""
    (rule,) = rules_of(parse_spec("services: [{name: web, preset: http}]"))[semconv.RECORDED_P99]
    assert rule["expr"] == (
        "histogram_quantile(0.99, sum by (le, service) (rate(http_request_duration_seconds_bucket[1h])))"
    )


def test_raw_buckets_are_read_once_per_window() -> None:
    """Reading raw buckets is what rules cost; three quantiles must not read them three times."""
    rules = rules_of(Spec())
    reading = [rule for same in rules.values() for rule in same if "_bucket[1m]" in rule["expr"]]
    assert sorted(rule["record"] for rule in reading) == [
        "service_le:latency_seconds_bucket:rate1m",
        "service_le:time_per_output_chunk_seconds_bucket:rate1m",
        "service_le:time_to_first_chunk_seconds_bucket:rate1m",
    ]
    for quantile in ("p50", "p95", "p99"):
        assert f"service:{quantile}_latency_seconds:quantile_5m" in rules


ODD_TEXT = """
alerts: [{errors_above: 1%, matching: 'path=~"{{2}}"'}]
slos: [{errors: 1%, matching: 'path="{{ x"'}]
services:
  - {name: 'a {{ b }}', preset: http}
  - {name: 're.*(x|y)$', preset: http}
  - {name: 'line separator "quoted" \\', preset: http, selector: 'job="x\\"y\\\\z "'}
"""
"""Texts that mean something to Prometheus' templates, to its regular expressions, or to YAML."""

DOTTED = """
preset: http
split_by: [http.route]
slos: [{latency: 1s}, {errors: 1%, matching: '"http.status"=~"5.."'}]
services:
  - name: a
    service_label: service.name
    latency: {histogram: http.server.request.duration_seconds, buckets: [0.5, 1, 2]}
    errors: '"http.status"=~"5.."'
  - name: b
    latency: {histogram: http.server.request.duration, unit: ms, buckets: [500, 1000, 2000]}
    native: true
    selector: {k8s.pod.name: b}
"""
"""Names as OpenTelemetry has them, which Prometheus 3 keeps where it is told to."""

MANY = "\n".join(["services:", *(f"  - {{name: s{n}, selector: {{job: j{n}}}}}" for n in range(120))])
"""More services with selectors of their own than go into one group."""


@pytest.mark.prometheus
@pytest.mark.parametrize("text", ["", "services: [{name: web, preset: http}]", MIXED, ODD_TEXT, DOTTED, MANY])
def test_promtool_accepts_every_file(text: str, promtool_binary: Path, tmp_path: Path) -> None:
    """A file that Prometheus refuses takes all rules of that Prometheus with it at its next restart."""
    files = generate(parse_spec(text))
    files["all.yaml"] = as_one_file(files)
    for name, content in files.items():
        (tmp_path / name).write_text(content)
        command = [promtool_binary, "check", "rules", "--lint=all", "--lint-fatal", tmp_path / name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_bytes_do_not_depend_on_the_order_of_services() -> None:
    """Committed output would else change with every edit of the spec."""
    document = yaml.safe_load(MIXED)
    document["services"].reverse()
    assert generate(parse_spec(yaml.safe_dump(document))) == generate(parse_spec(MIXED))
    assert all(text.startswith(HEADER) for text in generate(Spec()).values())


def test_services_of_two_kinds_are_kept_apart() -> None:
    """A service that has the metrics of two presets must not be recorded twice under one name."""
    rules = rules_of(parse_spec("services: [{name: web, preset: http}, {name: chat}]"))
    (rule,) = rules["service_le:latency_seconds_bucket:rate1m"]
    assert 'http_request_duration_seconds_bucket{service="web"}' in rule["expr"]
    assert 'gen_ai_client_operation_duration_seconds_bucket{service="chat"}' in rule["expr"]


def test_milliseconds_become_seconds() -> None:
    """`service:p99_latency_seconds` in milliseconds would be wrong by 1000, and nobody would notice."""
    rules = rules_of(parse_spec("services: [{name: a, latency: {histogram: a_ms, unit: ms}}]"))
    assert rules[semconv.RECORDED_P99][0]["expr"].endswith(" / 1000")
    assert rules["service:p99_latency_seconds:quantile_1m"][0]["expr"].endswith(" / 1000")
    assert "service_le:latency_milliseconds_bucket:rate1m" in rules


def test_evaluation_follows_the_window() -> None:
    """Long windows are dear and move slowly; short ones must be evaluated as often as the spec says."""
    spec = parse_spec("{scrape_interval: 1s, evaluation_interval: 1s}")
    assert str(evaluation_interval(Duration.parse("15s"), spec)) == "1s"
    assert str(evaluation_interval(Duration.parse("5m"), spec)) == "5s"
    assert str(evaluation_interval(Duration.parse("1h"), spec)) == "1m"
    assert str(evaluation_interval(Duration.parse("1m"), Spec())) == "15s"


def test_the_examples_in_the_documentation_work() -> None:
    """A spec that is printed for copying and then refused costs more trust than none."""
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert generate(parse_spec(block))
    for name in (
        "service_slo:burn_rate:ratio_1h",
        "service:error_ratio:rate1m",
        "service_parameter:changes:count5m",
    ):
        assert name in text and name in "".join(generate(parse_spec(blocks[1])).values())
