"""Reads the files of ``--cluster slurm:FILE`` and ``--cluster kubernetes:FILE``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from op_profiler.errors import UsageError


def read(kind: str, path: Path, example: str) -> dict[str, Any]:
    """Return the settings in a YAML file, by name.

    Args:
        kind: kind of the cluster, for messages.
        example: an example of the contents, for messages.

    Raises:
        UsageError: the file cannot be read, or is not a YAML mapping of names to values.
    """
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"--cluster {kind}:{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise UsageError(f"{path} is no YAML of names and values, such as: {example}")
    return found


def take_count(found: dict[str, Any], name: str, path: Path) -> int:
    """Remove an integer from the settings of a file, and return it; 1 if the settings lack the name.

    Args:
        found: settings, which are changed in place.
        path: path of the file, for messages.

    Raises:
        UsageError: the value is not a positive integer.
    """
    count = found.pop(name, 1)
    if not isinstance(count, int) or count < 1:
        raise UsageError(f"{path}: {name} is {count!r}; give how many there shall be, 1 or more")
    return count
