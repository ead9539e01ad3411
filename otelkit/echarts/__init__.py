"""Apache ECharts 6.1.0 as published, for pages that must work without a network; its licences lie beside
it."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def library() -> str:
    """The minified library, to be put inside a page's ``<script>``."""
    return (resources.files(__name__) / "echarts.min.js").read_text(encoding="utf-8").strip()
