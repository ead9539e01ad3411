"""Grafana's own code (npm @grafana/data, @grafana/schema): its transformations on our frames, its types on
our JSON.

A Grafana itself is not run here.
"""

from __future__ import annotations

import copy
import json
import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dashboards_history import SPEC, FilledPrometheus

from otelkit.dashboards import documents
from otelkit.dashboards.grafana import panels_of
from otelkit.dashboards.preview import PrometheusApi, Span
from otelkit.dashboards.preview.fetch import fetch
from otelkit.dashboards.preview.frames import Frame, transform
from otelkit.dashboards.preview.variables import resolve
from otelkit.spec import Spec

pytestmark = pytest.mark.timeout(300)

_TYPES = {
    # Kind of panel -> module of its types, and whether that has a type for `fieldConfig.defaults.custom`.
    "timeseries": ("timeseries/panelcfg/x/TimeSeriesPanelCfg", True),
    "stat": ("stat/panelcfg/x/StatPanelCfg", False),
    "table": ("table/panelcfg/x/TablePanelCfg", True),
    "heatmap": ("heatmap/panelcfg/x/HeatmapPanelCfg", True),
    "nodeGraph": ("nodegraph/panelcfg/x/NodeGraphPanelCfg", False),
    "state-timeline": ("statetimeline/panelcfg/x/StateTimelinePanelCfg", True),
    "barchart": ("barchart/panelcfg/x/BarChartPanelCfg", True),
    "trend": ("trend/panelcfg/x/TrendPanelCfg", True),
    "text": ("text/panelcfg/x/TextPanelCfg", False),
}
_WIRE = """
// JSON holds an enum's value, not the enum.
type Wire<T> = T extends string ? `${T}`
  : T extends number | boolean | null | undefined ? T
  : T extends object ? { [K in keyof T]: Wire<T[K]> } : T;
"""


def _as_grafana_gets_it(frame: Frame) -> dict[str, Any]:
    def kind(name: str) -> str:
        return "time" if name == "Time" else "number" if name.startswith("Value") else "string"

    fields = [
        {"name": field.name, "type": kind(field.name), "values": field.values, "config": {}}
        for field in frame.fields
    ]
    return {"refId": frame.ref, "fields": fields}


@pytest.fixture(scope="module")
def transformed(filled: FilledPrometheus, node_packages: Path) -> dict[str, tuple[list[Any], list[Frame]]]:
    """Panel -> its frames by Grafana's transformations, and by the preview's."""
    jobs: list[dict[str, Any]] = []
    ours: dict[str, list[Frame]] = {}
    span = Span(filled.start, filled.end, 15)
    with PrometheusApi(filled.url) as api:
        for document in documents(SPEC).values():
            variables = resolve(document, api, span.start, span.end, {})
            for panel in panels_of(document):
                if panel.get("transformations"):
                    frames = fetch({**panel, "transformations": []}, api, variables, span).frames
                    raw = [_as_grafana_gets_it(frame) for frame in frames]
                    jobs.append({"frames": raw, "transformations": panel["transformations"]})
                    ours[panel["title"]], _ = transform(copy.deepcopy(frames), panel["transformations"])
    done = subprocess.run(
        ["node", str(node_packages / "transform.mjs")],
        input=json.dumps(jobs),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    return {title: (theirs[number], frames) for number, (title, frames) in enumerate(ours.items())}


def _names(frame: dict[str, Any]) -> dict[str, str]:
    return {field["name"]: field["type"] for field in frame["fields"]}


@pytest.mark.prometheus
@pytest.mark.parametrize("title", ["Causal graph", "Who calls whom"])
def test_node_graph_frames_have_the_fields_that_grafana_looks_for(
    title: str, transformed: dict[str, tuple[list[Any], list[Frame]]]
) -> None:
    """The panel would stay empty: it takes fields by their true names, and those come out of
    transformations."""
    frames, _ = transformed[title]
    assert len(frames) == 2
    nodes = next(frame for frame in frames if "source" not in _names(frame))
    edges = next(frame for frame in frames if "source" in _names(frame))
    assert {"id": "string", "mainstat": "number"}.items() <= _names(nodes).items()
    wanted = {"id": "string", "source": "string", "target": "string", "mainstat": "number", "color": "string"}
    assert wanted.items() <= _names(edges).items()
    values = {field["name"]: field["values"] for field in edges["fields"]}
    ids = set(next(field["values"] for field in nodes["fields"] if field["name"] == "id"))
    assert set(values["source"]) | set(values["target"]) <= ids
    assert all(value is not None for name in ("mainstat", "secondarystat") for value in values[name])
    if title == "Causal graph":
        assert all(1 <= value <= 10 for value in values["thickness"])


@pytest.mark.prometheus
def test_the_knee_has_an_ascending_number_to_draw_over(
    transformed: dict[str, tuple[list[Any], list[Frame]]],
) -> None:
    """Grafana's trend panel refuses an x field that is text or does not ascend."""
    ((frame,), _) = transformed["The knee: what a higher value buys, and what it costs"]
    field = next(one for one in frame["fields"] if one["name"] == "value")
    assert (field["type"], field["values"]) == ("number", [64, 128, 256])


@pytest.mark.prometheus
def test_the_preview_transforms_as_grafana_does(
    transformed: dict[str, tuple[list[Any], list[Frame]]],
) -> None:
    """A picture of the preview would show a table that Grafana does not."""
    assert len(transformed) > 5
    for title, (theirs, ours) in transformed.items():
        assert len(theirs) == len(ours), title
        by_ref = {frame["refId"]: frame for frame in theirs}
        for frame in ours:
            other = by_ref[frame.ref] if frame.ref in by_ref else theirs[0]
            assert [field.title for field in frame.fields] == [field["title"] for field in other["fields"]], (
                title
            )
            for field, its in zip(frame.fields, other["fields"], strict=True):
                for value, expected in zip(field.values, its["values"], strict=True):
                    same = value == expected or (
                        isinstance(value, float)
                        and isinstance(expected, int | float)
                        and math.isclose(value, expected)
                    )
                    assert same, (title, field.title, value, expected)


def test_types_of_grafana_accept_every_option(node_packages: Path) -> None:
    """A misspelt option, or one that Grafana has dropped, would be ignored in silence."""
    lines = ['import type { Dashboard } from "@grafana/schema";', _WIRE]
    names = {kind: kind.replace("-", "") for kind in _TYPES}
    for kind, (module, _) in _TYPES.items():
        path = f"@grafana/schema/dist/esm/raw/composable/{module}_types.gen"
        lines.append(f'import type * as {names[kind]} from "{path}";')
    for uid, document in documents(Spec()).items():
        name = uid.replace("-", "_")
        for panel in panels_of(document):
            if panel["type"] == "row":
                continue
            module = names[panel["type"]]
            lines.append(f"// {uid} / {panel['title']}")
            options = json.dumps(panel["options"])
            lines.append(
                f"export const options_{name}_{panel['id']}: Partial<Wire<{module}.Options>> = {options};"
            )
            custom = panel["fieldConfig"]["defaults"].get("custom")
            if custom and _TYPES[panel["type"]][1]:
                typed = f"custom_{name}_{panel['id']}: Partial<Wire<{module}.FieldConfig>>"
                lines.append(f"export const {typed} = {json.dumps(custom)};")
        typed_loosely = copy.deepcopy(document)
        for annotation in typed_loosely["annotations"]["list"]:
            # These types name what all data sources share; the rest is Prometheus' own.
            annotation["target"] = {"refId": annotation["target"]["refId"]}
            for key in ("titleFormat", "textFormat", "tagKeys", "useValueForTime"):
                del annotation[key]
        lines.append(f"export const {name}: Wire<Dashboard> = {json.dumps(typed_loosely)};")
    (node_packages / "check.ts").write_text("\n".join(lines), encoding="utf-8")
    done = subprocess.run(
        [str(node_packages / "node_modules/.bin/tsc"), "-p", str(node_packages)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[:3000]
