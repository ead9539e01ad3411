"""The page of documentation says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from otelkit import parameters
from otelkit.record import redaction
from otelkit.record.parameters import process
from otelkit.record.parameters.store import ENVIRONMENT_PREFIX
from otelkit.record.web import header, pages, server

PAGE = (Path(__file__).parents[2] / "docs" / "parameters.md").read_text(encoding="utf-8")


def test_every_variable_is_on_the_page_and_none_that_does_not_exist() -> None:
    """If this fails, a reader sets a variable that does nothing, or never hears of one."""
    variables = {
        redaction.HIDE_VARIABLE,
        redaction.HASH_VARIABLE,
        redaction.SHOW_VARIABLE,
        process.FILES_VARIABLE,
        process.SIGNAL_VARIABLE,
        header.POLICY_VARIABLE,
        pages.PAGES_VARIABLE,
        pages.PORT_VARIABLE,
        pages.TOKEN_VARIABLE,
        server.HOST_VARIABLE,
        ENVIRONMENT_PREFIX,
    }
    assert set(re.findall(r"\bOTELKIT_[A-Z_]+", PAGE)) == variables


def test_every_public_function_is_on_the_page() -> None:
    """If this fails, a function of ``otelkit.parameters`` was renamed or is not documented."""
    used = set(re.findall(r"parameters\.(\w+)\(", PAGE))
    assert used <= set(parameters.__all__)
    assert {"register", "get", "set", "update", "replace", "hold", "watch"} <= used


def test_the_python_on_the_page_compiles() -> None:
    """If this fails, a reader copies a mistake."""
    for block in re.findall(r"```python\n(.*?)```", PAGE, re.S):
        compile(block, "docs/parameters.md", "exec")
