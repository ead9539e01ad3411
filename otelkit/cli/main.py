"""The ``otelkit`` command: one module per verb, each loaded only when it is called."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Final

import click

from otelkit import __version__
from otelkit.errors import OtelkitError

_VERBS: Final[Mapping[str, str]] = {
    "analyse": "otelkit.cli.analyse",
    "changes": "otelkit.cli.changes",
    "check": "otelkit.cli.check",
    "dashboards": "otelkit.cli.dashboards",
    "demo": "otelkit.cli.demo",
    "doctor": "otelkit.cli.doctor",
    "explain": "otelkit.cli.explain",
    "generate": "otelkit.cli.generate",
    "run": "otelkit.cli.run",
    "stack": "otelkit.cli.stack",
}
"""Verb -> the module that holds a ``click.Command`` named ``command``."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        command = importlib.import_module(_VERBS[name]).command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(__version__, prog_name="otelkit")
def cli() -> None:
    """P99 jumped: which parameter change caused it?

    Exit codes: 0 ok, 1 failure, 2 usage or configuration, 3 a finding, 4 backend unreachable,
    130 interrupted.
    """


def main() -> None:
    """Entry point of the console script."""
    try:
        sys.exit(cli.main(standalone_mode=False))
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except OtelkitError as error:
        click.echo(f"otelkit: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":  # also as ``python -m otelkit.cli.main``
    main()
