"""The stack's configuration for processes on this machine: written, and checked by its readers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

import yaml

from otelkit import compose
from otelkit.compose import layout
from otelkit.compose.generate import (
    ALERTMANAGER_FILE,
    COLLECTOR_FILE,
    DATASOURCES_FILE,
    PROMETHEUS_FILE,
    SPEC_FILE,
)
from otelkit.compose.machine import HOST
from otelkit.compose.settings import Settings
from otelkit.demo.local_parts import Ports, program
from otelkit.demo.prometheus import find_tool
from otelkit.errors import ConfigError
from otelkit.spec import load_spec

_CHECKING_SECONDS: Final = 60.0


def configure(
    directory: Path, data: Path, settings: Settings, ports: Ports, parts: Sequence[layout.Part]
) -> None:
    """Write the configuration of all parts below ``data``, linked to what is the user's in ``directory``.

    Raises:
        ConfigError: the spec has errors, or something that is needed is missing.
        OSError: ``data`` can't be written; each file is then as it was before, or as it is to be.
    """
    spec = load_spec(directory / SPEC_FILE)
    for name, text in compose.generate_for_processes(spec, _place(data, ports, parts)).items():
        _write(data / name, text)
    for name in ("rules", "targets"):
        link, folder = data / "prometheus" / name, (directory / "prometheus" / name).resolve()
        if not link.is_symlink() or link.readlink() != folder:
            link.unlink(missing_ok=True)
            link.symlink_to(folder, target_is_directory=True)
    if layout.GRAFANA in parts:
        _provision(directory, data, settings)


def _place(data: Path, ports: Ports, parts: Sequence[layout.Part]) -> compose.Place:
    metrics = {
        layout.PROMETHEUS.name: "PROMETHEUS_PORT",
        layout.TEMPO.name: "TEMPO_PORT",
        layout.COLLECTOR.name: "COLLECTOR_METRICS_PORT",
        layout.GRAFANA.name: "GRAFANA_PORT",
        layout.ANALYSER.name: "ANALYSER_PORT",
        layout.ALERTMANAGER.name: "ALERTMANAGER_PORT",
        layout.CHAT.name: "DEMO_METRICS_PORT",
    }
    return compose.Place(
        bind=HOST,
        ports={
            "otlp_grpc": ports.of["OTLP_GRPC_PORT"],
            "otlp_http": ports.of["OTLP_HTTP_PORT"],
            "collector": ports.of["COLLECTOR_METRICS_PORT"],
            "tempo": ports.of["TEMPO_PORT"],
        },
        addresses={
            "tempo_otlp": f"{HOST}:{ports.of['TEMPO_OTLP_PORT']}",
            "tempo_receives": f"{HOST}:{ports.of['TEMPO_OTLP_PORT']}",
            "tempo": ports.url("TEMPO_PORT"),
            "prometheus": ports.url("PROMETHEUS_PORT"),
            "grafana_prometheus": ports.url("PROMETHEUS_PORT"),
            "alertmanager": ports.url("ALERTMANAGER_PORT"),
        },
        scraped={
            part.name: compose.Address(HOST, ports.of[metrics[part.name]])
            for part in parts
            if part.name in metrics
        },
        tempo_data=str(data / "tempo" / "data"),
        local=True,
    )


def _write(path: Path, text: str) -> None:
    """At once or not at all: a disk that is full must not leave half a configuration behind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.replace(path)


def _provision(directory: Path, data: Path, settings: Settings) -> None:
    """Grafana's datasources, and where its dashboards are."""
    provisioning = data / "grafana" / "provisioning"
    dashboards = (directory / settings.get("OTELKIT_DASHBOARDS", "../dashboards")).resolve()
    file = dashboards / "otelkit.provider.yaml"
    try:
        provider = yaml.safe_load(file.read_text(encoding="utf-8"))
        # Grafana puts variables of its environment into what it provisions.
        provider["providers"][0]["options"]["path"] = str(dashboards).replace("$", "$$")
    except (OSError, UnicodeDecodeError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ConfigError(
            [f"{file}: can't be read: {error}"],
            hint="`otelkit generate dashboards` writes it; OTELKIT_DASHBOARDS in .env names another folder.",
        ) from error
    datasources = (data / DATASOURCES_FILE).read_text(encoding="utf-8")
    _write(provisioning / "datasources" / "otelkit.yaml", datasources)
    _write(provisioning / "dashboards" / "otelkit.yaml", yaml.safe_dump(provider, allow_unicode=True))


def refusals(directory: Path, settings: Settings, names: Collection[str]) -> list[str]:
    """What the programs' own checkers say against the configuration as it is now; a line each.

    Args:
        names: of the parts that run.

    Raises:
        ConfigError: the spec has errors.
    """
    parts = [part for part in layout.PARTS if part.name in names]
    refused = []
    with tempfile.TemporaryDirectory(prefix="otelkit-") as folder:
        data = Path(folder)
        configure(directory, data, settings, Ports.chosen(settings), parts)
        checks: dict[str, tuple[Path | None, tuple[str, ...]]] = {
            layout.PROMETHEUS.name: (
                find_tool("promtool"),
                ("check", "config", str(data / PROMETHEUS_FILE)),
            ),
            layout.ALERTMANAGER.name: (
                find_tool("amtool"),
                ("check-config", str(directory / ALERTMANAGER_FILE)),
            ),
            layout.COLLECTOR.name: (
                program(layout.COLLECTOR.name),
                ("validate", f"--config={data / COLLECTOR_FILE}"),
            ),
        }
        for name, (binary, arguments) in checks.items():
            if name not in names or binary is None:
                continue
            done = subprocess.run(
                [binary, *arguments],
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=_CHECKING_SECONDS,
            )
            if done.returncode:
                said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
                why = next((line for line in said if "FAILED" not in line), f"exit code {done.returncode}")
                # Rules and targets are links to the user's own.
                refused.append(f"{name}: refuses its configuration: {why.replace(folder, str(directory))}")
    return refused
