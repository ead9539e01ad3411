"""What to do, by symptom: one Markdown file a section, its first line the title."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def sections() -> dict[str, str]:
    """Title -> text, in order."""
    files = (entry for entry in resources.files(__name__).iterdir() if entry.name.endswith(".md"))
    texts = [entry.read_text(encoding="utf-8") for entry in sorted(files, key=lambda entry: entry.name)]
    return dict(_split(text) for text in texts)


def _split(text: str) -> tuple[str, str]:
    title, _, body = text.partition("\n")
    return title.removeprefix("# "), body.strip() + "\n"
