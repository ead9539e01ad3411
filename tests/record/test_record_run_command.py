"""`otelkit run -- CMD`: the program runs as it would, and its calls of models are recorded."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import openai_wire
import pytest
from wire_server import Wire

from otelkit.cli.run import AUTOLOAD, child_environment

OTELKIT = (sys.executable, "-c", "from otelkit.cli.main import main; main()")


def otelkit_run(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*OTELKIT, "run", *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_missing_command(tmp_path: Path) -> None:
    """Broken: a mistyped program ends in a traceback, or with another code than the shell's 127."""
    result = otelkit_run("--", "no-such-program", cwd=tmp_path)
    assert result.returncode == 127
    assert "can't run 'no-such-program'" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_not_executable(tmp_path: Path) -> None:
    """Broken: a script without a first line `#!` ends in a traceback."""
    script = tmp_path / "service"
    script.write_text("print(1)\n")
    script.chmod(0o755)
    result = otelkit_run("--", str(script), cwd=tmp_path)
    assert result.returncode == 127
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_exit_code_and_arguments(code: int, tmp_path: Path) -> None:
    """Broken: options of the program are taken for ours, or its exit code is lost."""
    program = f"import sys; print(sys.argv[1:]); sys.exit({code})"
    result = otelkit_run("--", sys.executable, "-c", program, "--service", "x", "-h", cwd=tmp_path)
    assert result.returncode == code
    assert result.stdout == "['--service', 'x', '-h']\n"
    assert result.stderr == ""


def test_process_is_replaced(tmp_path: Path) -> None:
    """Broken: a process stays in between, and signals do not reach the program."""
    program = tmp_path / "program.py"
    program.write_text("import os; print(os.getpid())\n")
    child = subprocess.Popen(
        [*OTELKIT, "run", "--", sys.executable, str(program)],
        stdout=subprocess.PIPE,
        text=True,
    )
    out, _ = child.communicate(timeout=60)
    assert int(out) == child.pid


def test_environment() -> None:
    """Broken: what the user has set is overwritten, or the working folder comes onto the path."""
    given = {"PYTHONPATH": f"/a{os.pathsep}{os.pathsep}/b", "OTEL_EXPORTER_PROMETHEUS_PORT": "9000", "X": "y"}
    child = child_environment(given, service="chat", metrics_port=None)
    assert child["PYTHONPATH"].split(os.pathsep) == [str(AUTOLOAD), "/a", "/b"]
    assert child["OTEL_SERVICE_NAME"] == "chat"
    assert child["OTEL_EXPORTER_PROMETHEUS_PORT"] == "9000"
    assert child["OTEL_EXPORTER_PROMETHEUS_HOST"] == "127.0.0.1"
    assert child["X"] == "y"
    assert (
        child_environment(child, service=None, metrics_port=9001)["OTEL_EXPORTER_PROMETHEUS_PORT"] == "9001"
    )
    again = child_environment(child, service=None, metrics_port=None)
    assert again["PYTHONPATH"] == child["PYTHONPATH"]
    assert "OTEL_SERVICE_NAME" not in child_environment({}, service=None, metrics_port=None)


def test_users_sitecustomize_still_runs(tmp_path: Path) -> None:
    """Broken: our sitecustomize hides the user's."""
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.from_site = __file__\n")
    program = "import sys, sitecustomize; print(from_site); print(sitecustomize.__file__)"
    result = otelkit_run("--", sys.executable, "-c", program, cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert result.stdout.splitlines() == [str(tmp_path / "sitecustomize.py")] * 2


def test_broken_telemetry_settings_do_not_stop_the_program(tmp_path: Path) -> None:
    """Broken: a bad setting of ours, or a package of ours that can't be loaded, ends the user's program."""
    result = otelkit_run(
        "--", sys.executable, "-c", "import openai; print('runs')", cwd=tmp_path,
        OTEL_EXPORTER_PROMETHEUS_PORT="not a port", OTEL_TRACES_SAMPLER="nonsense",
    )  # fmt: skip
    assert result.returncode == 0
    assert result.stdout == "runs\n"


def test_unused_costs_nothing(tmp_path: Path) -> None:
    """Broken: a child process that calls no model loads the SDK, or takes the port of the /metrics page."""
    program = "import sys; print([name for name in sys.modules if name.startswith('opentelemetry')])"
    assert otelkit_run("--", sys.executable, "-c", program, cwd=tmp_path).stdout == "[]\n"


def test_a_service_without_a_known_client_is_recorded(tmp_path: Path) -> None:
    """Broken: a service that only uses `otelkit.watch` and `parameters` has no page, its file of parameters
    is not read, and SIGUSR2 ends it."""
    (tmp_path / "chat.yaml").write_text("max_tokens: 512\n")
    program = """
        import os, signal
        from otelkit import parameters
        os.kill(os.getpid(), signal.SIGUSR2)
        import otelkit
        used = {"max_tokens": parameters.get("max_tokens")}
        list(otelkit.watch(iter("abc"), model="tiny", parameters=used))
        handle = otelkit.instrument()
        handle.flush()
        from prometheus_client import REGISTRY
        families = {family.name: family for family in REGISTRY.collect()}
        started = families["otelkit_generations_started"].samples
        print(parameters.get("max_tokens"), [one.value for one in started if one.name.endswith("_total")])
    """
    result = otelkit_run(
        "--service",
        "chat",
        "--",
        sys.executable,
        "-c",
        textwrap.dedent(program),
        cwd=tmp_path,
        OTELKIT_PARAMETERS_FILE="chat.yaml",
        OTEL_EXPORTER_PROMETHEUS_PORT="0",
    )
    assert (result.returncode, result.stdout) == (0, "512 [1.0]\n"), result.stderr


def test_calls_are_recorded(wire: Wire, tmp_path: Path) -> None:
    """Broken: a program that knows nothing of otelkit is not recorded."""
    wire.answer = openai_wire.stream("one", " two", " three")
    program = tmp_path / "service.py"
    program.write_text(
        textwrap.dedent(f"""
        import time, urllib.request
        from openai import OpenAI
        client = OpenAI(base_url={wire.url!r}, api_key="k")
        messages = [{{"role": "user", "content": "hi"}}]
        for _ in client.chat.completions.create(model="m", messages=messages, stream=True):
            pass
        deadline = time.monotonic() + 10
        import os
        page = "http://127.0.0.1:" + os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] + "/metrics"
        while True:
            text = urllib.request.urlopen(page).read().decode()
            if "gen_ai_client_operation_duration_seconds_count" in text or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        print(text)
        """)
    )
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    result = otelkit_run(
        "--service", "chat", "--metrics-port", str(port), "--", sys.executable, str(program), cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    line = next(
        line
        for line in result.stdout.splitlines()
        if line.startswith("gen_ai_client_operation_duration_seconds_count")
    )
    assert 'service="chat"' in line
    assert line.endswith(" 1.0")


SPEC = """
services:
  - {name: chat, latency: {sharpened: [0.8]}, slos: [{latency: 0.8}], alerts: [{latency_above: 3s}]}
  - {name: web, preset: http, slos: [{latency: 0.5}]}
  - {name: plain}
"""
SHOW = "import os, sys; print(os.environ.get('OTELKIT_LATENCY_SLO_SECONDS'), 'pydantic' in sys.modules)"


@pytest.mark.parametrize(
    ("arguments", "environment", "shown"),
    [
        (["--service", "chat"], {}, "0.8,3"),
        ([], {"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=chat"}, "0.8,3"),
        (["--service", "chat"], {"OTELKIT_LATENCY_SLO_SECONDS": "9"}, "9"),
        (["--service", "web"], {}, "None"),
        (["--service", "plain"], {}, "None"),
        ([], {}, "None"),
    ],
)
def test_bounds_follow_the_objectives_of_the_spec(
    arguments: list[str], environment: dict[str, str], shown: str, tmp_path: Path
) -> None:
    """Broken: an objective is written in otelkit.yaml, and the service's buckets can't show it; or the
    program is made to load the spec itself."""
    (tmp_path / "otelkit.yaml").write_text(SPEC)
    result = otelkit_run(*arguments, "--", sys.executable, "-c", SHOW, cwd=tmp_path, **environment)
    assert (result.stdout, result.stderr) == (f"{shown} False\n", "")


def test_a_wrong_spec_does_not_keep_a_service_from_starting(tmp_path: Path) -> None:
    """Broken: a typing mistake in a file that only makes buckets finer stops a service, or is not told."""
    (tmp_path / "otelkit.yaml").write_text("servces: []\n")
    result = otelkit_run("--", sys.executable, "-c", SHOW, cwd=tmp_path)
    assert result.stdout == "None False\n" and "otelkit.yaml:1: servces: unknown key" in result.stderr
    asked = otelkit_run("--spec", "otelkit.yaml", "--", sys.executable, "-c", SHOW, cwd=tmp_path)
    assert asked.returncode == 2 and asked.stdout == ""
