"""Tables that fit the width of the terminal."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_WITHOUT_TERMINAL = 120
_LEAST_TEXT = 24
"""Characters that a line of a long text has at least."""
_EMPTY = frozenset({"", "-"})
_ALIKE = 100
"""Added to the rank of a column of which all rows say the same."""


@dataclasses.dataclass(frozen=True)
class Heading:
    """A column of a table on a terminal.

    Attributes:
        name: its words may stand below each other.
        rank: 0 is always shown; of the others the highest is left out first where the terminal is too narrow.
        number: stands to the right and in one line. A text is wrapped where it has to be.
    """

    name: str
    rank: int = 0
    number: bool = False

    def width(self, cells: Sequence[str]) -> int:
        """Characters that it takes at least."""
        widest = max(map(len, cells), default=0)
        return max(*map(len, self.name.split() or [""]), 0, widest if self.number else min(widest, _LEAST_TEXT))


def texts(*names: str, rank: int = 0) -> list[Heading]:
    """Columns of words."""
    return [Heading(name, rank) for name in names]


def numbers(*names: str, rank: int = 0) -> list[Heading]:
    """Columns of numbers, and of what else has to stay in one line."""
    return [Heading(name, rank, number=True) for name in names]


def at_counts(counts: list[int]) -> list[Heading]:
    """Columns of times, one a thread count; a GPU has none."""
    return numbers(*("us" if not count else f"us, {threads_text(count)}" for count in counts))


def threads_text(count: int) -> str:
    """``1 thread`` and ``2 threads``."""
    return f"{count} thread" if count == 1 else f"{count} threads"


def screen() -> Console:
    """Standard output; where that is no terminal, lines are of 120 characters."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else _WITHOUT_TERMINAL, highlight=False)


def print_line(console: Console, text: str) -> None:
    """Print a line as it is; on a terminal it is wrapped between words."""
    console.print(text, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def show_table(
    console: Console,
    title: str,
    headings: Sequence[Heading],
    rows: Sequence[Sequence[str]],
    styles: Sequence[str | None] = (),
) -> None:
    """Print a table. Columns for which there is no room are named below it; those in which nothing stands are left out.

    Args:
        styles: colours of the rows; none where it is empty.
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
    """The places of the columns for which a terminal of so many characters has room."""
    kept = sorted(widths)
    while sum(widths[place] + 3 for place in kept) + 1 > width and any(ranks[place] for place in kept):
        kept.remove(max(kept, key=lambda place: (ranks[place], place)))
    return kept
