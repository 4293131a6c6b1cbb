"""What a command is doing while it takes longer than two seconds."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def status(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Gives a function that is told what is being done: a spinner with that text where stderr is a terminal, a line for
    each elsewhere, nothing with `quiet`."""
    if quiet:
        yield lambda text: None
    elif sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("starting") as spinner:
            yield spinner.update
    else:
        yield lambda text: print(f"note: {text}", file=sys.stderr)
