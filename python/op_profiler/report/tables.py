"""Tables that fit the width of the terminal."""

from __future__ import annotations

import dataclasses
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.option_values import threads_text

if TYPE_CHECKING:
    from rich.console import Console

_WITHOUT_TERMINAL = 120
_LEAST_TEXT = 24
"""Least number of characters in a line of a wrapped text."""
_EMPTY = frozenset({"", "-"})
_ALIKE = 100
"""Added to the rank of a column whose rows are all equal."""


@dataclasses.dataclass(frozen=True)
class Heading:
    """A column of a table on a terminal.

    Attributes:
        name: text of the heading; its words may be wrapped.
        rank: columns of rank 0 are always shown; if the terminal is too narrow, the other columns are left out, those
            with the highest rank first.
        number: True: the cells are right-aligned and never wrapped. False: the cells are text, wrapped if needed.
    """

    name: str
    rank: int = 0
    number: bool = False

    def width(self, cells: Sequence[str]) -> int:
        """Return the least number of characters that the column needs."""
        widest = max((len(line) for cell in cells for line in cell.split("\n")), default=0)
        return max(*map(len, self.name.split() or [""]), 0, widest if self.number else min(widest, _LEAST_TEXT))


def texts(*names: str, rank: int = 0) -> list[Heading]:
    """Return headings of text columns."""
    return [Heading(name, rank) for name in names]


def numbers(*names: str, rank: int = 0) -> list[Heading]:
    """Return headings of columns with numbers, or with text that must not be wrapped."""
    return [Heading(name, rank, number=True) for name in names]


def at_counts(counts: list[int]) -> list[Heading]:
    """Return headings of columns with times in microseconds, one per thread count; the count 0 stands for a GPU."""
    return numbers(*("us" if not count else f"us, {threads_text(count)}" for count in counts))


def screen(*, stderr: bool = False) -> Console:
    """Return the console for standard output or error; if the stream is not a terminal, lines have 120 characters."""
    from rich.console import Console

    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(width=None if terminal else _WITHOUT_TERMINAL, highlight=False, stderr=stderr)


def print_line(console: Console, text: str) -> None:
    """Print lines of text; on a terminal, wrap them between words.

    Items of a list are wrapped with an indent. Indented lines are commands, which are never wrapped, so that they can
    be copied.
    """
    if console.is_terminal:
        text = "\n".join(line if line.startswith(" ") else _wrapped(line, console.width) for line in text.split("\n"))
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _wrapped(line: str, width: int) -> str:
    indent = "  " if line.startswith("- ") else ""
    return textwrap.fill(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def show_table(
    console: Console,
    title: str,
    headings: Sequence[Heading],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str | None] = (),
) -> None:
    """Print a table. Columns that do not fit are named below the table; empty columns of a rank above 0 are left out.

    Args:
        headings: the columns.
        rows: cells of each row, in the order of the columns.
        styles: colour of each row; None or an empty text: no colour.
    """
    from rich.table import Column, Table
    from rich.text import Text

    cells = {place: [row[place] for row in rows] for place in range(len(headings))}
    filled = [place for place, one in enumerate(headings) if not (one.rank and _EMPTY.issuperset(cells[place]))]
    alike = {place: cells[place][0] for place in filled if len(rows) > 1 and len(set(cells[place])) == 1}
    ranks = {
        place: headings[place].rank + (_ALIKE if place in alike and headings[place].rank else 0) for place in filled
    }
    kept = fitting({place: headings[place].width(cells[place]) for place in filled}, ranks, console.width)
    columns = []
    for place in kept:
        one = headings[place]
        fixed = one.width(cells[place]) if one.number else None
        columns.append(Column(one.name, justify="right" if one.number else "left", width=fixed, overflow="fold"))
    table = Table(*columns, title=Text(title), title_justify="left")
    for row, style in zip(rows, styles or [None] * len(rows), strict=True):
        table.add_row(*(Text(row[place]) for place in kept), style=style)
    console.print(table)
    left = [place for place in filled if place not in kept]
    if left:
        names = (headings[place].name + (f" ({alike[place]} in all rows)" if place in alike else "") for place in left)
        print_line(console, f"a wider terminal also shows: {'; '.join(names)}")


def fitting(widths: dict[int, int], ranks: dict[int, int], width: int) -> list[int]:
    """Return the positions of the columns that fit into a line.

    Args:
        widths: characters that each column needs, by position.
        ranks: `Heading.rank` of each column, by position.
        width: number of characters of the line.
    """
    kept = sorted(widths)
    while sum(widths[place] + 3 for place in kept) + 1 > width and any(ranks[place] for place in kept):
        kept.remove(max(kept, key=lambda place: (ranks[place], place)))
    return kept
