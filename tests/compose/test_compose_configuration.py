"""The configuration of all that the stack starts: read by the programs' own checkers where there are any,
else held against the keys that the pinned versions know."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from otelkit.demo.prometheus import find_tool

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "compose"

# Top-level keys of Tempo 3.0, and below them those that this stack may use: Tempo refuses any other.
_TEMPO: Mapping[str, Any] = {
    "target": None,
    "server": {"http_listen_port", "http_listen_address", "grpc_listen_address", "log_level"},
    "distributor": {"receivers"},
    "live_store": {"wal", "shutdown_marker_dir"},
    "block_builder": set(),
    "backend_scheduler": {"provider", "local_work_path"},
    "backend_worker": {"compaction"},
    "metrics_generator": {"storage", "registry", "processor"},
    "storage": {"trace"},
    "overrides": {"defaults"},
    "usage_report": {"reporting_enabled"},
}
# Components of the collector's core modules.
_COLLECTOR = {
    "receivers": {"otlp"},
    "processors": {"memory_limiter", "batch"},
    "exporters": {"otlp_grpc", "otlp_http", "debug", "nop"},
}


def test_promtool_reads_prometheus_yml(promtool_binary: Path) -> None:
    """Broken if Prometheus refused its configuration, or a rule file that it names."""
    done = subprocess.run(
        [promtool_binary, "check", "config", "prometheus/prometheus.yml"],
        cwd=COMMITTED,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 rule files found" in done.stdout


def test_amtool_reads_alertmanager_yml(missing: Callable[[str], NoReturn]) -> None:
    """Broken if Alertmanager refused its configuration."""
    amtool = find_tool("amtool")
    if amtool is None:
        missing("no amtool in .tools or on PATH; scripts/fetch-prometheus brings it")
    done = subprocess.run(
        [amtool, "check-config", COMMITTED / "alertmanager" / "alertmanager.yml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_part_with_metrics_is_scraped(stack: dict[str, Any], read_yaml: Callable[[str], Any]) -> None:
    """Broken if a part was not scraped, or Prometheus looked for one under a name that nothing has."""
    jobs = {job["job_name"]: job for job in read_yaml("prometheus/prometheus.yml")["scrape_configs"]}
    assert set(jobs) == {"services", *(set(stack) - {"model", "load"})}
    for name, job in jobs.items():
        for found in job.get("dns_sd_configs", ()):
            assert found["names"] == [name], name
    for name in ("services", "demo", "analyser"):
        assert jobs[name].get("scrape_interval", "5s") in ("1s", "5s"), name


def test_tempo_is_given_keys_of_its_version_only(read_yaml: Callable[[str], Any]) -> None:
    """Broken if a key that Tempo 3.0 does not know, such as ingester or compactor, kept it from starting."""
    config = read_yaml("tempo/tempo.yaml")
    assert set(config) <= set(_TEMPO)
    for name, value in config.items():
        if isinstance(value, dict):
            assert set(value) <= _TEMPO[name], name


def test_traces_outlive_the_exemplars_that_point_to_them(read_yaml: Callable[[str], Any]) -> None:
    """Broken if both places that Tempo takes its retention from did not agree."""
    config = read_yaml("tempo/tempo.yaml")
    worker = config["backend_worker"]["compaction"]["block_retention"]
    assert config["backend_scheduler"]["provider"]["compaction"]["compaction"]["block_retention"] == worker
    assert worker == "48h"


def test_tempo_writes_where_its_volume_is(stack: dict[str, Any], read_yaml: Callable[[str], Any]) -> None:
    """Broken if Tempo wrote to its read-only system: it would not start."""
    config = read_yaml("tempo/tempo.yaml")
    paths = [config["storage"]["trace"]["local"]["path"], config["storage"]["trace"]["wal"]["path"]]
    paths.append(config["metrics_generator"]["storage"]["path"])
    assert all(Path(path).is_relative_to("/var/tempo") for path in paths)
    assert "tempo-data:/var/tempo" in stack["tempo"]["volumes"]


def test_the_collector_needs_core_components_only(
    stack: dict[str, Any], read_yaml: Callable[[str], Any], missing: Callable[[str], NoReturn]
) -> None:
    """Broken if a pipeline named a component that the core image lacks, or that is not configured."""
    config = read_yaml("collector/config.yaml")
    for kind, known in _COLLECTOR.items():
        assert {name.split("/")[0] for name in config[kind]} <= known
        for pipeline in config["service"]["pipelines"].values():
            assert set(pipeline[kind]) <= set(config[kind])
    for pipeline in config["service"]["pipelines"].values():
        assert pipeline["processors"][0] == "memory_limiter"
    assert config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"].endswith(":4317")
    binary = find_tool("otelcol")
    if binary is not None:
        done = subprocess.run(
            [binary, "validate", f"--config={COMMITTED / 'collector' / 'config.yaml'}"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def _datasources(read_yaml: Callable[[str], Any]) -> dict[str, dict[str, Any]]:
    return {one["uid"]: one for one in read_yaml("grafana/datasources/otelkit.yaml")["datasources"]}


def _uids(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("datasource"), dict) and "uid" in value["datasource"]:
            yield value["datasource"]["uid"]
        for below in value.values():
            yield from _uids(below)
    elif isinstance(value, list):
        for below in value:
            yield from _uids(below)


def test_dashboards_find_their_datasources(read_yaml: Callable[[str], Any]) -> None:
    """Broken if a dashboard asked for a datasource under another uid than the one provisioned."""
    provisioned = _datasources(read_yaml)
    dashboards = sorted((ROOT / "dashboards").glob("otelkit-*.json"))
    assert dashboards
    for path in dashboards:
        document = json.loads(path.read_text(encoding="utf-8"))
        variables = {
            one["name"]: (one["query"], one["current"]["value"])
            for one in document["templating"]["list"]
            if one["type"] == "datasource"
        }
        for kind, uid in variables.values():
            assert provisioned[uid]["type"] == kind, path.name
        for uid in _uids(document["panels"]):
            name = uid.strip("${}")
            assert name in variables or uid in provisioned or uid.startswith("-- "), f"{path.name}: {uid}"


def test_datasources_point_at_each_other_and_at_running_parts(
    stack: dict[str, Any], read_yaml: Callable[[str], Any]
) -> None:
    """Broken if the way from an exemplar to its trace, or from a span to its metrics, led nowhere."""
    provisioned = _datasources(read_yaml)
    exemplars = provisioned["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert exemplars == [{"name": "trace_id", "datasourceUid": "tempo"}]
    tempo = provisioned["tempo"]["jsonData"]
    assert tempo["tracesToMetrics"]["datasourceUid"] in provisioned
    assert tempo["serviceMap"]["datasourceUid"] in provisioned
    assert tempo["nodeGraph"] == {"enabled": True}
    for one in provisioned.values():
        host, _, port = one["url"].removeprefix("http://").partition(":")
        assert any(published.endswith(f":{port}") for published in stack[host]["ports"]), one["url"]


def test_traces_lead_to_series_that_are_recorded(read_yaml: Callable[[str], Any]) -> None:
    """Broken if a query of trace-to-metrics asked for a series that no rule records."""
    queries = _datasources(read_yaml)["tempo"]["jsonData"]["tracesToMetrics"]["queries"]
    rules = [
        read_yaml(f"prometheus/rules/{path.name}") for path in (COMMITTED / "prometheus/rules").glob("*.yaml")
    ]
    recorded = {rule.get("record") for file in rules for group in file["groups"] for rule in group["rules"]}
    for query in queries:
        # Grafana replaces what follows a single dollar by a variable of its environment.
        assert query["query"].endswith("{$$__tags}"), query
        assert query["query"].removesuffix("{$$__tags}") in recorded, query


def test_grafana_provisions_from_what_is_mounted(stack: dict[str, Any]) -> None:
    """Broken if the provider looked for dashboards elsewhere than where they are mounted."""
    targets = {mount["target"] for mount in stack["grafana"]["volumes"] if isinstance(mount, dict)}
    provider = (ROOT / "dashboards" / "otelkit.provider.yaml").read_text(encoding="utf-8")
    path = next(
        line.split(":")[1].strip() for line in provider.splitlines() if line.strip().startswith("path:")
    )
    assert path in targets
    home = stack["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert Path(home).parent == Path(path) and (ROOT / "dashboards" / Path(home).name).is_file()


def test_grafana_has_no_default_password(stack: dict[str, Any]) -> None:
    """Broken if Grafana could be entered with a password that everybody knows."""
    grafana = stack["grafana"]
    file = grafana["environment"]["GF_SECURITY_ADMIN_PASSWORD__FILE"]
    assert "GF_SECURITY_ADMIN_PASSWORD" not in grafana["environment"]
    script = grafana["command"][0].replace("$$", "$")
    assert "umask 077" in script and f"file={file}" in script
    assert Path(file).is_relative_to("/var/lib/grafana")
    assert grafana["environment"]["GF_AUTH_ANONYMOUS_ENABLED"] == "${GRAFANA_ANONYMOUS:-false}"


def test_the_password_is_made_once_and_only_its_owner_reads_it(stack: dict[str, Any], tmp_path: Path) -> None:
    """Broken if a restart changed the password, or others could read it."""
    script = stack["grafana"]["command"][0].replace("$$", "$")
    script = script.replace("/var/lib/grafana", str(tmp_path)).replace("exec /run.sh", "exec true")
    passwords = []
    for _ in range(2):
        subprocess.run(["/bin/sh", "-c", script], check=True)
        passwords.append((tmp_path / "admin-password").read_text())
    assert passwords[0] == passwords[1] and len(passwords[0]) == 24 and passwords[0].isalnum()
    assert (tmp_path / "admin-password").stat().st_mode & 0o777 == 0o600
