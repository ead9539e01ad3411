"""The page's scripts can be put inside a page."""

from __future__ import annotations

from importlib import resources

import pytest

ASSETS = resources.files("otelkit.report") / "assets"


@pytest.mark.parametrize("name", ["marks.js", "timeline.js", "evidence.js", "page.js"])
def test_scripts_do_not_end_their_own_element(name: str) -> None:
    """A script that holds `</script` or `<!--` would break off in the middle of the page."""
    text = (ASSETS / name).read_text(encoding="utf-8").lower()
    assert "</script" not in text
    assert "<!--" not in text
