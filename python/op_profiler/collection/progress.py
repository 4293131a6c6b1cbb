"""`Progress`: the interface through which a running collection reports its progress."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """Displays the progress over the models of a collection, with the current step, notes and problems."""

    def start(self, models: int) -> None:
        """Begin the display for this number of models."""

    def step(self, description: str, done_models: float) -> None:
        """Show the current step, and the number of finished models, including the fraction of the current model."""

    def stop(self) -> None:
        """End the display."""

    def note(self, text: str) -> None:
        """Print a note that needs no action."""

    def problem(self, text: str) -> None:
        """Print an error, or information that helps to find the cause of an error."""


@contextlib.contextmanager
def shown(progress: Progress, models: int) -> Iterator[None]:
    """Start the display for this number of models, and end it when the block ends."""
    progress.start(models)
    try:
        yield
    finally:
        progress.stop()
