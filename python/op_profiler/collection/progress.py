"""Where a collection says what it is doing."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Protocol


class Progress(Protocol):
    """Is told of models, of steps in one, and of what a user should know."""

    def start(self, models: int) -> None: ...
    def step(self, description: str, done_models: float) -> None: ...
    def stop(self) -> None: ...
    def note(self, text: str) -> None: ...
    def problem(self, text: str) -> None: ...


@contextlib.contextmanager
def shown(progress: Progress, models: int) -> Iterator[None]:
    """Show how far so many models are while the block runs."""
    progress.start(models)
    try:
        yield
    finally:
        progress.stop()
