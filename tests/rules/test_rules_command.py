"""`otelkit generate rules` and `otelkit check`, through the real command."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest


def otelkit(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("otelkit")), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_generate_check_and_drift(tmp_path: Path) -> None:
    """Committed rules that were edited by hand, or are stale, must fail in CI with 3 and show it."""
    written = otelkit("generate", "rules", cwd=tmp_path)
    assert written.returncode == 0 and "rules/latency.rules.yaml" in written.stdout
    assert otelkit("generate", "rules", cwd=tmp_path).stdout == ""
    assert otelkit("generate", "rules", "--check", cwd=tmp_path).returncode == 0
    latency = tmp_path / "rules" / "latency.rules.yaml"
    latency.write_text(latency.read_text().replace("0.99", "0.9"))
    (tmp_path / "rules" / "gone.rules.yaml").write_text(latency.read_text())
    (tmp_path / "rules" / "mine.yaml").write_text("groups: []\n")
    drift = otelkit("generate", "rules", "--check", cwd=tmp_path)
    assert drift.returncode == 3
    assert (
        "+          histogram_quantile(0.99" in drift.stdout
        and "gone.rules.yaml: is left over" in drift.stdout
    )
    assert "mine.yaml" not in drift.stdout
    assert otelkit("check", cwd=tmp_path).returncode == 3
    assert otelkit("generate", "rules", cwd=tmp_path).returncode == 0
    assert (
        not (tmp_path / "rules" / "gone.rules.yaml").exists() and (tmp_path / "rules" / "mine.yaml").exists()
    )
    assert otelkit("generate", "rules", "--check", cwd=tmp_path).returncode == 0


def test_a_wrong_spec_is_told_on_stderr(tmp_path: Path) -> None:
    """Exit code 2, every line at fault, and nothing written."""
    (tmp_path / "otelkit.yaml").write_text("services:\n- nam: x\nwindow: [1m]\n")
    done = otelkit("generate", "rules", cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == "" and not (tmp_path / "rules").exists()
    for text in (
        "otelkit.yaml:2: services.0.name: is missing",
        "otelkit.yaml:2: services.0.nam",
        "otelkit.yaml:3: window",
    ):
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_committed_files_are_what_the_command_writes() -> None:
    """Who has no Python starts the stack with these files; they must not lag behind the code."""
    done = otelkit("generate", "all", "--check", cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_tells_every_difference(tmp_path: Path) -> None:
    """One stale folder must not hide another."""
    done = otelkit("generate", "all", "--check", cwd=tmp_path)
    assert done.returncode == 3
    assert "rules/latency.rules.yaml: is missing" in done.stdout
    assert "dashboards/otelkit-causal.json: is missing" in done.stdout


@pytest.mark.prometheus
def test_standard_output_is_one_valid_rule_file(tmp_path: Path, promtool_binary: Path) -> None:
    """`-o -` is for pipes: it must be a file that Prometheus takes."""
    (tmp_path / "all.yaml").write_text(otelkit("generate", "rules", "-o", "-", cwd=tmp_path).stdout)
    done = otelkit("check", "--promtool", str(promtool_binary), "all.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "all.yaml").write_text("groups: [{name: a, rules: [{record: b, expr: 'sum('}]}]\n")
    broken = otelkit("check", "--promtool", str(promtool_binary), "all.yaml", cwd=tmp_path)
    assert broken.returncode == 3 and "all.yaml" in broken.stdout


@pytest.mark.prometheus
@pytest.mark.parametrize("name", ["DOTTED", "ODD_TEXT"])
def test_names_and_texts_of_every_kind_work(name: str, tmp_path: Path, promtool_binary: Path) -> None:
    """Dotted names, quotes, braces and backslashes: rules load, and their tests pass."""
    import test_rules_generate

    (tmp_path / "otelkit.yaml").write_text(getattr(test_rules_generate, name), encoding="utf-8")
    done = otelkit("check", "--promtool", str(promtool_binary), cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no findings" in done.stderr


@pytest.mark.prometheus
def test_metrics_of_a_live_prometheus_are_known(tmp_path: Path, prometheus_binary: Path) -> None:
    """What a server has is no mistake, what neither it nor a preset has is; what it lacks so far is told."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    target = f"{{job_name: p, static_configs: [{{targets: ['{address}']}}]}}"
    (tmp_path / "prometheus.yml").write_text(f"global: {{scrape_interval: 1s}}\nscrape_configs: [{target}]\n")
    (tmp_path / "mine.yaml").write_text(
        "groups:\n- name: mine\n  rules:\n"
        "  - {record: 'a:b:rate5m', expr: 'rate(prometheus_http_requests_total[5m])'}\n"
        "  - {record: 'c:d:rate5m', expr: 'rate(nobody_has_total[5m])'}\n"
        "  - {record: 'e:f:rate5m', expr: 'rate(gen_ai_client_operation_duration_seconds_count[5m])'}\n"
    )
    arguments = [
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address={address}",
    ]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([prometheus_binary, *arguments], cwd=tmp_path, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            done = otelkit("check", "--prometheus", f"http://{address}", "mine.yaml", cwd=tmp_path)
            if done.returncode == 3 and "prometheus_http" not in done.stdout:
                break
            time.sleep(0.5)
        assert done.stdout == (
            "mine.yaml:5: c:d:rate5m: nobody_has_total is in no preset of the spec, and nothing records it\n"
        ), done.stdout + done.stderr
        assert (
            "has no gen_ai_client_operation_duration_seconds_count yet, which mine.yaml:6 reads"
            in done.stderr
        )
    finally:
        server.terminate()
        server.wait(30)


def test_a_promtool_that_is_not_there_is_told(tmp_path: Path) -> None:
    """Without any, checks are left out and that is said; one that was asked for must exist."""
    without = {**os.environ, "PATH": "", "OTELKIT_PROMTOOL": ""}
    command = [str(Path(sys.executable).with_name("otelkit")), "check"]
    done = subprocess.run(command, cwd=tmp_path, env=without, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "promtool is not on PATH" in done.stderr
    named = otelkit("check", "--promtool", "nowhere/promtool", cwd=tmp_path)
    assert named.returncode == 2 and "nowhere/promtool: is no program" in named.stderr


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """The message names the folder and a way out, without a traceback."""
    (tmp_path / "file").write_text("")
    done = otelkit("generate", "rules", "-o", "file/rules", cwd=tmp_path)
    assert done.returncode == 2 and "file/rules" in done.stderr and "-o DIR" in done.stderr
    assert "Traceback" not in done.stderr


def test_rules_are_written_without_numpy(tmp_path: Path) -> None:
    """A plain install writes all that a clone can; what does need numpy says which extra brings it."""
    script = (
        "import importlib.abc, sys\n"
        "class Without(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('numpy', 'scipy'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Without())\n"
        "from otelkit.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "generate", "rules"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and (tmp_path / "rules" / "latency.rules.yaml").exists(), done.stderr


def test_runbooks_are_written_beside_the_rules(tmp_path: Path) -> None:
    """An alert that leads to a page which an installed package does not have leaves its reader alone."""
    (tmp_path / "otelkit.yaml").write_text("services: [{name: web, preset: http, slos: [{errors: 1%}]}]\n")
    assert otelkit("generate", "rules", cwd=tmp_path).returncode == 0
    alerts = (tmp_path / "rules" / "alerts.rules.yaml").read_text()
    pages = set(re.findall(r'runbook_url: "(.*)"', alerts))
    assert pages and all((tmp_path / "rules" / page).read_text().startswith("# Otelkit") for page in pages)
    assert otelkit("generate", "rules", "--check", cwd=tmp_path).returncode == 0
    with (tmp_path / "otelkit.yaml").open("a") as spec:
        spec.write("links: {runbooks: 'https://runbooks.example.org/'}\n")
    assert otelkit("generate", "rules", "-o", "own", cwd=tmp_path).returncode == 0
    assert (
        "https://runbooks.example.org/error-budget-burn.md"
        in (tmp_path / "own/alerts.rules.yaml").read_text()
    )
    assert not (tmp_path / "own" / "runbooks").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed half-way must not leave half a rule file, with which Prometheus does not start."""
    from otelkit.cli import outputs

    header = "# generated\n"
    outputs.write(tmp_path, {"a.yaml": f"{header}old\n"}, header=header)

    def killed(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", killed)
        outputs.write(tmp_path, {"a.yaml": f"{header}new\n"}, header=header)
    assert (tmp_path / "a.yaml").read_text() == f"{header}old\n" and list(tmp_path.glob("[!.]*")) == [
        tmp_path / "a.yaml"
    ]
    outputs.write(tmp_path, {"a.yaml": f"{header}new\n"}, header=header)
    assert [path.read_text() for path in tmp_path.iterdir()] == [f"{header}new\n"]
