"""Pictures of dashboards: what is computed for them, and the page in a real browser."""

from __future__ import annotations

import copy
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from dashboards_history import CHAT, SPEC, FilledPrometheus
from preview_pages import data_of, rendered

from otelkit.cli.main import cli
from otelkit.dashboards import documents
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview import PrometheusApi, Span, render_preview
from otelkit.dashboards.preview.frames import legend_text, table_frame, transform
from otelkit.dashboards.preview.prometheus import QueryError
from otelkit.dashboards.preview.variables import Variables, resolve
from otelkit.errors import BackendUnreachable, OtelkitError, UsageError

pytestmark = pytest.mark.timeout(300)


def _panel(page: str, title: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in data_of(page)["panels"] if one["title"] == title)
    return found


@pytest.mark.prometheus
def test_the_same_data_give_the_same_bytes(filled: FilledPrometheus) -> None:
    """Previews under version control would change with every run."""
    document = documents(SPEC)["otelkit-causal"]
    assert rendered(filled, document) == rendered(filled, document)


@pytest.mark.prometheus
def test_it_says_that_it_is_a_preview(filled: FilledPrometheus) -> None:
    """A picture in a pull request would be taken for Grafana's."""
    assert "A preview drawn by otelkit, not Grafana" in rendered(filled, documents(SPEC)["otelkit-causal"])


@pytest.mark.prometheus
def test_axes_marks_and_colours_are_the_dashboards(filled: FilledPrometheus) -> None:
    """The picture would not show what the dashboard's overrides say."""
    page = rendered(filled, documents(SPEC)["otelkit-causal"], service=[CHAT])
    main = _panel(page, "P99 against parameter changes")
    by_name = {series["name"]: series for series in main["series"]}
    assert by_name["P99"]["color"] == "red"
    assert by_name["P99 without causal changes"]["dashed"]
    assert by_name["max_tokens"]["right"]
    assert by_name["max_tokens"]["bars"]
    assert not by_name["P99"]["right"]
    marks = {(mark["title"], mark["text"].strip(), mark["color"]) for mark in data_of(page)["annotations"]}
    assert ("max_tokens 64 → 256", "causal", "red") in marks
    assert len(marks) == len(data_of(page)["annotations"]) == 4


@pytest.mark.prometheus
def test_heatmap_cells_are_not_cumulative(filled: FilledPrometheus) -> None:
    """Each bucket would hold all those below it as well, and the picture one dark block."""
    page = rendered(filled, documents(SPEC)["otelkit-token-steps"])
    heatmap = _panel(page, "Time between tokens")
    column = [count for x, _, count in heatmap["cells"] if x == 60]
    with PrometheusApi(filled.url) as api:
        rate = "sum(rate(gen_ai_client_operation_time_per_output_chunk_seconds_count[1m]))"
        (total,) = api.at(rate, heatmap["times"][60] / 1000)
    assert sum(column) == pytest.approx(float(total["value"][1]))


@pytest.mark.prometheus
def test_a_service_that_does_not_exist_is_said(filled: FilledPrometheus) -> None:
    """A page of empty panels would not say why."""
    page = rendered(filled, documents(SPEC)["otelkit-causal"], service=["<b>none</b>"])
    assert "variable &#39;Service&#39;: &lt;b&gt;none&lt;/b&gt; is none of its values here" in page
    assert "<b>none</b>" not in page


@pytest.mark.prometheus
def test_a_span_without_data_is_said(filled: FilledPrometheus) -> None:
    """An empty Prometheus would look like a broken dashboard."""
    with PrometheusApi(filled.url) as api:
        page = render_preview(documents(SPEC)["otelkit-causal"], api, Span(1e9, 1e9 + 3600, 15))
    assert "has no data for any panel in this span" in page
    assert "variable &#39;Service&#39; selects nothing" in page


@pytest.mark.prometheus
def test_faulty_queries_and_unknown_parts_are_said_in_their_panel(filled: FilledPrometheus) -> None:
    """One bad panel would stop the whole picture, or be blank without a word."""
    document = copy.deepcopy(documents(SPEC)["otelkit-overview"])
    panels = {panel["title"]: panel for panel in panels_of(document)}
    panels["P99 by service"]["targets"][0]["expr"] = "sum(("
    panels["Time per token"]["transformations"] = [{"id": "joinByLabels", "options": {}}]
    panels["Tokens per second"]["type"] = "piechart"
    page = rendered(filled, document)
    assert "parse error" in _panel(page, "P99 by service")["problems"][0]
    assert "'joinByLabels' is not known" in _panel(page, "Time per token")["problems"][0]
    assert "'piechart' are not drawn" in _panel(page, "Tokens per second")["problems"][0]
    assert not _panel(page, "Latency of the selection, with traces")["problems"]


@pytest.mark.prometheus
@pytest.mark.parametrize("mode", ["markdown", "html", "text"])
def test_text_panels_run_nothing(mode: str, filled: FilledPrometheus) -> None:
    """A dashboard from elsewhere would run its author's script in the reader's browser."""
    document = copy.deepcopy(documents(SPEC)["otelkit-runbook"])
    options = document["panels"][0]["options"]
    options.update(mode=mode, content="<img src=x onerror=alert(1)> [x](javascript:alert(1))")
    content = _panel(rendered(filled, document), "P99 moved after a change")["content"]
    assert "<img" not in content
    assert "href" not in content


@pytest.mark.prometheus
@pytest.mark.browser
def test_the_command_writes_page_and_picture(
    filled: FilledPrometheus, chromium_path: Path, tmp_path: Path
) -> None:
    """The README's command would not give the pictures in the README."""
    arguments = ["dashboards", "preview", "otelkit-itself", "--prometheus", filled.url, "-o", str(tmp_path)]
    arguments += ["--since", str(filled.start), "--until", str(filled.end), "--var", f"service={CHAT}"]
    result = CliRunner().invoke(cli, [*arguments, "--png", "--browser", str(chromium_path)])
    assert result.exit_code == 0, result.output
    page, picture = (Path(line) for line in result.stdout.splitlines())
    assert page.name == "otelkit-itself.html"
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", header[16:24])
    assert width == 1500
    assert height > 1500


def test_pictures_without_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Chromium would give a traceback, and pages would not be written either."""
    monkeypatch.setenv("PATH", "")
    result = CliRunner().invoke(cli, ["dashboards", "preview", "--png"])
    assert isinstance(result.exception, UsageError)
    assert "no browser for pictures" in str(result.exception)
    assert "leave --png out" in str(result.exception)


def test_a_browser_that_fails(tmp_path: Path) -> None:
    """The reason would be lost in the browser's own output."""
    from otelkit.dashboards.preview import take_picture

    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no display >&2\nexit 7\n")
    broken.chmod(0o755)
    with pytest.raises(OtelkitError, match="ended with 7: no display"):
        take_picture(broken, tmp_path / "page.html", tmp_path / "page.png")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["otelkit-casual"], "no dashboard 'otelkit-casual'; there are otelkit-causal"),
        (["missing.json"], "missing.json: can't be read"),
        (["broken.json"], "broken.json: is no JSON"),
        (["other.json"], "other.json: is no dashboard"),
        (["texts.json"], "texts.json: is no dashboard"),
        (["outside.json"], "outside.json: uid '../../x': Grafana takes"),
        (["number.json"], "number.json: the dashboard's title is 5"),
    ],
)
def test_bad_names_of_dashboards(
    names: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A typing error would be a traceback."""
    monkeypatch.chdir(tmp_path)
    Path("broken.json").write_text("{")
    Path("other.json").write_text("[]")
    Path("texts.json").write_text('{"panels": ["x"]}')
    Path("outside.json").write_text('{"uid": "../../x", "panels": []}')
    Path("number.json").write_text('{"title": 5, "panels": []}')
    result = CliRunner().invoke(cli, ["dashboards", "preview", *names])
    assert isinstance(result.exception, OtelkitError)
    assert result.exception.exit_code == 2
    assert message in str(result.exception)


@pytest.mark.prometheus
def test_a_folder_that_can_not_be_written(filled: FilledPrometheus, tmp_path: Path) -> None:
    """The user would see a traceback after the wait for all queries."""
    (tmp_path / "file").touch()
    arguments = ["dashboards", "preview", "otelkit-runbook", "--prometheus", filled.url]
    result = CliRunner().invoke(cli, [*arguments, "-o", str(tmp_path / "file" / "below")])
    assert isinstance(result.exception, UsageError)
    assert "can't be written" in str(result.exception)


@pytest.mark.prometheus
def test_an_unknown_variable_is_refused(filled: FilledPrometheus) -> None:
    """A misspelt --var would silently show something else."""
    with pytest.raises(UsageError, match="no variable 'servce'; it has datasource, tempo, service"):
        rendered(filled, documents(SPEC)["otelkit-causal"], servce=["chat"])


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "http://prometheus.invalid", "http://[", "9090"])
def test_a_prometheus_that_does_not_answer(url: str) -> None:
    """The user would see a stack of HTTP internals, and a script the wrong exit code."""
    with PrometheusApi(url) as api, pytest.raises(BackendUnreachable, match="no answer"):
        api.at("up", 0)


def test_an_address_that_is_not_prometheus() -> None:
    """A page of something else would be a JSON error."""
    transport = httpx.MockTransport(lambda request: httpx.Response(200, text="<html>"))
    api = PrometheusApi("http://x", httpx.Client(transport=transport))
    with pytest.raises(BackendUnreachable, match="not as Prometheus does"):
        api.at("up", 0)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ('{s=~"$service"}', '{s=~"chat"}'),
        ('{s=~"${service:regex}"}', '{s=~"chat"}'),
        ('{s=~"[[service]]"}', '{s=~"chat"}'),
        ("[$__range]", "[$__range]"),
        ('label_replace(x, "a", "$1", "b", "(.*)")', 'label_replace(x, "a", "$1", "b", "(.*)")'),
        ("$services", "$services"),
    ],
)
def test_variables_are_put_in_as_grafana_does(text: str, replaced: str) -> None:
    """A query would differ from the one that Grafana runs."""
    assert Variables({"service": "chat"}).replace(text) == replaced


@pytest.mark.parametrize(
    ("regex", "values"),
    [
        ("", ["a-1", "B-2", "c"]),
        ("/^(?!.*1).*$/", ["B-2", "c"]),
        ("/b/i", ["B-2"]),
        ("/(.*)-/", ["a", "B"]),
        ("/(?<text>.)-(?<value>.)/", ["1", "2"]),
        ("-", ["a-1", "B-2"]),
        ("/(/", ["a-1", "B-2", "c"]),
    ],
)
def test_regexes_of_variables_are_javascripts(regex: str, values: list[str]) -> None:
    """A variable would have other values than in Grafana, or the preview end in a traceback."""
    template = {"name": "x", "type": "query", "query": "label_values(up, x)", "regex": regex, "multi": True}
    answer = httpx.Response(200, json={"status": "success", "data": ["a-1", "B-2", "c"]})
    api = PrometheusApi("http://x", httpx.Client(transport=httpx.MockTransport(lambda request: answer)))
    found = resolve({"templating": {"list": [template]}}, api, 0, 1, {"x": values})
    assert [problem for problem in found.problems if "none of its values" in problem] == []
    assert any("regex" in problem for problem in found.problems) is (regex == "/(/")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(200, json=[]), BackendUnreachable),
        (httpx.Response(200, json={"status": "success"}), BackendUnreachable),
        (httpx.Response(401, text="no"), BackendUnreachable),
        (httpx.Response(403, json={"status": "error", "error": "no"}), BackendUnreachable),
        (httpx.Response(503, json={"status": "error", "error": "query timed out"}), QueryError),
    ],
)
def test_answers_that_are_nodata_of(answer: httpx.Response, error: type[Exception]) -> None:
    """A proxy's page or a refusal would be a traceback instead of a sentence."""
    api = PrometheusApi("http://x", httpx.Client(transport=httpx.MockTransport(lambda request: answer)))
    with pytest.raises(error):
        api.at("up", 0)


@pytest.mark.parametrize(
    ("legend", "text"),
    [
        ("{{service}} of {{ job }}", "chat of a"),
        ("{{missing}}", ""),
        ("__auto", 'up{job="a", service="chat"}'),
        ("P99", "P99"),
    ],
)
def test_legends(legend: str, text: str) -> None:
    """Curves would be called otherwise than in Grafana."""
    assert legend_text(legend, {"__name__": "up", "service": "chat", "job": "a"}) == text


def test_rows_that_share_their_labels_are_merged() -> None:
    """A table would have a row for every query instead of one for every service."""
    first = table_frame([{"metric": {"s": "a"}, "value": [1, "2"]}], "A", alone=False)
    second = table_frame(
        [{"metric": {"s": "a"}, "value": [1, "3"]}, {"metric": {"s": "b"}, "value": [1, "NaN"]}],
        "B",
        alone=False,
    )
    assert first
    assert second
    (merged,), unknown = transform([first, second], [{"id": "merge", "options": {}}])
    assert unknown == []
    assert merged.rows() == [
        {"Time": 1000.0, "s": "a", "Value #A": 2.0, "Value #B": 3.0},
        {"Time": 1000.0, "s": "b", "Value #A": None, "Value #B": None},
    ]


def test_credentials_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mimir or a Prometheus behind a proxy could not be previewed; or a page would hold a password."""
    seen: list[httpx.Request] = []

    def answer(self: httpx.Client, request: httpx.Request, **unused: Any) -> httpx.Response:
        seen.append(request)
        return httpx.Response(401, text="no", request=request)

    monkeypatch.setattr(httpx.Client, "send", answer)
    monkeypatch.setenv("OTELKIT_PROMETHEUS_TOKEN", "t0ken")
    api = PrometheusApi("http://me:secret@prometheus.test/x", headers={"X-Scope-OrgID": "team"})
    with api, pytest.raises(BackendUnreachable, match="does not take these credentials") as raised:
        api.at("up", 0)
    assert seen[0].headers["X-Scope-OrgID"] == "team"
    assert seen[0].headers["Authorization"].startswith(("Bearer t0ken", "Basic "))
    assert "secret" not in api.url + str(raised.value)
