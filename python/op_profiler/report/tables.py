"""What tables on the screen share."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column


def screen() -> Console:
    """Standard output; where that is no terminal, lines are as long as on a wide one."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 150)


def numbers(*names: str) -> list[Column]:
    """Columns whose cells stand to the right."""
    from rich.table import Column

    return [Column(name, justify="right") for name in names]


def at_counts(counts: list[int]) -> list[Column]:
    """Columns of times, one a thread count; a GPU has none."""
    return numbers(*(f"us, {count} thr" if count else "us" for count in counts))
