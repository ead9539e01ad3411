"""Options of the verbs about the stack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

STACK_DIRECTORY: Final = Path("compose")
_F = TypeVar("_F", bound=Callable[..., Any])


def directory_option(function: _F) -> _F:
    """``--directory DIR``: the folder that ``otelkit generate compose`` has written."""
    return click.option(
        "--directory",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        default=STACK_DIRECTORY,
        show_default=True,
        help="Folder that `otelkit generate compose` has written.",
    )(function)


def profile_option(function: _F) -> _F:
    """``--profile NAME``, several times; passed on as a tuple named ``profiles``."""
    return click.option(
        "--profile",
        "profiles",
        metavar="NAME",
        multiple=True,
        help="Part of the stack: core, demo, alerts; may be given again [default: those in .env].",
    )(function)


def files_option(function: _F) -> _F:
    """``--file FILE``, several times; passed on as a tuple named ``files``."""
    return click.option(
        "--file",
        "files",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A further Compose file, which changes the generated one; may be given again.",
    )(function)


def local_option(function: _F) -> _F:
    """``--local``: processes on this machine in place of containers."""
    return click.option(
        "--local",
        is_flag=True,
        help="Without Docker: the programs that are on PATH or in .tools, as processes.",
    )(function)


def data_option(function: _F) -> _F:
    """``--data DIR``: where ``--local`` keeps what it records."""
    return click.option(
        "--data",
        metavar="DIR",
        type=click.Path(path_type=Path, file_okay=False),
        help="With --local: folder for configuration, data and logs [default: .local in the stack's folder].",
    )(function)


def format_option(of: str) -> Callable[[_F], _F]:
    """``--format``: how ``of`` come out; passed on as ``output_format``."""
    return click.option(
        "--format",
        "output_format",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help=f"Form of the {of} on stdout.",
    )
