"""`otelkit generate compose`: the same bytes, from the user's spec, never over what is the user's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otelkit import compose
from otelkit.compose.layout import PARTS
from otelkit.compose.settings import Settings
from otelkit.spec import Spec, parse_spec

ROOT = Path(__file__).resolve().parents[2]
OTELKIT = Path(sys.executable).with_name("otelkit")


def generate(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [OTELKIT, "generate", "compose", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_committed_files_are_what_is_generated() -> None:
    """Broken if somebody edited compose/ by hand, or changed a template and forgot to generate."""
    done = generate(ROOT, "--check")
    assert done.returncode == 0, done.stdout
    for name, text in compose.starters().items():
        assert (ROOT / "compose" / name).read_text(encoding="utf-8") == text


def test_drift_is_found_and_the_users_files_are_kept(tmp_path: Path) -> None:
    """Broken if generating again lost a user's receivers or targets, or --check saw no change."""
    assert generate(tmp_path).returncode == 0
    assert generate(tmp_path, "--check").returncode == 0
    stack = tmp_path / "compose"
    mine = "- targets: [my-service:9464]\n"
    (stack / "prometheus" / "targets" / "services.yaml").write_text(mine)
    (stack / "tempo" / "tempo.yaml").write_text("server: {}\n")
    drifted = generate(tmp_path, "--check")
    assert drifted.returncode == 3 and "tempo.yaml (generated)" in drifted.stdout
    assert generate(tmp_path).stdout.split() == ["compose/tempo/tempo.yaml"]
    assert (stack / "prometheus" / "targets" / "services.yaml").read_text() == mine
    (stack / ".env").unlink()
    assert "compose/.env: is missing" in generate(tmp_path, "--check").stdout


def test_the_users_spec_goes_into_rules_scrapes_and_analyser(tmp_path: Path) -> None:
    """Broken if the stack watched something else than the user's otelkit.yaml lists."""
    text = "services:\n  - name: chat\n    preset: gen_ai\nscrape_interval: 10s\nwindows: [2m]\n"
    (tmp_path / "otelkit.yaml").write_text(text)
    assert generate(tmp_path, "-o", "stack").returncode == 0
    stack = tmp_path / "stack"
    prometheus = yaml.safe_load((stack / "prometheus" / "prometheus.yml").read_text())
    assert prometheus["global"]["scrape_interval"] == "10s"
    assert 'service="chat"' in (stack / "prometheus" / "rules" / "alerts.rules.yaml").read_text()
    assert (stack / "analyser" / "otelkit.yaml").read_text().endswith(text)
    datasources = (stack / "grafana" / "datasources" / "otelkit.yaml").read_text()
    assert "service:p99_latency_seconds:quantile_2m{$$__tags}" in datasources


def test_processes_get_addresses_of_this_machine(tmp_path: Path) -> None:
    """Broken if a process of `--local` looked for a container, or listened to the network."""
    place = compose.Place(
        bind="127.0.0.1",
        ports={"otlp_grpc": 1, "otlp_http": 2, "collector": 3, "tempo": 4},
        addresses=dict.fromkeys(
            ("tempo_otlp", "tempo_receives", "tempo", "prometheus", "grafana_prometheus", "alertmanager"),
            "127.0.0.1:5",
        ),
        scraped={"prometheus": compose.Address("127.0.0.1", 6), "demo": compose.Address("127.0.0.1", 7)},
        tempo_data=str(tmp_path),
        local=True,
    )
    files = compose.generate_for_processes(Spec(), place)
    for name, text in files.items():
        yaml.safe_load(text)
        assert "0.0.0.0" not in text and "dns" not in text and "/var/" not in text, name
    assert "alertmanagers" not in files["prometheus/prometheus.yml"]


@pytest.mark.parametrize("folder", ["/a: b, {c} #d", "/'\"é\\n", "/𝄞 - [x]"])
def test_paths_of_any_spelling(folder: str) -> None:
    """Broken if a folder's name was taken for YAML, and Tempo wrote elsewhere or did not start."""
    place = compose.Place(
        bind="127.0.0.1",
        ports={"otlp_grpc": 1, "otlp_http": 2, "collector": 3, "tempo": 4},
        addresses=dict.fromkeys(
            ("tempo_otlp", "tempo_receives", "tempo", "prometheus", "grafana_prometheus", "alertmanager"),
            "127.0.0.1:5",
        ),
        scraped={},
        tempo_data=folder,
        local=True,
    )
    tempo = yaml.safe_load(compose.generate_for_processes(Spec(), place)["tempo/tempo.yaml"])
    assert tempo["storage"]["trace"]["wal"]["path"] == f"{folder}/wal"
    assert tempo["backend_scheduler"]["local_work_path"] == folder


def test_one_stream_is_no_place_for_many_files(tmp_path: Path) -> None:
    """Broken if `-o -` made a folder that is called so."""
    done = generate(tmp_path, "-o", "-")
    assert done.returncode == 2 and "-o DIR" in done.stderr and not list(tmp_path.iterdir())


def test_the_stacks_own_spec_is_a_spec() -> None:
    """Broken if the spec taken without an otelkit.yaml made no sense."""
    spec = parse_spec(compose.default_spec_text())
    assert min(spec.windows).seconds >= 4 * spec.scrape_interval.seconds


def test_settings_are_read_as_compose_reads_them(tmp_path: Path) -> None:
    """Broken if `otelkit stack` and Docker Compose took different values from the same .env."""
    (tmp_path / ".env").write_text(
        "#A_PORT=1\nA_PORT='2' # second\nCOMPOSE_PROFILES=core,alerts\nB=\"x y\"\n"
    )
    settings = Settings(tmp_path, {"C": "from outside"})
    assert settings.port("A_PORT", 3) == 2
    assert settings.get("B", "default") == "x y" and settings.get("C", "") == "from outside"
    assert settings.profiles() == ("core", "alerts") and settings.profiles(("demo",)) == ("demo",)
    assert [part.name for part in settings.parts()] == [
        part.name for part in PARTS if part.profiles != ("demo",)
    ]
