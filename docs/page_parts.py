"""Parts of pages in Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool] | None = None) -> str:
    """A table in Markdown; columns that `right` marks are flushed right."""
    lines = ["---:" if flushed else "---" for flushed in right or [False] * len(heads)]
    cells = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in (heads, lines, *rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def first_paragraph(text: str | None) -> str:
    """The first paragraph, in one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())
