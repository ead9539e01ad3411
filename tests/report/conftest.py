"""A real browser for the tests of the HTML page, with every request and console message kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path

import pytest
import sample_report as sample
from playwright.sync_api import Browser, Page, sync_playwright

from otelkit.report import render_page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class OpenedPage:
    """A page in the browser, what it asked for and what it complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def browser(chromium_path: Path) -> Iterator[Browser]:
    """One Chromium for all tests."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=str(chromium_path), args=list(FLAGS))
        yield chromium
        chromium.close()


def opened(browser: Browser, path: Path, html: str, width: int, scheme: str) -> OpenedPage:
    """HTML text opened from a file."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    kept = OpenedPage(context.new_page())
    kept.page.on("request", lambda request: kept.requests.append(request.url))
    kept.page.on("console", lambda message: kept.complaints.append(f"{message.type}: {message.text}"))
    kept.page.on("pageerror", lambda error: kept.complaints.append(str(error)))
    path.write_text(html, encoding="utf-8")
    kept.page.goto(path.as_uri())
    return kept


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., OpenedPage]]:
    """Opens HTML text at a width and colour scheme."""
    pages: list[OpenedPage] = []

    def open_html(html: str, *, width: int = 1280, scheme: str = "light") -> OpenedPage:
        pages.append(opened(browser, tmp_path / "page.html", html, width, scheme))
        return pages[-1]

    yield open_html
    for one in pages:
        one.page.context.close()


@pytest.fixture(scope="session")
def sample_opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    """The sample's page, 1280 pixels wide, for tests that only look."""
    html = render_page(
        sample.sample_explanation(), sample.sample_panel(), exemplars=sample.sample_exemplars(), zone=UTC
    )
    one = opened(browser, tmp_path_factory.mktemp("sample") / "page.html", html, 1280, "light")
    yield one
    one.page.context.close()
