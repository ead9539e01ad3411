"""Where the user's own exporters send to, so that token-step spans take the same way, credentials included.

An exporter was configured by OTEL_EXPORTER_OTLP_* variables, by arguments in code, or by a credential
provider. It has no public way to ask, so its attributes are read; an exporter that looks different is not
guessed at: the answer is None, and spans then go through the exporter itself.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from copy import copy as copy_of
from typing import Any, Final

from otelkit.emit.otlp.sender import Sender

_HTTP: Final = (
    ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "OTLPSpanExporter"),
    ("opentelemetry.exporter.otlp.proto.http._log_exporter", "OTLPLogExporter"),
)
_GRPC: Final = (
    (
        "opentelemetry.exporter.otlp.proto.grpc.trace_exporter",
        "OTLPSpanExporter",
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    ),
    (
        "opentelemetry.exporter.otlp.proto.grpc._log_exporter",
        "OTLPLogExporter",
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    ),
)


def sender_like(exporter: object) -> Sender | None:
    """A sender to the endpoint of an OTLP exporter of the SDK's for spans or logs; None for anything else."""
    if any(_is_exactly(exporter, module, name) for module, name in _HTTP):
        return _http_sender(exporter)
    for module, name, method in _GRPC:
        if _is_exactly(exporter, module, name):
            return _grpc_sender(exporter, method)
    return None


def timeout_of(exporter: Any, default: float) -> float:
    """Seconds that an exporter gives one request."""
    client = getattr(exporter, "_client", None)
    timeout = getattr(client, "_timeout", None) or getattr(exporter, "_timeout", None)
    return float(timeout) if isinstance(timeout, int | float) and timeout > 0 else default


def _is_exactly(exporter: object, module: str, name: str) -> bool:
    """Whether it is the SDK's class itself, as it is: a subclass, or a function put in the place of
    ``export``, may filter or change what is exported."""
    loaded = sys.modules.get(module)
    return (
        loaded is not None
        and type(exporter) is getattr(loaded, name, None)
        and "export" not in vars(exporter)
    )


def _http_sender(exporter: Any) -> Sender | None:
    # Imported here: a service that exports over gRPC need not load an HTTP client.
    import requests

    from otelkit.emit.otlp.http import HttpSender

    client = getattr(exporter, "_client", exporter)
    session = getattr(getattr(client, "_transport", client), "_session", None)
    url, headers = getattr(exporter, "_endpoint", None), getattr(client, "_headers", None)
    if not isinstance(session, requests.Session) or not isinstance(url, str) or headers is None:
        return None
    compression = str(getattr(getattr(exporter, "_compression", None), "value", "none"))
    sent = {name.lower(): value for name, value in headers.items() if name.lower() != "content-encoding"}
    sent.setdefault("content-type", "application/x-protobuf")
    return HttpSender(url, sent, compression, _sessions_like(session, exporter))


def _sessions_like(session: Any, exporter: Any) -> Callable[[], Any]:
    """Makes sessions with the user's certificates and adapters; one of another class is shared, as is such an
    adapter."""
    import requests
    from requests.adapters import HTTPAdapter

    if type(session) is not requests.Session:
        return lambda: session

    def make() -> requests.Session:
        copy = requests.Session()
        copy.headers.update(session.headers)
        copy.auth, copy.proxies, copy.trust_env = session.auth, dict(session.proxies), session.trust_env
        copy.hooks = {event: list(hooks) for event, hooks in session.hooks.items()}
        for prefix, adapter in session.adapters.items():
            copy.mount(prefix, copy_of(adapter) if type(adapter) is HTTPAdapter else adapter)
        # Exporters before 1.45 keep certificates beside the session.
        copy.verify = getattr(exporter, "_certificate_file", session.verify)
        copy.cert = getattr(exporter, "_client_cert", session.cert)
        return copy

    return make


def _grpc_sender(exporter: Any, method: str) -> Sender | None:
    import grpc  # type: ignore[import-untyped]

    from otelkit.emit.otlp.grpc import GrpcSender

    address, metadata = getattr(exporter, "_endpoint", None), getattr(exporter, "_headers", None)
    credentials, options = getattr(exporter, "_credentials", None), getattr(exporter, "_channel_options", ())
    # Older exporters keep credentials only if they use them, and compression not at all.
    insecure = getattr(exporter, "_insecure", credentials is None)
    compression = getattr(exporter, "_compression", None)
    if not isinstance(address, str) or metadata is None or (not insecure and credentials is None):
        return None

    def make() -> grpc.Channel:
        if insecure:
            return grpc.insecure_channel(address, options=options, compression=compression)
        return grpc.secure_channel(address, credentials, options=options, compression=compression)

    return GrpcSender(address, method, metadata, make)
