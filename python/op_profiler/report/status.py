"""`Status`: the current step of a slow command on stderr; stdout contains only results."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

from op_profiler.report.tables import print_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


def progress_line(*, bar: bool, refresh_per_second: float = 10) -> Progress:
    """Return a progress line on stderr with the current step and the elapsed time.

    If the terminal is too narrow, the text of the step is shortened, never the times.

    Args:
        bar: whether to also show a bar and the time left.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from rich.text import Text

    class StepColumn(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.description, no_wrap=True, overflow="ellipsis")

    def whole() -> Column:
        return Column(no_wrap=True)

    elapsed = [TextColumn("elapsed", table_column=whole()), TimeElapsedColumn(table_column=whole())]
    left = [TextColumn("left", table_column=whole()), TimeRemainingColumn(table_column=whole())]
    shown = [BarColumn(bar_width=30), TaskProgressColumn(table_column=whole()), *elapsed, *left]
    columns = [StepColumn(), *shown] if bar else [SpinnerColumn(table_column=whole()), StepColumn(), elapsed[1]]
    console = Console(stderr=True)
    return Progress(*columns, console=console, refresh_per_second=refresh_per_second, transient=True)


class Status:
    """Shows the current step and the time since the start, as a line on a terminal; elsewhere, prints each step as a
    note.

    Args:
        quiet: whether to print nothing.
        steps: number of steps, for a bar and the time left; None if unknown.
    """

    def __init__(self, *, quiet: bool, steps: int | None = None) -> None:
        self._quiet = quiet
        self._steps = steps
        self._begun = 0
        self._started = 0.0
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Status:
        self._started = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            self._progress = progress_line(bar=self._steps is not None)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, text: str) -> None:
        """Show the next step, and count the step before it as finished."""
        done, self._begun = self._begun, self._begun + 1
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task(text, total=self._steps)
            else:
                self._progress.update(self._task, description=text, advance=1)
        elif not self._quiet:
            print(f"note: {text}{self._left(done)}", file=sys.stderr)

    def note(self, text: str) -> None:
        """Print a note that stays on the screen."""
        if self._progress is not None:
            print_line(self._progress.console, f"note: {text}")
        elif not self._quiet:
            print(f"note: {text}", file=sys.stderr)

    def _left(self, done: int) -> str:
        """Return the position of the current step and the time left as text; empty if the number of steps is unknown.

        Args:
            done: number of finished steps.
        """
        if self._steps is None or self._steps < 2:
            return ""
        place = f" (step {done + 1} of {self._steps}"
        if not done:
            return f"{place})"
        seconds = (time.monotonic() - self._started) / done * (self._steps - done)
        return f"{place}, about {seconds:.0f} s left)"
