"""The vendored chart library is the published one, and can be put inside a page."""

from __future__ import annotations

import hashlib
from importlib import resources

from otelkit import echarts

FILES = resources.files("otelkit.echarts")
SHA256 = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
"""dist/echarts.min.js of the npm package echarts 6.1.0."""


def test_echarts_is_the_published_file() -> None:
    """A changed byte in the vendored library would run in every reader's browser."""
    assert hashlib.sha256((FILES / "echarts.min.js").read_bytes()).hexdigest() == SHA256


def test_echarts_comes_with_its_licences() -> None:
    """Apache-2.0 asks for the licence and the notice to travel with the file."""
    assert "Apache License" in (FILES / "LICENSE").read_text()
    assert "Apache ECharts" in (FILES / "NOTICE").read_text()
    assert "Mike Bostock" in (FILES / "licenses/LICENSE-d3").read_text()


def test_the_library_does_not_end_its_own_element() -> None:
    """A script that holds `</script` or `<!--` would break off in the middle of the page."""
    text = echarts.library().lower()
    assert "</script" not in text
    assert "<!--" not in text
