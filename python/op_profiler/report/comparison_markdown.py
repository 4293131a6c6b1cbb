"""A comparison of runs as Markdown for a pull request."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.report.comparison import HEADS, between, cells, method, remarks, told_rows, verdict

if TYPE_CHECKING:
    from op_profiler.comparison.result import Compared, Comparison


def as_markdown(comparison: Comparison) -> str:
    """Tables as GitHub and GitLab show them; what did not change is folded away."""
    parts = [f"### op_profiler: {verdict(comparison)}"]
    for run in comparison.runs:
        shown, rest = told_rows(run)
        changed = [row for row in shown if row.name is None or row.change is None or row.change.real]
        same = [row for row in shown if row not in changed]
        parts.append(f"**{_escaped(run.title)}**: {_escaped(between(run))}")
        parts.append(_table(changed))
        if same or rest:
            inside = [_table(same)] if same else []
            parts.append("\n\n".join(["<details><summary>no change seen</summary>", *inside, *rest, "</details>"]))
        parts += [f"- {_escaped(line)}" for line in remarks(run)]
    parts += [_escaped(line) for line in (*comparison.notes, method(comparison))]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Compared]) -> str:
    lines = [HEADS, [":---", *["---:"] * (len(HEADS) - 2), ":---"], *(map(_escaped, cells(row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Names come from models of others: neither a table nor a page may be broken by them."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "\\`").replace("\n", " ")
