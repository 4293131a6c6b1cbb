"""`Status`: the current step of a slow command on stderr, so that stdout has results only."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Status:
    """A line with the step and the time since the start on a terminal, plain notes elsewhere, nothing when quiet.

    Args:
        steps: how many there will be, for a bar; None where that is not known.
    """

    def __init__(self, *, quiet: bool, steps: int | None = None) -> None:
        self._quiet = quiet
        self._steps = steps
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Status:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            bar = [] if self._steps is None else [BarColumn(bar_width=30)]
            columns = (SpinnerColumn(), TextColumn("{task.description}"), *bar, TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def step(self, text: str) -> None:
        """The step that begins now; the one before it is over."""
        if self._progress is not None:
            if self._task is None:
                self._task = self._progress.add_task(text, total=self._steps)
            else:
                self._progress.update(self._task, description=text, advance=1)
        elif not self._quiet:
            print(f"note: {text}", file=sys.stderr)
