"""What ``/debug/vars`` and ``/healthz`` say: every parameter with its value, its source, and since when.

Times are Unix seconds.
"""

from __future__ import annotations

import os
import time
from typing import Any

from otelkit.model import UNSET, CallSite, ChangeSource, ParameterValue, canonical
from otelkit.record import instrumentation
from otelkit.record.call_sites import SiteParameters
from otelkit.record.parameters.fingerprint import fingerprint
from otelkit.record.parameters.process import ProcessParameters
from otelkit.record.parameters.snapshot import Entry, Key, Layer
from otelkit.record.redaction import exported
from otelkit.record.stable import stable_text


def variables(parameters: ProcessParameters) -> dict[str, Any]:
    """Everything, in JSON values.

    A parameter is ``in_use`` from the first call that used its present value (``effective_at``); until then
    it is only loaded. ``covered`` lists values that were loaded too, but that a stronger source covers.
    """
    snapshot = parameters.store.snapshot()
    layers = parameters.store.layers()
    return {
        "service": parameters.reporter.service,
        "process": os.getpid(),
        "now": time.time(),
        "version": snapshot.version,
        "fingerprint": snapshot.fingerprint,
        "parameters": [
            {
                "name": key[1],
                "scope": key[0],
                **_described(key, entry),
                "in_use": entry.first_use is not None,
                "effective_at": entry.first_use.at if entry.first_use else None,
                "first_trace_id": entry.first_use.trace_id if entry.first_use else "",
                "covered": [
                    _described(key, weaker)
                    for layer in sorted(layers, reverse=True)
                    if layer < entry.layer and (weaker := layers[layer].get(key)) is not None
                ],
            }
            for key, entry in sorted(snapshot.entries.items(), key=lambda item: (item[0][1], item[0][0]))
        ],
        "call_sites": [_call_site(parameters, site, used) for site, used in parameters.call_sites.all()],
        "settled": _settled(),
        "flags": [
            {
                "name": flag.key,
                "domain": flag.domain,
                "value": exported(flag.key, flag.value),
                "variant": flag.variant,
                "provider": flag.provider,
                "evaluated_at": flag.evaluated_at,
            }
            for flag in parameters.flags.all()
        ],
        "files": files(parameters),
        "inputs": [
            {"input": source, "outcome": outcome, "count": count}
            for (source, outcome), count in sorted(parameters.input_counts().items())
        ],
    }


def _call_site(parameters: ProcessParameters, site: CallSite, used: SiteParameters) -> dict[str, Any]:
    """What the last call of a call site was given; a value equal to a declared one is taken for that one."""
    snapshot = parameters.store.snapshot()
    described = []
    for name, value in used.values.items():
        entry = snapshot.entry(name)
        declared = entry is not None and stable_text(entry.value) == stable_text(value)
        described.append(
            {
                "name": name,
                "value": exported(name, value),
                "source": entry.source if entry is not None and declared else ChangeSource.OBSERVED.value,
                "since": used.since[name],
            }
        )
    return {
        "service": site.service,
        "provider": site.provider,
        "operation": site.operation,
        "model": site.model,
        "route": site.location,
        "calls": used.calls,
        "last_call_at": used.last_call_at,
        "fingerprint": fingerprint(used.values),
        "parameters": described,
    }


def _settled() -> list[dict[str, Any]]:
    """What each call site's requests have settled on; null where they vary the parameter."""
    running = instrumentation.runtime()
    return [
        {
            "service": one.service,
            "scope": one.scope,
            "name": one.parameter,
            "varies": not one.is_clear,
            "value": _json_value(one.parameter, one.value) if one.is_clear else None,
            "since": one.since,
        }
        for one in ([] if running is None else running.detector.settled_values())
    ]


def _json_value(name: str, value: ParameterValue) -> ParameterValue:
    shown = exported(name, value)
    return canonical(UNSET) if shown is UNSET else shown


def files(parameters: ProcessParameters) -> list[dict[str, Any]]:
    """The configuration files watched, and what is wrong with those whose present state is not in force."""
    return [
        {
            "path": str(file.path),
            "section": file.section,
            "scope": file.scope,
            "loaded_at": file.loaded_at,
            "in_force": not file.problems,
            "problems": list(file.problems),
            "failed_at": file.failed_at,
        }
        for file in parameters.watcher.files
    ]


def health(parameters: ProcessParameters) -> dict[str, Any]:
    """That the process answers, when its parameters were loaded, and when a call first used them."""
    entries = [
        (key, entry)
        for key, entry in parameters.store.snapshot().entries.items()
        if entry.layer is not Layer.DEFAULT or entry.first_use is not None
    ]
    used = [entry.first_use for _, entry in entries if entry.first_use is not None]
    first = min(used, key=lambda use: use.at, default=None)
    return {
        "status": "ok",
        "loaded_at": max((entry.loaded_at for _, entry in entries), default=None),
        "effective_at": max((use.at for use in used), default=None),
        "first_call": {"at": first.at, "trace_id": first.trace_id} if first else None,
        "loaded_not_in_use": sorted(key[1] for key, entry in entries if entry.first_use is None),
        "files_not_in_force": [file["path"] for file in files(parameters) if not file["in_force"]],
    }


def _described(key: Key, entry: Entry) -> dict[str, Any]:
    return {
        "value": _json_value(key[1], entry.value),
        "source": entry.source,
        "origin": entry.act.origin,
        "loaded_at": entry.loaded_at,
    }
