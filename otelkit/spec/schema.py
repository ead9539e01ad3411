"""The JSON Schema of ``otelkit.yaml``, which editors check and complete by."""

from __future__ import annotations

import json
from typing import Any, Final

from otelkit.spec.model import Spec

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """The schema as a document."""
    return {"$schema": _DIALECT, **Spec.model_json_schema(), "title": "otelkit.yaml"}


def json_schema_text() -> str:
    """The schema as it is published: the same bytes for the same schema."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
