"""Who may read the debug pages."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a request comes from."""

    address: str
    """IP address of the other end of the connection; empty when there is none, as on a Unix socket."""
    headers: Mapping[str, str]
    """Names in lower case; values as Latin-1, which stands for any bytes."""


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine only."""
    name = host.strip().strip("[]").partition("%")[0].lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def permits(caller: Caller, token: str) -> bool:
    """Whether a caller may read: by the bearer token where there is one, else from this machine alone.

    Without a token a request must come straight from this machine: one that a proxy passes on comes from
    anywhere, and one whose ``Host`` is another name is from a web page whose name was resolved to here.
    """
    if token:
        scheme, _, given = caller.headers.get("authorization", "").partition(" ")
        expected = token.encode("utf-8", "surrogateescape")
        matches = hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected)
        return matches and scheme.lower() == "bearer"
    return (
        is_loopback(caller.address)
        and is_loopback(_without_port(caller.headers.get("host", "")))
        and not any(name in caller.headers for name in _FORWARDED)
    )


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0]
    return host.partition(":")[0]
