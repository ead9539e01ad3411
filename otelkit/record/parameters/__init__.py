"""The parameters of a service, declared: ``from otelkit import parameters``.

::

    parameters.register("max_tokens", 256, kind=int, minimum=1, maximum=4096)
    parameters.watch("chat.yaml")                  # reloaded when it changes, and on SIGUSR2
    client.chat.completions.create(max_tokens=parameters.get("max_tokens"), ...)

Every change of a value that was in use is reported with its old and new value and with what made it.
"""

from __future__ import annotations

from otelkit.record.parameters.fingerprint import fingerprint
from otelkit.record.parameters.process import process as _process
from otelkit.record.parameters.snapshot import Snapshot

register = _process.store.register
get = _process.store.get
set = _process.store.set
update = _process.store.update
replace = _process.store.replace
snapshot = _process.store.snapshot
hold = _process.store.hold
watch = _process.watch
reload = _process.watcher.reload

__all__ = [
    "Snapshot",
    "fingerprint",
    "get",
    "hold",
    "register",
    "reload",
    "replace",
    "set",
    "snapshot",
    "update",
    "watch",
]
