"""Write generated files, or tell how those on disk differ from what would be written."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path

from otelkit.errors import UsageError


def write(directory: Path, files: Mapping[str, str], *, header: str) -> list[Path]:
    """Write ``files`` (name -> text) into a folder and remove what an earlier run left there.

    Args:
        header: First line of generated files; files that begin otherwise are never removed.

    Returns:
        The files that were changed, added or removed.

    Raises:
        UsageError: the folder can't be written.
    """
    changed = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = directory / name
            if not path.is_file() or path.read_bytes() != text.encode():
                path.parent.mkdir(parents=True, exist_ok=True)
                _replace(path, text)
                changed.append(path)
        for path in leftovers(directory, files, header=header):
            path.unlink()
            changed.append(path)
    except OSError as error:
        raise UsageError(
            f"{error.filename or directory}: can't be written: {error.strerror}",
            hint="Name another folder with -o DIR, or - for standard output.",
        ) from error
    return changed


def _replace(path: Path, text: str) -> None:
    """Write a file whole or not at all: half a rule file, and Prometheus does not start."""
    path = path.resolve()
    # No pattern that rule files are found by picks it up; the next run removes one that is left.
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        unfinished.write_text(text, encoding="utf-8", newline="\n")
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise


def differences(directory: Path, files: Mapping[str, str], *, header: str) -> str:
    """A unified diff from the files on disk to what would be written; empty when they are the same."""
    parts = []
    for name, text in files.items():
        path = directory / name
        if not path.is_file():
            parts.append(f"{path}: is missing\n")
            continue
        found = path.read_bytes().decode(errors="replace")
        if found != text:
            lines = difflib.unified_diff(
                found.splitlines(keepends=True),
                text.splitlines(keepends=True),
                str(path),
                f"{path} (generated)",
            )
            parts.append("".join(line if line.endswith("\n") else f"{line}\n" for line in lines))
    parts += [
        f"{path}: is left over; nothing generates it\n" for path in leftovers(directory, files, header=header)
    ]
    return "".join(parts)


def leftovers(directory: Path, files: Mapping[str, str], *, header: str) -> list[Path]:
    """Files that were generated once and no longer are, sorted; only in folders that files still go to."""
    if not header:
        raise ValueError("without a header, files of others can't be told from generated ones")
    first = header.encode()
    folders = sorted({(directory / name).parent for name in files})
    return [
        path
        for folder in folders
        for path in sorted(folder.glob("*"))
        if path.is_file()
        and path.relative_to(directory).as_posix() not in files
        and path.read_bytes()[: len(first)] == first
    ]
