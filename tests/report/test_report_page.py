"""The HTML page in a real browser."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from typing import Any

import numpy as np
import pytest
import sample_report as sample

from otelkit.causal.explanation import Explanation, Interval, Verdict
from otelkit.query.panel import Panel
from otelkit.report import render_page

OpenPage = Callable[..., Any]
EVIL = (
    "</script><script>document.title='pwned'</script>"
    "<img src=x onerror=\"document.title='pwned'\">'\"&amp;\u2028{{7*7}}"
)


def sample_page(**more: Any) -> str:
    """The sample's page; keywords replace fields of the explanation."""
    return render_page(
        sample.sample_explanation(**more),
        sample.sample_panel(),
        exemplars=sample.sample_exemplars(),
        zone=UTC,
    )


def assert_quiet(opened: Any) -> None:
    """No complaint, and nothing asked for but the file itself."""
    assert opened.complaints == []
    assert [url.split(":")[0] for url in opened.requests] == ["file"]


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Polls from here: playwright's own wait evaluates text in the page, which the page's policy forbids."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the page did not get there"
        time.sleep(0.05)


def series_in(opened: Any, selector: str) -> list[dict[str, Any]]:
    """Id, type and number of points of each series that the chart library holds."""
    script = """selector => echarts.getInstanceByDom(document.querySelector(selector)).getOption().series.map(
        one => ({id: one.id, type: one.type, points: one.data.length,
                 gaps: one.type === "line" ? one.data.filter(pair => pair[1] === null).length : 0}))"""
    return opened.page.evaluate(script, selector)  # type: ignore[no-any-return]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_page_is_whole_at_every_width_and_scheme(open_page: OpenPage, width: int, scheme: str) -> None:
    """On a phone at night the page must still answer: nothing cut off, nothing fetched, every chart drawn."""
    opened = open_page(sample_page(), width=width, scheme=scheme)
    page = opened.page
    assert_quiet(opened)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    cut_off = page.evaluate(
        """() => [...document.querySelectorAll("main *")].filter(node => {
            const box = node.getBoundingClientRect();
            return box.width && box.right > innerWidth + 1 && !node.closest("svg, .hidden, thead");
        }).map(node => node.outerHTML.slice(0, 80))"""
    )
    assert cut_off == []
    for chart in ("#timeline", "#graph", "#exemplars", "[data-placebo=change-2]"):
        assert page.locator(f"{chart} svg path").count() > 3, chart
        box = page.locator(f"{chart} svg").bounding_box()
        assert box["width"] > 250, chart
        assert box["height"] > 90, chart
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(18, 22, 27)")


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_thresholds_waiting_and_band_are_shown(open_page: OpenPage, width: int) -> None:
    """Broken if a threshold or the time of a verdict were cut off on a phone, or the counterfactual of an
    engine that gives none had no band."""
    early = {"verdict": Verdict.CANNOT_SEPARATE, "known_at": sample.START + 900}
    findings = tuple(
        replace(one, threshold=0.12, **(early if one.change.parameter == "seed" else {}))
        for one in sample.sample_findings()
    )
    html = sample_page(findings=findings, counterfactual_low=None, counterfactual_high=None)
    opened = open_page(html, width=width)
    assert_quiet(opened)
    page = opened.page
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    shown = page.locator(".threshold").all_inner_texts()
    assert [text.replace("\xa0", " ") for text in shown][:2] == ["> 120 ms: crossed", "> 120 ms: not crossed"]
    for box in (one.bounding_box() for one in page.locator(".threshold, .verdict span").all()):
        assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert "known at 14:15:00" in page.locator(".verdicts").inner_text()
    assert {one["id"] for one in series_in(opened, "#timeline")} >= {"band", "counterfactual"}


@pytest.mark.browser
def test_time_chart_holds_every_curve_with_its_gaps(sample_opened: Any) -> None:
    """A missing scrape drawn as a line, or a curve left out, shows an incident that did not happen."""
    series = {one["id"]: one for one in series_in(sample_opened, "#timeline")}
    assert set(series) == {"changes", "band", "p99", "counterfactual", "load"}
    assert series["changes"]["points"] == 5
    assert series["p99"]["points"] == series["load"]["points"] == sample.STEPS
    assert series["p99"]["gaps"] == series["load"]["gaps"] == 9
    # The counterfactual begins with the first causal change.
    assert series["counterfactual"]["gaps"] >= 110


@pytest.mark.browser
def test_every_change_is_text_in_the_table_and_on_the_chart(sample_opened: Any) -> None:
    """Whoever can't see the chart must find each change with its number, effect and verdict."""
    for number, finding in enumerate(sample.sample_findings(), 1):
        row = sample_opened.page.locator(f"#row-{number}")
        text = row.inner_text()
        assert finding.change.parameter in text
        assert finding.verdict.value in text
        assert re.search(r"[+-]\d+ \[-?\d+, \d+\]", text)
        on_chart = sample_opened.page.locator("#timeline svg text").all_text_contents()
        assert str(number) in on_chart
        assert any(finding.change.parameter in label for label in on_chart)
    assert "max_tokens 256 → 1024 (14:01:52) caused +221 ms [180, 262]." in " ".join(
        sample_opened.page.locator("h1").inner_text().replace("\xa0", " ").split()
    )


@pytest.mark.browser
def test_verdicts_differ_by_more_than_colour(sample_opened: Any) -> None:
    """One reader in twelve can't tell the colours apart: each verdict has a shape of its own."""
    shapes = sample_opened.page.evaluate(
        """() => [...document.querySelectorAll("#filters .mark")].map(mark => {
            const style = getComputedStyle(mark);
            return [style.borderRadius, style.borderTopStyle, style.transform, style.height].join();
        })"""
    )
    assert len(shapes) == len(set(shapes)) == 4


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(open_page: OpenPage, scheme: str) -> None:
    """Text below 4.5:1 is unreadable in sunlight and for weak eyes (WCAG AA)."""
    opened = open_page(sample_page(), scheme=scheme)
    worst = opened.page.evaluate(
        """() => {
            const luminance = color => {
                const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(part => {
                    const c = part / 255;
                    return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
                });
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const ground = luminance(getComputedStyle(document.body).backgroundColor);
            const ratios = [...document.querySelectorAll("h1, span, p, dt, dd, th, td, small, button")]
                .filter(node => node.checkVisibility())
                .map(node => {
                    const own = luminance(getComputedStyle(node).color);
                    return (Math.max(own, ground) + 0.05) / (Math.min(own, ground) + 0.05);
                });
            return Math.min(...ratios);
        }"""
    )
    assert worst >= 4.5


@pytest.mark.browser
def test_quantiles_switch_on_by_keyboard(open_page: OpenPage) -> None:
    """Everything that a mouse can do, a keyboard can, with the focus to be seen."""
    opened = open_page(sample_page())
    page = opened.page
    seen = []
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent.trim().slice(0, 20)"))
        if seen[-1] == "P95":
            break
    assert seen[0] == "Skip to the verdicts"
    assert seen[-1] == "P95"
    outline = page.evaluate(
        "(style => style.outlineStyle + style.outlineWidth)(getComputedStyle(document.activeElement))"
    )
    assert outline == "solid2px"
    page.keyboard.press("Enter")
    assert "p95" in {one["id"] for one in series_in(opened, "#timeline")}
    assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
    page.keyboard.press("Enter")
    assert "p95" not in {one["id"] for one in series_in(opened, "#timeline")}
    assert_quiet(opened)


@pytest.mark.browser
def test_filters_hide_rows_and_details_draw_when_opened(open_page: OpenPage) -> None:
    """In a storm of changes the reader hides what did nothing, and opens the evidence for one."""
    opened = open_page(sample_page())
    page = opened.page
    page.locator("#filters [data-verdict=none]").click()
    assert [page.locator(f"#row-{number}").is_visible() for number in range(1, 6)] == [
        False,
        True,
        True,
        True,
        False,
    ]
    assert page.locator("#change-4 svg").count() == 0
    page.locator("#change-4 summary").click()
    page.locator("#change-4 svg").wait_for()
    assert_quiet(opened)


@pytest.mark.browser
def test_tooltip_reads_the_values_at_a_time(open_page: OpenPage) -> None:
    """Pointing at the curve gives the numbers, with the change that is near."""
    opened = open_page(sample_page())
    box = opened.page.locator("#timeline svg").bounding_box()
    x = box["x"] + 56 + (box["width"] - 74) * (112 - 1) / (sample.STEPS - 1)
    opened.page.mouse.move(x, box["y"] + 150)
    opened.page.locator("#timeline").get_by_text("2026-11-30 14:01:52").wait_for()
    text = opened.page.locator("#timeline").inner_text()
    assert "without the causal changes" in text
    assert "2 max_tokens 256 → 1024: causal" in " ".join(text.split())
    assert_quiet(opened)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_values_stay_text(open_page: OpenPage, width: int) -> None:
    """A parameter value comes from a user's request: in the page of the engineer on call it must not run."""
    findings = tuple(
        replace(
            finding,
            change=replace(
                finding.change, parameter=EVIL, old=EVIL + "A" * 3000, new={EVIL: [EVIL]}, scope=EVIL
            ),
            reason=EVIL,
            mechanism={EVIL: Interval(0.5, 0.4, 0.6)},
        )
        for finding in sample.sample_findings()
    )
    explanation = replace(
        sample.sample_explanation(findings=findings, method=EVIL, warnings=(EVIL,)), service=EVIL
    )
    panel = sample.sample_panel()
    panel = replace(panel, services={EVIL: panel.services["chat"], EVIL + "2": panel.services["chat"]})
    call = replace(sample.generation(8, 5, 1), parameters={EVIL: EVIL})
    exemplars = replace(sample.sample_exemplars(), before=call)
    opened = open_page(
        render_page(explanation, panel, title=EVIL, exemplars=exemplars, zone=UTC), width=width
    )
    page = opened.page
    page.locator("#change-4 summary").click()
    page.mouse.move(width / 2, page.locator("#timeline").bounding_box()["y"] + 150)
    page.wait_for_timeout(100)
    assert_quiet(opened)
    assert page.title() != "pwned"
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 6
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert "<script>document.title='pwned'</script>" in page.locator("#row-2").inner_text()


@pytest.mark.browser
def test_policy_stops_scripts_that_are_not_the_pages_own(open_page: OpenPage) -> None:
    """Should an escape ever be missing, the browser itself must refuse to run or fetch anything."""
    html = sample_page().replace(
        "</main>", "<script>document.title='pwned'</script><img src='http://127.0.0.1:9/x'></main>"
    )
    opened = open_page(html)
    assert opened.page.title() == "chat: what moved P99"
    refused = [complaint for complaint in opened.complaints if "Content Security Policy" in complaint]
    assert any("script" in complaint for complaint in refused)
    assert any("http://127.0.0.1:9/x" in complaint for complaint in refused)


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_two_hundred_changes(open_page: OpenPage, width: int) -> None:
    """A storm of changes must stay readable: all in the table, the causal ones named on the chart."""
    findings = tuple(
        replace(
            sample.finding(
                f"parameter_{number}", at=number * 1.6, placebo_effects=np.linspace(-0.05, 0.05, 99)
            ),
            verdict=Verdict.CAUSAL if number in (7, 140) else Verdict.NO_EFFECT,
        )
        for number in range(200)
    )
    opened = open_page(sample_page(findings=findings), width=width)
    assert_quiet(opened)
    assert opened.page.locator(".verdicts tbody tr").count() == 200
    labels = " ".join(opened.page.locator("#timeline svg text").all_text_contents())
    assert "parameter_7 " in labels + " "
    assert "parameter_140" in labels
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    assert opened.page.locator(".more > details:visible").count() == 0


@pytest.mark.browser
def test_labels_on_the_chart_do_not_cover_each_other(open_page: OpenPage) -> None:
    """Two changes 19 s apart must be read apart."""
    opened = open_page(sample_page(), width=390)
    boxes = opened.page.evaluate(
        """parameters => [...document.querySelectorAll("#timeline svg text")]
            .filter(node => parameters.some(name => node.textContent.includes(name)))
            .map(node => node.getBoundingClientRect())
            .map(box => [box.left, box.top, box.right, box.bottom])""",
        [finding.change.parameter for finding in sample.sample_findings()],
    )
    assert len(boxes) == 5
    for index, one in enumerate(boxes):
        for other in boxes[index + 1 :]:
            apart = (
                one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 2 or other[3] <= one[1] + 2
            )
            assert apart, (one, other)


@pytest.mark.browser
def test_page_without_any_data_is_quiet(open_page: OpenPage) -> None:
    """No data must not become an error of the page's own scripts."""
    opened = open_page(render_page(Explanation("chat", math.nan, math.nan, ()), Panel(np.array([]), 1.0, {})))
    assert_quiet(opened)
    assert "The data holds no series" in opened.page.locator("main").inner_text()


@pytest.mark.browser
def test_bare_series_without_load_or_evidence(open_page: OpenPage) -> None:
    """Quantiles alone are enough for a page; what is not there leaves no hole and no error."""
    panel = sample.sample_panel()
    bare = replace(
        panel.services["chat"], quantiles={0.99: panel.services["chat"].quantiles[0.99]}, covariates={}
    )
    explanation = sample.sample_explanation(
        findings=(replace(sample.finding(), effect=None),), counterfactual=None, moved_at=None, warnings=()
    )
    opened = open_page(render_page(explanation, replace(panel, services={"chat": bare}), zone=UTC))
    assert_quiet(opened)
    assert {one["id"] for one in series_in(opened, "#timeline")} == {"changes", "p99"}
    assert opened.page.locator("#graph, #exemplars, #evidence").count() == 0


@pytest.mark.browser
def test_scheme_switch_and_resize_redraw(open_page: OpenPage) -> None:
    """A laptop that turns dark in the evening, or a phone turned sideways, keeps its curves visible."""
    opened = open_page(sample_page())
    page = opened.page
    stroke = """() => echarts.getInstanceByDom(document.querySelector("#timeline")).getOption()
        .series.find(one => one.id === "p99").lineStyle.color"""
    before = page.evaluate(stroke)
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: page.evaluate(stroke) != before)
    page.set_viewport_size({"width": 700, "height": 900})
    wait_until(lambda: page.locator("#timeline svg").bounding_box()["width"] < 700)
    page.emulate_media(media="print")
    wait_until(lambda: page.evaluate(stroke) == before)
    assert_quiet(opened)


@pytest.mark.browser
def test_without_javascript_the_answer_is_there(browser: Any, tmp_path: Any) -> None:
    """Mail viewers run no scripts: headline, table and intervals must not depend on them."""
    (tmp_path / "page.html").write_text(sample_page(), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert "caused +221" in page.locator("h1").inner_text().replace("\xa0", " ")
    assert page.locator("#row-2 .bar .estimate").bounding_box()["width"] > 4
    assert "The charts need JavaScript" in page.locator("noscript").inner_text()
    context.close()
