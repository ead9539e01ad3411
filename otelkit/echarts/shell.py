"""What all self-contained pages share: the document around their content, and a policy that lets in nothing
else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from otelkit import __version__, echarts


def render(
    package: str,
    template: str,
    *,
    scripts: Sequence[str],
    filters: Mapping[str, Callable[..., Any]] | None = None,
    **values: Any,
) -> str:
    """Render a template that extends ``shell.html.j2``. The same arguments give the same bytes.

    Everything that comes from data is escaped, and the page's content security policy allows its own scripts
    only and no connection at all.

    Args:
        package: holds the template in ``templates``, its scripts and ``page.css`` in ``assets``.
        scripts: run after the chart library, in this order.
        filters: for the template, by name.
        values: what the template names; ``data`` is what its scripts read.
    """
    sources = [echarts.library(), *(asset(package, name) for name in scripts)]
    environment = _environment(package)
    environment.filters.update(filters or {})
    return environment.get_template(template).render(
        **values,
        styles=Markup(asset(package, "page.css")),
        scripts=[Markup(source) for source in sources],
        policy=policy(sources),
        version=__version__,
    )


@cache
def asset(package: str, name: str) -> str:
    """The text of a script or style sheet of a package."""
    return (resources.files(package) / "assets" / name).read_text(encoding="utf-8").strip()


def policy(scripts: Sequence[str]) -> str:
    """A content security policy under which only these very scripts run and nothing is fetched."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(__package__)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {
        "allow_nan": False,
        "separators": (",", ":"),
        "sort_keys": True,
    }
    return environment
