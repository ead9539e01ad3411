"""Have a running stack take up changed configuration: checked first, and without losing what was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from otelkit.compose import layout
from otelkit.compose.engine import Compose
from otelkit.errors import ConfigError, OtelkitError

_CHECKS: Final = {
    layout.PROMETHEUS.name: ("promtool", "check", "config", "/etc/prometheus/prometheus.yml"),
    layout.ALERTMANAGER.name: ("amtool", "check-config", "/etc/alertmanager/alertmanager.yml"),
    layout.COLLECTOR.name: ("/otelcol", "validate", "--config=/etc/otelcol/config.yaml"),
}
"""How each checks a configuration before it is taken up; all of them take SIGHUP for a reload."""
_RESTARTED: Final = (layout.TEMPO.name, layout.GRAFANA.name, layout.ANALYSER.name)
"""These read their configuration when they start. What they have is in volumes, or comes from Prometheus.
Grafana looks for changed dashboards by itself."""


def reload(compose: Compose) -> Iterator[str]:
    """Reload what runs; a sentence for each part.

    Raises:
        ConfigError: a program refuses its configuration; then nothing was reloaded.
        OtelkitError: nothing of the stack runs, Compose does not say what does, or a part does not take the
            request.
    """
    running = {one.service for one in compose.states() if one.state == "running"}
    if not running:
        raise OtelkitError("nothing of the stack runs.", hint="`otelkit stack up` starts it.")
    refused = []
    for name, check in _CHECKS.items():
        if name in running:
            answer = compose.ask("exec", "-T", name, *check, timeout=60)
            if answer.code:
                refused.append(f"{name}: refuses its configuration: {answer.last_line}")
    if refused:
        raise ConfigError(refused, hint=f"Nothing was reloaded. The files are below {compose.directory}.")
    for name in _CHECKS:
        if name in running:
            _demand(compose, "kill", "--signal", "SIGHUP", name)
            yield f"{name}: reads its configuration again"
    restarted = [name for name in _RESTARTED if name in running]
    if restarted:
        _demand(compose, "restart", *restarted)
        yield f"{', '.join(restarted)}: started again"


def _demand(compose: Compose, *arguments: str) -> None:
    answer = compose.everything().ask(*arguments, timeout=180)
    if answer.code:
        raise OtelkitError(
            f"`docker compose {' '.join(arguments)}` failed: {answer.last_line}",
            hint="`otelkit stack status` shows how the parts are.",
        )
