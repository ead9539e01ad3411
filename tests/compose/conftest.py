"""What the tests of the stack's files share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "compose"


class _Loader(yaml.SafeLoader):
    """Reads Compose's own tags as what they stand on."""


def _below(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node)
    return loader.construct_mapping(node) if isinstance(node, yaml.MappingNode) else None


_Loader.add_constructor("!override", _below)


@pytest.fixture(scope="session")
def read_yaml() -> Callable[[str], Any]:
    """Reads a committed file of the stack by its path below ``compose/``."""
    return lambda name: yaml.load((COMMITTED / name).read_text(encoding="utf-8"), Loader=_Loader)


@pytest.fixture(scope="session")
def stack(read_yaml: Callable[[str], Any]) -> dict[str, Any]:
    """The services of ``compose.yaml`` by name."""
    services: dict[str, Any] = read_yaml("compose.yaml")["services"]
    return services
