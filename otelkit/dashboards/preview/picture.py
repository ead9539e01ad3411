"""A page as a PNG, through a Chromium found on the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from otelkit.errors import OtelkitError, UsageError

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH: Final = 1500
_TIMEOUT_SECONDS: Final = 60
_HEIGHT: Final = re.compile(r'data-height="(\d+)"')


def find_browser(asked: str | None = None) -> Path:
    """The Chromium asked for, else the first one on PATH.

    Raises:
        UsageError: there is none.
    """
    for name in [asked] if asked else BROWSERS:
        found = shutil.which(name)
        if found:
            return Path(found)
    if asked:
        raise UsageError(
            f"{asked}: is no program that can be run", hint="Give --browser a Chromium or Chrome."
        )
    raise UsageError(
        f"no browser for pictures: none of {', '.join(BROWSERS)} is on PATH",
        hint="Install Chromium, name one with --browser PATH, or leave --png out and open the HTML page.",
    )


def take_picture(browser: Path, page: Path, picture: Path, *, width: int = WIDTH) -> None:
    """Draw an HTML file and save all of it, however high it is.

    Raises:
        OtelkitError: the browser failed; the message holds its last words.
    """
    with tempfile.TemporaryDirectory() as profile:
        # A first visit tells how high the page is; the second one has a window of that height.
        source = _run(browser, profile, [f"--window-size={width},900", "--dump-dom", page.resolve().as_uri()])
        height = _HEIGHT.search(source)
        if not height:
            raise OtelkitError(
                f"{page}: was not drawn by {browser}",
                hint="Open the page in a browser; its console says why.",
            )
        picture.unlink(missing_ok=True)
        size = f"--window-size={width},{height[1]}"
        _run(browser, profile, [size, f"--screenshot={picture.resolve()}", page.resolve().as_uri()])
    if not picture.is_file():
        raise OtelkitError(f"{picture}: {browser} wrote no picture", hint="Is the folder writable for it?")


def _run(browser: Path, profile: str, arguments: Sequence[str]) -> str:
    command = [
        str(browser),
        "--headless=new",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
        f"--user-data-dir={profile}",
        "--virtual-time-budget=10000",
        # Chromium's sandbox refuses to run as root, as in containers; the page is our own and has no network.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        *arguments,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise OtelkitError(f"{browser}: {error}", hint="Give --browser another Chromium.") from None
    if done.returncode != 0:
        raise OtelkitError(f"{browser}: ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout
