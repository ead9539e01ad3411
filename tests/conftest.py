"""Tools that tests need and a machine may lack.

On a user's machine a test whose tool is missing is skipped, with the reason. In CI (``CI=true``), or with
``OTELKIT_REQUIRE_ALL=1``, it fails instead, so that nothing goes unchecked unnoticed.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

if TYPE_CHECKING:
    from one_demo_run import DemoRun


def _everything_is_required() -> bool:
    return os.environ.get("CI", "").lower() == "true" or os.environ.get("OTELKIT_REQUIRE_ALL") == "1"


NEVER_REQUIRED: Final = ("vllm is not installed",)
"""Reasons for which a test may be skipped even where everything is required: vLLM is hundreds of megabytes
that need a GPU to run. The tests of its adapter that need only its types run everywhere, with stand-ins."""


def pytest_configure(config: pytest.Config) -> None:
    """Tests that press Ctrl-C work in the background too: a shell has its background jobs ignore it, and what
    they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where everything is required, a run with a skipped test, or a skipped module, has failed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not _everything_is_required():
        return
    skipped = [
        r for r in reporter.stats.get("skipped", ()) if not any(n in str(r.longrepr) for n in NEVER_REQUIRED)
    ]
    if skipped:
        reporter.write_line("tests were skipped, and everything is required here", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _missing(what: str) -> NoReturn:
    if _everything_is_required():
        pytest.fail(f"{what} (everything is required here)", pytrace=False)
    pytest.skip(what)


@pytest.fixture(scope="session")
def missing() -> Callable[[str], NoReturn]:
    """Ends a test for want of what its argument names: skipped, or failed where everything is required."""
    return _missing


def _tool(name: str) -> Path:
    from otelkit.demo.prometheus import find_tool

    found = find_tool(name)
    if found is None:
        _missing(f"no {name} in .tools or on PATH; scripts/fetch-prometheus brings it")
    return found


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """A Prometheus of version 3."""
    return _tool("prometheus")


@pytest.fixture(scope="session")
def promtool_binary() -> Path:
    """promtool, of the same version as Prometheus."""
    return _tool("promtool")


@pytest.fixture(scope="session")
def chromium_path() -> Path:
    """A Chromium that playwright can drive."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        found = shutil.which(name)
        if found:
            return Path(found)
    _missing("no chromium on PATH; Debian's package is called chromium")


@pytest.fixture(scope="session")
def model_path() -> Path:
    """The demo's language model, fetched once into the user's cache."""
    from otelkit.demo.model import ensure_model
    from otelkit.errors import ModelUnavailable

    try:
        return ensure_model()
    except ModelUnavailable as error:
        _missing(f"no language model: {error.message}")


@pytest.fixture(scope="session")
def demo_run(
    prometheus_binary: Path, model_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DemoRun]:
    """A run of the demo of about a minute, made once for all tests that look at one."""
    from one_demo_run import one_demo_run

    with one_demo_run(prometheus_binary, model_path, tmp_path_factory.mktemp) as made:
        yield made
