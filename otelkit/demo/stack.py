"""The processes of a run: model server, service, Prometheus; how each is started and when it is ready."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from otelkit.compose.machine import HOST
from otelkit.demo.model import check_gguf
from otelkit.demo.model_server import SLOTS
from otelkit.demo.supervise import Child, Supervisor, free_port

SERVICE: Final = "chat"
"""The service's name in all telemetry."""

_SERVICE_FILE: Final = Path(__file__).with_name("service.py")
_OTELKIT: Final = "from otelkit.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class ModelServer:
    """A loaded model."""

    name: str
    url: str
    """Base URL of its OpenAI-compatible endpoint."""


def start_model_server(supervisor: Supervisor, model: Path) -> ModelServer:
    """Start it and wait until the model is loaded.

    Raises:
        ModelUnavailable: ``model`` is no GGUF file.
        OtelkitError: the model can't be loaded; the message holds what the server said.
    """
    port = free_port()
    command = ["-m", "otelkit.demo.model_server", "--model", str(check_gguf(model)), "--port", str(port)]
    child = supervisor.start("model server", [sys.executable, *command])
    child.wait_until(lambda: _answers(f"http://{HOST}:{port}/health"), timeout=120)
    return ModelServer(model.stem, f"http://{HOST}:{port}/v1")


def start_service(
    supervisor: Supervisor,
    *,
    model: ModelServer,
    settings: Path,
    port: int,
    telemetry: Mapping[str, str] | None,
) -> Child:
    """Start the service and wait until it answers.

    Args:
        telemetry: environment variables for ``otelkit run``; None starts the service bare.
    """
    # -P: its folder must not come on the module path, for the service is to see no more of otelkit than any
    # user's service would.
    command = [sys.executable, "-P", str(_SERVICE_FILE), "--model-url", model.url, "--model", model.name]
    command += ["--settings", str(settings), "--port", str(port)]
    # What the user's shell has set for other programs' telemetry must not leak into the demo's.
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL")}
    if telemetry is None:
        name = "bare service"
    else:
        name = "service"
        command = [sys.executable, "-c", _OTELKIT, "run", "--service", SERVICE, "--", *command]
        env |= telemetry
    child = supervisor.start(name, command, env=env)
    child.wait_until(lambda: _answers(f"http://{HOST}:{port}/health"), timeout=60)
    return child


def chat_url(port: int) -> str:
    """Address of the service's chat completions."""
    return f"http://{HOST}:{port}/v1/chat/completions"


def telemetry_environment(*, otlp: str, metrics_port: int, objectives: Sequence[float]) -> dict[str, str]:
    """How ``otelkit run`` is told where telemetry goes: by the standard variables.

    Args:
        otlp: base URL of the receiver.
        objectives: latency objectives in seconds, around which histogram buckets are made finer.
    """
    # Headers and certificates that the user has set for their own receiver go with it.
    own = {name: value for name, value in os.environ.items() if name.startswith("OTEL_EXPORTER_OTLP_")}
    return {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        **own,
        "OTEL_EXPORTER_OTLP_ENDPOINT": otlp,
        "OTEL_EXPORTER_PROMETHEUS_HOST": HOST,
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(metrics_port),
        "OTELKIT_LATENCY_SLO_SECONDS": ",".join(f"{seconds:g}" for seconds in objectives),
    }


def objectives(requests_per_second: float) -> tuple[float, ...]:
    """Latencies (seconds) worth fine buckets, from the capacity measured with all slots busy.

    With all slots busy an answer takes slots / rate (Little's law). The script's lighter settings and idle
    slots lie below that, queues above.
    """
    busy = SLOTS / requests_per_second
    return tuple(float(f"{busy * share:.2g}") for share in (0.125, 0.35, 1.0))


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False
