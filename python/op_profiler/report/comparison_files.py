"""A comparison of runs as Markdown for a pull request, and as a page that opens in a browser without a network."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from op_profiler.report.comparison import HEADS, between, cells, method, remarks, told_rows, verdict

if TYPE_CHECKING:
    from op_profiler.comparison.result import Compared, Comparison

_STYLE = """
:root { color-scheme: light dark; --slower: #b35900; --faster: #0067a3; }
@media (prefers-color-scheme: dark) { :root { --slower: #ffb066; --faster: #79c7ff; } }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } .wide { overflow-x: auto; }
td:not(:last-child) { white-space: nowrap; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; vertical-align: top; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
tr.slower td { color: var(--slower); font-weight: 600; } tr.faster td { color: var(--faster); font-weight: 600; }
svg { width: 12rem; height: 1.2rem; } .zero { stroke: currentColor; opacity: .5; }
.ends { stroke: currentColor; stroke-width: 2; } .middle { fill: currentColor; }
"""
_WIDEST = 0.2


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


def as_page(comparison: Comparison) -> str:
    """One HTML file; an interval is drawn beside each change."""
    parts = []
    for run in comparison.runs:
        shown, rest = told_rows(run)
        heads = "".join(f"<th scope=col>{html.escape(head)}</th>" for head in (*HEADS[:-1], "-20 % to +20 %", ""))
        rows = "".join(map(_row, shown))
        lines = "".join(f"<li>{html.escape(line)}</li>" for line in (*rest, *remarks(run)))
        parts.append(
            f"<h2>{html.escape(run.title)}</h2><p>{html.escape(between(run))}</p>"
            f"<div class=wide><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div><ul>{lines}</ul>"
        )
    foot = "".join(f"<p>{html.escape(line)}</p>" for line in (*comparison.notes, method(comparison)))
    return (
        '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
        f"<title>Comparison</title><style>{_STYLE}</style><h1>{html.escape(verdict(comparison))}</h1>"
        f"{''.join(parts)}{foot}</html>\n"
    )


def _table(rows: Sequence[Compared]) -> str:
    lines = [HEADS, [":---", *["---:"] * (len(HEADS) - 2), ":---"], *(map(_escaped, cells(row)) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _escaped(text: str) -> str:
    """Names come from models of others: neither a table nor a page may be broken by them."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "\\`").replace("\n", " ")


def _row(row: Compared) -> str:
    *numbers, words = cells(row)
    kind = ""
    if row.change is not None and row.change.real:
        kind = " class=slower" if row.change.slower else " class=faster"
    inside = "".join(f"<td>{html.escape(cell)}</td>" for cell in numbers)
    return f"<tr{kind}>{inside}<td>{''.join(_drawn(row))}</td><td>{html.escape(words)}</td></tr>"


def _drawn(row: Compared) -> Iterator[str]:
    """The interval on a line from -20 to 20 %."""
    change = row.change
    if change is None or change.low is None or change.high is None:
        return
    low, middle, high = (50 + 50 * max(-1.0, min(1.0, x / _WIDEST)) for x in (change.low, change.change, change.high))
    yield f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label="{change.low:+.1%} to '
    yield f'{change.high:+.1%}"><line class=zero x1=50 x2=50 y1=0 y2=10 />'
    yield f'<line class=ends x1="{low:.1f}" x2="{high:.1f}" y1=5 y2=5 />'
    yield f'<rect class=middle x="{middle - 0.7:.1f}" y=2 width=1.4 height=6 /></svg>'
