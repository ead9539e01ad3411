"""The templates of the rule files, and how they are found and rendered."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from jinja2 import (
    ChoiceLoader,
    Environment,
    FileSystemLoader,
    PackageLoader,
    StrictUndefined,
    TemplateSyntaxError,
)

from otelkit.errors import ConfigError
from otelkit.spec import escaped, label_name

SUFFIX: Final = ".j2"


class Templates:
    """Jinja2 templates with ``<< >>`` and ``<% %>``: PromQL and Prometheus' ``{{ }}`` stay as they are.

    Args:
        override: A folder with templates that replace those of the same name.

    Raises:
        ConfigError: the folder is missing, or holds a template that replaces nothing.
    """

    def __init__(self, override: Path | None = None) -> None:
        own = PackageLoader("otelkit.rules")
        self._override = override
        if override is not None:
            self._refuse_strangers(override, own.list_templates())
        # Jinja's own delimiters are those of Prometheus' label templates; [[ ]] would meet PromQL's ranges.
        self._environment = Environment(
            loader=ChoiceLoader([FileSystemLoader(override), own]) if override else own,
            undefined=StrictUndefined,
            autoescape=False,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            variable_start_string="<<",
            variable_end_string=">>",
            block_start_string="<%",
            block_end_string="%>",
            comment_start_string="<#",
            comment_end_string="#>",
        )
        self._environment.filters["json"] = lambda value: escaped(json.dumps(value, ensure_ascii=False))
        self._environment.filters["label"] = label_name
        # In labels and annotations of alerts, Prometheus fills in what stands in double braces.
        self._environment.filters["literal"] = lambda value: str(value).replace("{{", '{{ "{{" }}')
        self._environment.filters["number"] = lambda value: f"{value:.12g}"
        self._environment.filters["percent"] = lambda value: f"{100 * value:.12g} %"

    def render(self, name: str, context: Mapping[str, Any]) -> str:
        """The text that the template of ``name`` gives.

        Raises:
            ConfigError: a replaced template can't be rendered; names its file and line.
        """
        self._environment.globals = {**self._environment.globals, **context}
        try:
            return self._environment.get_template(name + SUFFIX).render(context)
        except Exception as error:
            # Any exception may come out of what somebody else's template computes.
            if self._override is None:
                raise
            raise ConfigError(
                [f"{self._place(error, name)}: {error}"],
                hint="Compare it with the template that it replaces.",
            ) from error

    def _place(self, error: Exception, name: str) -> str:
        """File and line in the replaced templates where rendering ``name`` failed, if known."""
        if isinstance(error, TemplateSyntaxError):
            return f"{error.filename or self._override}:{error.lineno}"
        frames = traceback.extract_tb(error.__traceback__)
        places = [frame for frame in frames if frame.filename.startswith(str(self._override))]
        return f"{places[-1].filename}:{places[-1].lineno}" if places else f"{self._override}: {name}{SUFFIX}"

    def _refuse_strangers(self, override: Path, known: list[str]) -> None:
        if not override.is_dir():
            raise ConfigError([f"{override}: is no folder"], hint="--templates names a folder of *.j2 files.")
        names = [name for name in known if name.endswith(SUFFIX)]
        strangers = sorted(path.name for path in override.glob("*") if path.name not in names)
        if strangers:
            raise ConfigError(
                [f"{override / name}: replaces no template" for name in strangers],
                hint=f"Templates are {', '.join(sorted(names))}.",
            )
