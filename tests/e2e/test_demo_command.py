"""``otelkit demo`` as a user calls it: interrupted in the middle, and with things it must refuse."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from otelkit.report import from_json

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

OTELKIT = [sys.executable, "-c", "from otelkit.cli.main import main; main()", "demo"]


def processes_of(directory: Path) -> list[str]:
    """Command lines of running processes that were started by a demo in ``directory``."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").resolve() == directory:
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


@contextlib.contextmanager
def demo_in(directory: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A running demo; ended by force should the test fail."""
    demo = subprocess.Popen(
        [*OTELKIT, *arguments], cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with demo:
        try:
            yield demo
        finally:
            demo.kill()


def wait_for(demo: subprocess.Popen[str], words: str) -> None:
    """Read what the demo says until a line begins with ``words``."""
    assert demo.stderr is not None
    said = []
    for line in demo.stderr:
        if line.startswith(words):
            return
        said.append(line)
    pytest.fail(f"the demo ended before it said {words!r}: {''.join(said)}")


def wait_for_spans(directory: Path) -> None:
    """Wait until the first generation is in the run's folder."""
    deadline = time.monotonic() + 90
    while not any(directory.glob("otelkit-demo/*/traces.jsonl")):
        assert time.monotonic() < deadline, "no span came"
        time.sleep(0.2)


def refused(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A call that is expected to end at once."""
    done = subprocess.run(
        [*OTELKIT, *arguments],
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_interrupted_run_reports_what_it_has(tmp_path: Path, model_path: Path) -> None:
    """Broken if Ctrl-C lost what was recorded, left a process behind, or looked like success.

    It also is the way without Prometheus.
    """
    # A rate that any machine carries: what matters here is the end.
    arguments = ["--no-prometheus", "--format", "json", "--rate", "0.2", "--model", str(model_path)]
    with demo_in(tmp_path, *arguments) as demo:
        wait_for(demo, "load:")
        wait_for_spans(tmp_path)
        assert len(processes_of(tmp_path)) == 3, "the demo, the model server and the service"
        demo.send_signal(signal.SIGINT)
        output, said = demo.communicate(timeout=90)
    assert demo.returncode == 130, said
    assert "interrupted: reporting on what was recorded" in said and "Traceback" not in said
    verdict, page = output.splitlines()
    (explanation,) = from_json(json.loads(verdict))
    assert explanation.service == "chat"
    assert Path(page).is_file() and Path(page).parent.parent == tmp_path / "otelkit-demo"
    assert (Path(page).parent / "traces.jsonl").stat().st_size > 0
    assert processes_of(tmp_path) == []


@pytest.mark.model
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_before_the_load_leaves_nothing(
    tmp_path: Path, model_path: Path, number: signal.Signals
) -> None:
    """Broken if Ctrl-C or a polite kill while the machine is measured left children behind."""
    with demo_in(tmp_path, "--no-prometheus", "--model", str(model_path)) as demo:
        wait_for(demo, "measuring")
        time.sleep(2)
        demo.send_signal(number)
        output, said = demo.communicate(timeout=60)
    assert (demo.returncode, output) == (130, "")
    assert "interrupted" in said and "Traceback" not in said
    assert processes_of(tmp_path) == []


def test_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    """Broken if a wrong model file were only found out by a crash of the model server."""
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04")
    done = refused(tmp_path, "--model", "model.bin")
    assert done.returncode == 1
    assert "model.bin: not a GGUF model" in done.stderr
    assert not (tmp_path / "otelkit-demo").exists()


def test_broken_model_is_refused_with_the_loader_s_reason(tmp_path: Path) -> None:
    """Broken if a truncated download ended in a hang, or left the model server running."""
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(200))
    done = refused(tmp_path, "--model", "broken.gguf", "--no-prometheus")
    assert done.returncode == 1
    assert "the model server ended with exit code" in done.stderr
    assert processes_of(tmp_path) == []


def test_no_network_for_the_model_is_said(tmp_path: Path) -> None:
    """Broken if a first run without a network did not say what is missing, and what to do."""
    done = refused(
        tmp_path,
        "--no-prometheus",
        XDG_CACHE_HOME=str(tmp_path / "cache"),
        PIP_INDEX_URL="http://127.0.0.1:9/",
        PIP_EXTRA_INDEX_URL="",
        PIP_FIND_LINKS="",
        PIP_RETRIES="0",
        PIP_CONFIG_FILE=os.devnull,
    )
    assert done.returncode == 1
    assert "the model can't be fetched" in done.stderr and "--model FILE.gguf" in done.stderr


def test_port_in_use_is_refused(tmp_path: Path, model_path: Path) -> None:
    """Broken if a port in use were found out only by a crash of the service."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for option in ("--service-port", "--metrics-port", "--prometheus-port"):
            done = refused(tmp_path, option, port, "--model", str(model_path))
            assert done.returncode == 2
            assert f"{option} {port}: can't listen" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--otlp", "127.0.0.1:4318"], 2, "not an http or https address"),
        (["--otlp", "http://127.0.0.1:9"], 4, "--otlp http://127.0.0.1:9: nothing answers there"),
        (["--minutes", "0.1"], 2, "too short for the script"),
        (["--minutes", "nan"], 2, "--minutes nan"),
        (["--rate", "-1"], 2, "--rate"),
        (["--service-port", "18461", "--metrics-port", "18461"], 2, "is also given as --service-port"),
        (["--prometheus", "/no/such/file"], 2, "/no/such/file"),
        (["--prometheus", "/bin/true"], 2, "/bin/true: `--version` does not answer as Prometheus does"),
        (["--prometheus", "/bin/true", "--no-prometheus"], 2, "exclude each other"),
        (["--output", "/proc/demo"], 2, "/proc/demo"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, model_path: Path, arguments: list[str], code: int, sentence: str
) -> None:
    """Broken if a wrong option ended in a traceback, or started the demo anyway."""
    done = refused(tmp_path, "--model", str(model_path), *arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert processes_of(tmp_path) == []


@pytest.mark.model
def test_machine_too_slow_for_the_rate_is_said_before_the_load(tmp_path: Path, model_path: Path) -> None:
    """Broken if a rate that no machine carries ended in endless queues instead of a sentence."""
    done = refused(tmp_path, "--rate", "5000", "--no-prometheus", "--model", str(model_path))
    assert done.returncode == 1
    assert "--rate 5000: this machine is too slow" in done.stderr
    assert processes_of(tmp_path) == []
