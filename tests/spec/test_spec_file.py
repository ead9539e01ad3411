"""otelkit.yaml: what little is enough, and that every mistake is found with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from otelkit.errors import ConfigError
from otelkit.spec import Duration, Matcher, Spec, json_schema_text, load_spec, parse_matchers, parse_spec


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse_spec(text)
    return list(caught.value.problems)


def test_three_lines_are_enough() -> None:
    """Else nobody gets as far as a second look."""
    spec = parse_spec("services:\n  - name: chat\n    preset: http\n")
    (service,) = spec.resolved()
    assert service.latency == "http_request_duration_seconds"
    assert (str(service.base_window), [str(window) for window in service.windows]) == ("1h", ["1m", "5m"])


def test_an_empty_file_is_the_default_spec() -> None:
    """`otelkit generate rules` works before there is anything to say."""
    assert parse_spec("# nothing yet\n") == Spec()


def test_all_problems_at_once_with_their_lines() -> None:
    """A user who must run the command once per mistake gives up; a misspelt key must not vanish silently."""
    text = """\
servces: 3
services:
  - name: chat
    presett: gen_ai
    latency: "bad name"
  - preset: foo
    windows: [5x, 3]
  - name: x
    name: y
    selector: 'job='
    latency: {histogram: abc, unit: min}
"""
    found = problems(text)
    assert [int(line.split(":")[1]) for line in found] == [1, 4, 5, 6, 6, 7, 7, 9, 10, 11]
    assert found[0] == "otelkit.yaml:1: servces: unknown key; did you mean 'services'?"
    assert found[1] == "otelkit.yaml:4: services.0.presett: unknown key; did you mean 'preset'?"
    assert "services.1.name: is missing" in found[3]
    assert "given twice, first in line 8" in found[7]


def test_contradictions_are_found_beside_other_mistakes() -> None:
    """Whoever has mended what a run refused must not be refused again for what was there all along."""
    text = """\
windos: [1m]
services:
  - name: a
    slos: [{latency: 800ms}, {errors: 1%}, {errors: 2%}, {errors: 150%, name: x}]
  - name: b
    presett: http
    slos: [{latency: 250ms}]
  - {preset: http}
  - name: c
    alerts: [{latency_above: 90s}, {errors_above: 3}]
    windows: [nonsense]
"""
    found = problems(text)
    assert [re.findall(r"yaml:(\d+): ([\w.]+):", line)[0] for line in found] == [
        ("1", "windos"),
        ("4", "services.0.slos.0.latency"),
        ("4", "services.0.slos.2"),
        ("4", "services.0.slos.3.errors"),
        # Nothing of its objective, which may be sound by the buckets of the preset that was meant.
        ("6", "services.1.presett"),
        ("8", "services.2.name"),
        ("10", "services.3.alerts.0.latency_above"),
        ("10", "services.3.alerts.1.errors_above"),
        ("11", "services.3.windows.0"),
    ]


def test_contradictions_between_keys_are_found() -> None:
    """Two services of one name would share series; a window shorter than two scrapes never holds a rate."""
    found = problems("services:\n- name: a\n- name: a\n  windows: [10s]\nwindows: [20s]\n")
    assert [line.split(": ")[0] for line in found] == ["otelkit.yaml:3", "otelkit.yaml:4", "otelkit.yaml:5"]
    assert "use 1m or more" in found[1]


@pytest.mark.parametrize("text", ["services: [", "- a\n", "a: &x *y\n"])
def test_what_is_no_mapping_of_yaml_is_refused(text: str) -> None:
    """A traceback would not tell which file to mend."""
    assert all(re.match(r"otelkit\.yaml:[12]: ", line) for line in problems(text))


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    """The message holds the path that was looked for, and what to do."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml.*No such file.*\n.*Three lines"):
        load_spec(tmp_path / "nowhere.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_spec(tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("60m", "1h"), ("90s", "1m30s"), ("1d", "1d"), ("1500ms", "1s500ms"), ("1w", "7d")],
)
def test_equal_durations_have_one_text(text: str, canonical: str) -> None:
    """The text is part of recorded series' names: 60m and 1h must not be two series."""
    assert str(Duration.parse(text)) == canonical
    assert Duration.parse(canonical) == Duration.parse(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("800ms", 0.8), ("2.5s", 2.5), ("1.28", 1.28), ("1m", 60.0), (".5s", 0.5)]
)
def test_thresholds_are_written_as_people_write_them(text: str, seconds: float) -> None:
    """`2.5s` is no duration to Prometheus, and still what a threshold is called."""
    spec = parse_spec(f"alerts: [{{latency_above: {text}}}]")
    assert spec.alerts[0].latency_above == pytest.approx(seconds, abs=1e-12)


def test_matchers_mean_what_they_mean_in_promql() -> None:
    """Pages scraped in process are filtered here, not by Prometheus: both must pick the same series."""
    exact, pattern, negative, absent = parse_matchers('{job="a", code=~\'5..\', env!~"dev|test", gone!=""}')
    assert exact == Matcher("job", "=", "a")
    assert exact.matches({"job": "a"}) and not exact.matches({"job": "ab"})
    assert pattern.matches({"code": "503"}) and not pattern.matches({"code": "5033"})
    assert negative.matches({"env": "prod"}) and negative.matches({}) and not negative.matches({"env": "dev"})
    assert not absent.matches({})
    assert str(pattern) == 'code=~"5.."'
    with pytest.raises(ValueError, match="regular expression"):
        parse_matchers('a=~"("')


def test_the_published_schema_is_that_of_the_code() -> None:
    """Editors check by the published file; after a change, write it anew with `otelkit generate schema`."""
    published = Path(__file__).parents[2] / "docs" / "otelkit.schema.json"
    assert published.read_text() == json_schema_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("services: &a [*a]", "an alias holds itself"),
        ("? [1]\n: 2", ":1: can't be used: found unhashable key"),
        ("services: !!python/object:os.system {}", ":1: can't be used: could not determine a constructor"),
        ("windows: [9999999y]", "longer than Prometheus can count"),
        ("services: [{name: a, latency: {histogram: h, buckets: [1, .inf]}}]", "finite"),
        ("services: [{name: a, latency: h_bucket}]", "use h"),
        ("services: [{name: a, selector: {}}]", "every service"),
        ("services: [{name: a, selector: 'job=~\"(?!x)y\"'}]", "have no (?!"),
        ("services: [{name: a, service_label: le}]", "can't tell services or calls apart"),
        ("split_by: [service]", "recorded by 'service' already"),
        ("alerts: [{errors_above: 1%, matching: 'le=\"1\"'}]", "would pick no call"),
        ("slos: [{latency: 1.28, quantile: 0.9999999999999}]", "leaves no calls"),
        ("services: [{name: a, preset: http, latency: {sharpened: [0.6]}}]", "does not write; state"),
    ],
)
def test_what_would_give_rules_that_see_nothing_is_refused(text: str, said: str) -> None:
    """Each of these once ended in a traceback, in rules that are refused, or in an alert on nothing."""
    (line,) = problems(text)
    assert said in line, line


def test_advice_to_sharpen_is_given_where_it_helps() -> None:
    """The variable does nothing for histograms of others, and one value must not undo another."""
    (line,) = problems("services: [{name: a, latency: {sharpened: [3]}, slos: [{latency: 0.8}]}]")
    assert "OTELKIT_LATENCY_SLO_SECONDS=0.8,3 in the service and latency: {sharpened: [0.8,3]} here" in line
    (line,) = problems("services: [{name: a, preset: http, slos: [{latency: 0.8}]}]")
    assert "OTELKIT" not in line and "buckets: [...]" in line
