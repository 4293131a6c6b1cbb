"""Git revisions of op_profiler and of the user's current folder, stored with each run."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import op_profiler
from op_profiler.shipped import is_checkout

_PATIENCE_SECONDS = 10.0


@functools.cache
def project_revision() -> str:
    """Return the git revision of this package's checkout; the package's version if it does not run from a checkout."""
    found = _revision(Path(op_profiler.__file__).parent) if is_checkout() else None
    return found or op_profiler.__version__


@functools.cache
def user_revision() -> str | None:
    """Return the git revision of the current folder at the first call; None outside a git checkout."""
    return _revision(Path.cwd())


def _revision(folder: Path) -> str | None:
    """Return the commit of a checkout, with the suffix ``-dirty`` if a tracked file was changed; None without git."""
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=_PATIENCE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
