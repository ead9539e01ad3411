"""Where the user's own exporters send to, so that token-step spans take the same way, credentials included.

An exporter was configured by OTEL_EXPORTER_OTLP_* variables, by arguments in code, or by a credential
provider. It has no public way to ask, so its attributes are read; an exporter that looks different is not
guessed at: the answer is None, and spans then go through the exporter itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from otelkit.emit.otlp.sender import Sender

_HTTP_MODULE: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_GRPC_MODULE: Final = "opentelemetry.exporter.otlp.proto.grpc.trace_exporter"


def sender_like(exporter: object) -> Sender | None:
    """A sender to the endpoint of an OTLP span exporter of the SDK's; None when it is anything else."""
    if _is_exactly(exporter, _HTTP_MODULE):
        return http_sender(exporter)
    return None


def _is_exactly(exporter: object, module: str) -> bool:
    """Whether it is the SDK's class itself: a subclass may filter or change what it exports."""
    loaded = sys.modules.get(module)
    return loaded is not None and type(exporter) is getattr(loaded, "OTLPSpanExporter", None)


def http_sender(exporter: Any) -> Sender | None:
    """A sender with the endpoint, headers, compression, certificates and session of an OTLP/HTTP exporter."""
    # Imported here: a service that exports over gRPC, or not at all, need not load an HTTP client.
    import requests

    from otelkit.emit.otlp.http import HttpSender

    client = getattr(exporter, "_client", exporter)
    session = getattr(getattr(client, "_transport", client), "_session", None)
    url, headers = getattr(exporter, "_endpoint", None), getattr(client, "_headers", None)
    if not isinstance(session, requests.Session) or not isinstance(url, str) or headers is None:
        return None
    compression = str(getattr(getattr(exporter, "_compression", None), "value", "none"))
    lower = {key.lower(): value for key, value in headers.items() if key.lower() != "content-encoding"}
    return HttpSender(url, {**_defaults(), **lower}, compression, _session_like(session, exporter))


def timeout_of(exporter: Any, default: float) -> float:
    """Seconds that an exporter gives one request."""
    timeout = getattr(getattr(exporter, "_client", None), "_timeout", None) or getattr(
        exporter, "_timeout", None
    )
    return float(timeout) if isinstance(timeout, int | float) and timeout > 0 else default


def _defaults() -> dict[str, str]:
    return {"content-type": "application/x-protobuf"}


def _session_like(session: Any, exporter: Any) -> Callable[[], Any]:
    """Makes sessions with the user's certificates; one of a class of theirs renews credentials itself and is
    shared."""
    import requests

    if type(session) is not requests.Session:
        return lambda: session

    def make() -> requests.Session:
        copy = requests.Session()
        copy.headers.update(session.headers)
        copy.auth, copy.proxies, copy.trust_env = session.auth, dict(session.proxies), session.trust_env
        # Exporters before 1.45 keep certificates beside the session.
        copy.verify = getattr(exporter, "_certificate_file", session.verify)
        copy.cert = getattr(exporter, "_client_cert", session.cert)
        return copy

    return make
