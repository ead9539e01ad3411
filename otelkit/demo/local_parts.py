"""The stack's programs on this machine: where they are, how each is started, and when it is ready."""

from __future__ import annotations

import importlib.util
import os
import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import httpx

from otelkit.compose import layout
from otelkit.compose.generate import ALERTMANAGER_FILE, SPEC_FILE
from otelkit.compose.machine import HOST
from otelkit.compose.settings import Settings
from otelkit.demo.model import check_gguf, ensure_model
from otelkit.demo.progress import say
from otelkit.demo.prometheus import find_tool
from otelkit.demo.stack import SERVICE

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    layout.PROMETHEUS.name: ("prometheus",),
    layout.ALERTMANAGER.name: ("alertmanager", "prometheus-alertmanager"),
    layout.COLLECTOR.name: ("otelcol", "otelcol-contrib"),
    layout.TEMPO.name: ("tempo",),
    layout.GRAFANA.name: ("grafana-server",),
}
"""Part -> names its program goes by, the usual one first."""
WITHOUT: Final[Mapping[str, str]] = {
    layout.PROMETHEUS.name: "nothing is recorded",
    layout.ALERTMANAGER.name: "alerts are evaluated and not delivered",
    layout.COLLECTOR.name: "spans go nowhere",
    layout.TEMPO.name: "traces are not kept",
    layout.GRAFANA.name: "there are no dashboards (`otelkit dashboards preview` draws them)",
    layout.CHAT.name: "there is no service to look at but your own",
}
"""What is missed where a program is missing."""
_DEMO_PACKAGES: Final = ("openai", "starlette", "uvicorn", "xllamacpp")
_INSTALLED_SHARE: Final = Path("/usr/share")
_DIRECT: Final[Mapping[str, str]] = {"NO_PROXY": "*", "no_proxy": "*"}
"""A proxy of the user's must not stand between the parts."""
_OTELKIT: Final = (sys.executable, "-c", "from otelkit.cli.main import main; main()")


def program(part: str) -> Path | None:
    """The program of a part, from ``.tools`` or PATH."""
    return next((found for name in NAMES[part] if (found := find_tool(name))), None)


def missing_packages() -> list[str]:
    """Packages that the demo needs and that are not installed."""
    return [name for name in _DEMO_PACKAGES if importlib.util.find_spec(name) is None]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where everything listens on 127.0.0.1.

    Those that Compose publishes have its variables; the others have variables of their own.
    """

    of: Mapping[str, int]

    @classmethod
    def chosen(cls, settings: Settings) -> Ports:
        """Raises ConfigError where a variable holds no port."""
        published = {variable: default for part in layout.PARTS for variable, default in part.ports}
        return cls({name: settings.port(name, port) for name, port in {**published, **_INNER}.items()})

    def wanted(self, parts: Sequence[layout.Part]) -> dict[str, int]:
        """Variable -> port, of all that these parts listen on."""
        names = [variable for part in parts for variable, _ in (*part.ports, *_INNER_OF.get(part.name, ()))]
        return {name: self.of[name] for name in names}

    def url(self, variable: str) -> str:
        return f"http://{HOST}:{self.of[variable]}"


_INNER_OF: Final[Mapping[str, tuple[tuple[str, int], ...]]] = {
    layout.COLLECTOR.name: (("COLLECTOR_METRICS_PORT", 8888),),
    layout.TEMPO.name: (("TEMPO_OTLP_PORT", 14317),),
    layout.MODEL.name: (("MODEL_PORT", 18080),),
    layout.CHAT.name: (("DEMO_METRICS_PORT", 9464),),
}
"""Part -> variables and ports that containers have among themselves."""
_INNER: Final = dict(pair for pairs in _INNER_OF.values() for pair in pairs)


@dataclass(frozen=True, slots=True)
class Program:
    """A program that can be started."""

    name: str
    command: Sequence[str]
    ready: Callable[[], bool]
    url: str
    timeout: float = 180.0
    """Seconds until it must be ready."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to this process' own."""
    reloads: bool = False
    """It reads its configuration again on SIGHUP."""
    restarts: bool = False
    """It reads its configuration when it starts, and is started again to read it; loses nothing by that."""


def template_missing() -> str:
    """A sentence where Debian's Alertmanager is here and the template that it was built to read is not.

    Upstream's programs hold their template within themselves.
    """
    binary = program(layout.ALERTMANAGER.name)
    template = Path("prometheus/alertmanager/default.tmpl")
    is_debians = binary is not None and (binary.resolve().parent.parent / "share" / template).is_file()
    read = _INSTALLED_SHARE / template
    return "" if not is_debians or read.is_file() else f"it needs {read}"


def programs(
    directory: Path, data: Path, settings: Settings, ports: Ports, parts: Sequence[layout.Part]
) -> list[Program]:
    """How each of ``parts`` is started, in order; all of them are there.

    Raises:
        ModelUnavailable: there is no model to be had.
    """
    makers: dict[str, Callable[[], Program]] = {
        layout.PROMETHEUS.name: lambda: _prometheus(data, settings, ports),
        layout.TEMPO.name: lambda: Program(
            layout.TEMPO.name,
            [str(program(layout.TEMPO.name)), "-target=all", f"-config.file={data / 'tempo' / 'tempo.yaml'}"],
            _answers(f"{ports.url('TEMPO_PORT')}/ready"),
            ports.url("TEMPO_PORT"),
            timeout=300,
            restarts=True,
        ),
        layout.COLLECTOR.name: lambda: Program(
            layout.COLLECTOR.name,
            [str(program(layout.COLLECTOR.name)), f"--config={data / 'collector' / 'config.yaml'}"],
            _listens(ports.of["OTLP_HTTP_PORT"]),
            ports.url("OTLP_HTTP_PORT"),
            reloads=True,
        ),
        layout.GRAFANA.name: lambda: _grafana(data, settings, ports),
        layout.ANALYSER.name: lambda: _analyser(directory, ports),
        layout.ALERTMANAGER.name: lambda: Program(
            layout.ALERTMANAGER.name,
            [
                str(program(layout.ALERTMANAGER.name)),
                f"--config.file={directory / ALERTMANAGER_FILE}",
                f"--storage.path={data / 'alertmanager'}",
                f"--web.listen-address={HOST}:{ports.of['ALERTMANAGER_PORT']}",
                "--cluster.listen-address=",
                "--log.level=warn",
            ],
            _answers(f"{ports.url('ALERTMANAGER_PORT')}/-/ready"),
            ports.url("ALERTMANAGER_PORT"),
            reloads=True,
        ),
        layout.MODEL.name: lambda: _model(settings, ports),
        layout.CHAT.name: lambda: _chat(data, settings, ports, parts),
        layout.LOAD.name: lambda: _load(data, settings, ports),
    }
    return [makers[part.name]() for part in parts]


def _prometheus(data: Path, settings: Settings, ports: Ports) -> Program:
    size = settings.get("PROMETHEUS_RETENTION_SIZE", layout.LARGEST_RETENTION)
    return Program(
        layout.PROMETHEUS.name,
        [
            str(program(layout.PROMETHEUS.name)),
            f"--config.file={data / 'prometheus' / 'prometheus.yml'}",
            f"--storage.tsdb.path={data / 'prometheus' / 'data'}",
            f"--storage.tsdb.retention.time={settings.get('PROMETHEUS_RETENTION', layout.METRICS_RETENTION)}",
            f"--storage.tsdb.retention.size={size}",
            "--web.enable-remote-write-receiver",
            "--enable-feature=exemplar-storage,native-histograms",
            f"--web.listen-address={HOST}:{ports.of['PROMETHEUS_PORT']}",
            "--log.level=warn",
        ],
        _answers(f"{ports.url('PROMETHEUS_PORT')}/-/ready"),
        ports.url("PROMETHEUS_PORT"),
        reloads=True,
    )


def _analyser(directory: Path, ports: Ports) -> Program:
    return Program(
        layout.ANALYSER.name,
        [
            *_OTELKIT,
            "analyse",
            "--serve",
            f"--host={HOST}",
            f"--port={ports.of['ANALYSER_PORT']}",
            f"--prometheus={ports.url('PROMETHEUS_PORT')}",
            f"--spec={directory / SPEC_FILE}",
        ],
        _answers(f"{ports.url('ANALYSER_PORT')}/-/healthy"),
        ports.url("ANALYSER_PORT"),
        environment=_DIRECT,
        restarts=True,
    )


def _grafana(data: Path, settings: Settings, ports: Ports) -> Program:
    home = data / "grafana"
    home.mkdir(parents=True, exist_ok=True)
    password = home / "admin-password"
    if not password.exists():
        with os.fdopen(os.open(password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(18))
    binary = program(layout.GRAFANA.name)
    assert binary is not None
    beside = binary.resolve().parent.parent
    share = beside if (beside / "conf" / "defaults.ini").is_file() else Path("/usr/share/grafana")
    return Program(
        layout.GRAFANA.name,
        [str(binary), f"--homepath={share}"],
        _answers(f"{ports.url('GRAFANA_PORT')}/api/health"),
        ports.url("GRAFANA_PORT"),
        timeout=300,
        restarts=True,
        environment={
            "GF_PATHS_DATA": str(home / "data"),
            "GF_PATHS_LOGS": str(home / "log"),
            "GF_PATHS_PLUGINS": str(home / "plugins"),
            "GF_PATHS_PROVISIONING": str(home / "provisioning"),
            "GF_SERVER_HTTP_ADDR": HOST,
            "GF_SERVER_HTTP_PORT": str(ports.of["GRAFANA_PORT"]),
            "GF_SECURITY_ADMIN_PASSWORD": f"$__file{{{password}}}",
            "GF_AUTH_ANONYMOUS_ENABLED": settings.get("GRAFANA_ANONYMOUS", "false"),
            "GF_AUTH_ANONYMOUS_ORG_ROLE": "Viewer",
            "GF_ANALYTICS_REPORTING_ENABLED": "false",
            "GF_ANALYTICS_CHECK_FOR_UPDATES": "false",
            "GF_ANALYTICS_CHECK_FOR_PLUGIN_UPDATES": "false",
            "GF_PLUGINS_PREINSTALL_DISABLED": "true",
            "GF_PLUGINS_PREINSTALL_AUTO_UPDATE": "false",
            "GF_NEWS_NEWS_FEED_ENABLED": "false",
            "GF_LOG_LEVEL": "warn",
        },
    )


def _model(settings: Settings, ports: Ports) -> Program:
    asked = settings.get("OTELKIT_MODEL_FILE", "")
    file = check_gguf(Path(asked)) if asked else ensure_model(say=say)
    return Program(
        layout.MODEL.name,
        [
            *(sys.executable, "-m", "otelkit.demo.model_server"),
            f"--model={file}",
            f"--port={ports.of['MODEL_PORT']}",
        ],
        _answers(f"{ports.url('MODEL_PORT')}/health"),
        ports.url("MODEL_PORT"),
        timeout=300,
    )


def _chat(data: Path, settings: Settings, ports: Ports, parts: Sequence[layout.Part]) -> Program:
    (data / "demo").mkdir(parents=True, exist_ok=True)
    environment = {
        **_DIRECT,
        "OTEL_EXPORTER_OTLP_ENDPOINT": ports.url("OTLP_HTTP_PORT"),
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_PROMETHEUS_HOST": HOST,
        "OTEL_EXPORTER_PROMETHEUS_PORT": str(ports.of["DEMO_METRICS_PORT"]),
        "OTELKIT_LATENCY_SLO_SECONDS": settings.get("OTELKIT_LATENCY_SLO_SECONDS", "0.15,0.4,1.2"),
    }
    if layout.COLLECTOR not in parts:
        environment |= {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    return Program(
        layout.CHAT.name,
        [
            *(*_OTELKIT, "run", f"--service={SERVICE}", "--", sys.executable, "-m", "otelkit.demo.service"),
            f"--model-url={ports.url('MODEL_PORT')}/v1",
            f"--model={settings.get('OTELKIT_DEMO_MODEL', 'SmolLM2-135M-Instruct')}",
            f"--settings={data / 'demo' / 'settings.json'}",
            f"--port={ports.of['DEMO_PORT']}",
        ],
        _answers(f"{ports.url('DEMO_PORT')}/health"),
        ports.url("DEMO_PORT"),
        environment=environment,
    )


def _load(data: Path, settings: Settings, ports: Ports) -> Program:
    return Program(
        layout.LOAD.name,
        [
            *(sys.executable, "-m", "otelkit.demo.endless"),
            f"--url={ports.url('DEMO_PORT')}/v1/chat/completions",
            f"--model-url={ports.url('MODEL_PORT')}/v1/chat/completions",
            f"--settings={data / 'demo' / 'settings.json'}",
            f"--rate={settings.get('OTELKIT_DEMO_RATE', '0')}",
        ],
        lambda: True,
        "",
        environment=_DIRECT,
    )


def _answers(url: str) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            return httpx.get(url, timeout=2.0, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    return ready


def _listens(port: int) -> Callable[[], bool]:
    def ready() -> bool:
        try:
            socket.create_connection((HOST, port), timeout=2).close()
        except OSError:
            return False
        return True

    return ready
