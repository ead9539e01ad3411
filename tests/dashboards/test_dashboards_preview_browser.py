"""The preview's page in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboards_history import SPEC, FilledPrometheus
from preview_pages import data_of, rendered

from otelkit.dashboards import documents

pytestmark = [pytest.mark.prometheus, pytest.mark.browser, pytest.mark.timeout(300)]

NARROW = 390
NO_TRACES = {"Slow calls", "Calls with a stall"}
"""Panels that ask Tempo, which the preview does not."""


@pytest.fixture(scope="module")
def browser(chromium_path: Path) -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=str(chromium_path), args=["--no-sandbox"])
        yield running
        running.close()


@pytest.mark.parametrize("uid", documents(SPEC))
def test_every_panel_is_drawn_in_a_browser(
    uid: str, filled: FilledPrometheus, browser: Any, tmp_path: Path
) -> None:
    """A script error in one panel would leave the ones after it blank; a request would break offline use."""
    path = tmp_path / "page.html"
    page = rendered(filled, documents(SPEC)[uid])
    assert [one for one in data_of(page)["panels"] if one["problems"]] == []
    path.write_text(page, encoding="utf-8")
    errors: list[str] = []
    requests: list[str] = []
    tab = browser.new_page(viewport={"width": 1500, "height": 900})
    tab.on("pageerror", lambda error: errors.append(str(error)))
    tab.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-drawn]", timeout=30_000)
    drawn = tab.evaluate(
        """() => [...document.querySelectorAll('[data-panel]')].map(panel => ({
            title: panel.querySelector('h3').textContent,
            empty: 'empty' in panel.dataset,
            marks: panel.querySelectorAll('canvas, td, .prose, .stat b').length,
            text: panel.textContent.length }))"""
    )
    tab.close()
    assert errors == []
    assert requests == [path.as_uri()]
    assert {one["title"] for one in drawn if one["empty"]} <= NO_TRACES
    assert [one["title"] for one in drawn if not one["empty"] and not one["marks"]] == []


def test_a_phone_shows_panels_below_each_other(
    filled: FilledPrometheus, browser: Any, tmp_path: Path
) -> None:
    """Whoever is on call would see columns of an inch, with numbers cut off."""
    path = tmp_path / "page.html"
    path.write_text(rendered(filled, documents(SPEC)["otelkit-causal"]), encoding="utf-8")
    tab = browser.new_page(viewport={"width": NARROW, "height": 800})
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-drawn]", timeout=30_000)
    widths = tab.evaluate(
        """() => [...document.querySelectorAll('[data-panel]')].map(panel => ({
            kind: panel.dataset.kind, width: panel.clientWidth,
            cut: [...panel.querySelectorAll('.stat b')].some(b => b.scrollWidth > panel.clientWidth) }))"""
    )
    whole = tab.evaluate("document.documentElement.scrollWidth")
    tab.close()
    assert whole == NARROW
    assert all(one["width"] > (NARROW / 2 - 30 if one["kind"] == "stat" else NARROW - 40) for one in widths)
    assert not any(one["cut"] for one in widths)


def test_names_of_fifty_services_fit(filled: FilledPrometheus, browser: Any, tmp_path: Path) -> None:
    """A legend cut off in its middle would not say how many curves there are; nodes would lie over each
    other."""
    page = rendered(filled, documents(SPEC)["otelkit-topology"])
    data = data_of(page)
    curves = next(one for one in data["panels"] if one["title"] == "P95 of each edge")
    curves["series"] = [{**curves["series"][0], "name": f"a-service-with-a-long-name-{n}"} for n in range(50)]
    graph = next(one for one in data["panels"] if one["kind"] == "nodeGraph")
    graph["nodes"] = [{"id": f"s{n}", "title": f"s{n}", "mainstat": 1.0} for n in range(50)]
    graph["edges"] = [{"id": f"e{n}", "source": "s0", "target": f"s{n}"} for n in range(1, 50)]
    written = json.dumps(data)
    start = page.index(">", page.index('id="data"')) + 1
    path = tmp_path / "page.html"
    path.write_text(page[:start] + written + page[page.index("</script>", start) :], encoding="utf-8")
    tab = browser.new_page(viewport={"width": 1280, "height": 800})
    tab.goto(path.as_uri())
    tab.wait_for_selector("html[data-drawn]", timeout=30_000)
    legend, height = tab.evaluate(
        """(id) => {
            const list = document.querySelector(`[data-panel="${id}"] .legend`);
            const canvas = document.querySelector('[data-kind="nodeGraph"] canvas');
            const fits = list.scrollHeight <= list.clientHeight + 1;
            return [{ text: list.textContent, fits }, canvas.clientHeight];
        }""",
        curves["id"],
    )
    tab.close()
    assert legend["fits"]
    shown = legend["text"].count("a-service")
    assert f"and {50 - shown} more" in legend["text"]
    assert height > 49 * 20
