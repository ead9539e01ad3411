"""Grafana's own model of its dashboards, in Python: what it reads and writes again must be what was
written."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from otelkit.dashboards import documents
from otelkit.spec import Spec

ADDED_BY_THE_SDK = (
    # The SDK takes links on data for links of dashboards, and every variable for one of an interval: it adds
    # the defaults of fields that do not belong there.
    re.compile(
        r"/panels/\*/fieldConfig/defaults/links/\*/"
        r"(asDropdown|icon|includeVars|keepTime|placement|tags|tooltip|type)"
    ),
    re.compile(r"/templating/list/\*/auto(_count|_min)?"),
    # Grafana 13 has no such option of tables any more.
    re.compile(r"/panels/\*/options/footer"),
)


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(set(ours) | set(theirs)):
            below = f"{path}/{key}"
            if key not in theirs:
                yield f"{below} is lost: {ours[key]!r}"
            elif key in ours:
                yield from _differences(ours[key], theirs[key], below)
            elif not any(pattern.fullmatch(below) for pattern in ADDED_BY_THE_SDK):
                yield f"{below} is added: {theirs[key]!r}"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _differences(one, other, f"{path}/*")
    elif ours != theirs:
        yield f"{path}: {ours!r} became {theirs!r}"


@pytest.mark.parametrize("uid", documents(Spec()))
def test_the_foundation_sdk_changes_nothing(uid: str) -> None:
    """A field with a wrong name or type would be ignored by Grafana in silence."""
    with warnings.catch_warnings():
        # The SDK prefers Grafana's next format, which can't be provisioned from files yet.
        warnings.simplefilter("ignore", DeprecationWarning)
        from grafana_foundation_sdk.cog import plugins
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models.dashboard import Dashboard

        plugins.register_default_plugins()
    document = json.loads(json.dumps(documents(Spec())[uid]))
    again = json.loads(JSONEncoder().encode(Dashboard.from_json(document)))
    assert list(_differences(document, again)) == []
