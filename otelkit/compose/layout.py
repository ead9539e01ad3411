"""The parts of the stack: one place that knows their images, ports, users, volumes and shares of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otelkit import __version__

MEMORY_LIMIT_MIB: Final = 2048
"""What all containers together may take."""
LARGEST_RETENTION: Final = "4GB"
METRICS_RETENTION: Final = "15d"
TRACES_RETENTION: Final = "48h"
EXEMPLARS: Final = 100_000
"""Kept by Prometheus; older ones make room, so that exemplars seldom outlive their traces."""
OLDEST_ENGINE: Final = (20, 10, 0)
"""The first version whose containers can reach the machine by name."""
OLDEST_COMPOSE: Final = (2, 24, 4)
"""The first version that knows ``!override`` and dependencies that need not be there."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A named volume."""

    name: str
    mount: str
    format: str
    """What wrote the data, and in which of its formats; stands in a label of the volume."""


@dataclass(frozen=True, slots=True)
class Part:
    """One service of the stack."""

    name: str
    image: str
    """Pinned image, taken unless ``variable`` names another."""
    variable: str
    memory_mib: int
    user: str
    profiles: tuple[str, ...]
    ports: tuple[tuple[str, int], ...] = ()
    """(variable, port): published on 127.0.0.1, under the same number unless the variable names another."""
    volumes: tuple[Volume, ...] = ()
    metrics_port: int | None = None
    """Where Prometheus finds its /metrics page."""


VOLUME_LABEL: Final = "io.otelkit.format"
CORE: Final = "core"
DEMO: Final = "demo"
ALERTS: Final = "alerts"
PROFILES: Final = (CORE, DEMO, ALERTS)

_CORE: Final = (CORE, DEMO)
"""The demo needs what users' services need."""
_OWN_USER: Final = "10001:10001"
_ANALYSER_IMAGE: Final = f"otelkit-analyser:{__version__}"
_DEMO_IMAGE: Final = f"otelkit-demo:{__version__}"

PROMETHEUS: Final = Part(
    name="prometheus",
    image="prom/prometheus:v3.5.3",
    variable="PROMETHEUS_IMAGE",
    memory_mib=448,
    user="65534:65534",
    profiles=_CORE,
    ports=(("PROMETHEUS_PORT", 9090),),
    volumes=(Volume("prometheus-data", "/prometheus", "prometheus-3"),),
    metrics_port=9090,
)
TEMPO: Final = Part(
    name="tempo",
    image="grafana/tempo:3.0.3",
    variable="TEMPO_IMAGE",
    memory_mib=400,
    user="10001:10001",
    profiles=_CORE,
    ports=(("TEMPO_PORT", 3200),),
    volumes=(Volume("tempo-data", "/var/tempo", "tempo-3"),),
    metrics_port=3200,
)
COLLECTOR: Final = Part(
    name="otel-collector",
    image="otel/opentelemetry-collector:0.152.0",
    variable="OTEL_COLLECTOR_IMAGE",
    memory_mib=128,
    user="10001:10001",
    profiles=_CORE,
    ports=(("OTLP_GRPC_PORT", 4317), ("OTLP_HTTP_PORT", 4318)),
    metrics_port=8888,
)
GRAFANA: Final = Part(
    name="grafana",
    image="grafana/grafana:13.2.3",
    variable="GRAFANA_IMAGE",
    memory_mib=320,
    user="472:0",
    profiles=_CORE,
    ports=(("GRAFANA_PORT", 3000),),
    volumes=(Volume("grafana-data", "/var/lib/grafana", "grafana-13"),),
    metrics_port=3000,
)
ANALYSER: Final = Part(
    name="analyser",
    image=_ANALYSER_IMAGE,
    variable="OTELKIT_IMAGE",
    memory_mib=192,
    user=_OWN_USER,
    profiles=_CORE,
    ports=(("ANALYSER_PORT", 9465),),
    metrics_port=9465,
)
ALERTMANAGER: Final = Part(
    name="alertmanager",
    image="prom/alertmanager:v0.33.1",
    variable="ALERTMANAGER_IMAGE",
    memory_mib=64,
    user="65534:65534",
    profiles=(ALERTS,),
    ports=(("ALERTMANAGER_PORT", 9093),),
    volumes=(Volume("alertmanager-data", "/alertmanager", "alertmanager-0"),),
    metrics_port=9093,
)
MODEL: Final = Part(
    name="model",
    image=_DEMO_IMAGE,
    variable="OTELKIT_DEMO_IMAGE",
    memory_mib=272,
    user=_OWN_USER,
    profiles=(DEMO,),
    volumes=(Volume("models", "/models", "gguf"),),
)
CHAT: Final = Part(
    name="demo",
    image=_DEMO_IMAGE,
    variable="OTELKIT_DEMO_IMAGE",
    memory_mib=144,
    user=_OWN_USER,
    profiles=(DEMO,),
    ports=(("DEMO_PORT", 8000),),
    volumes=(Volume("demo-settings", "/settings", "json"),),
    metrics_port=9464,
)
LOAD: Final = Part(
    name="load",
    image=_DEMO_IMAGE,
    variable="OTELKIT_DEMO_IMAGE",
    memory_mib=80,
    user=_OWN_USER,
    profiles=(DEMO,),
)
PARTS: Final = (PROMETHEUS, TEMPO, COLLECTOR, GRAFANA, ANALYSER, ALERTMANAGER, MODEL, CHAT, LOAD)
"""In the order in which they start."""
