"""Offers of machines and requirements of tasks as Dask's resources, by which the scheduler assigns tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names

Needs = dict[str, float]
"""Amounts of Dask's resources by name."""

_MEMORY = "GiB of memory"
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*GiB", re.IGNORECASE)
_OTHER_SIZE = re.compile(r"[\d.]+[KMGT]i?B?", re.IGNORECASE)
_WORD = re.compile(r"[\w.+-]+")


def parse_needs(option: str, text: str) -> Needs:
    """Return the requirements in ``--needs``.

    Args:
        text: features of a processor (``avx512f``), words of its name (``EPYC``), and memory (``60GiB``), separated by
            commas.

    Raises:
        UsageError: a part is none of these.
    """
    needs: Needs = {}
    for word in parse_names(option, text):
        if size := _SIZE.fullmatch(word):
            needs[_MEMORY] = float(size[1])
        elif _WORD.fullmatch(word) and not _OTHER_SIZE.fullmatch(word):
            needs[_has(word)] = 1
        else:
            raise UsageError(
                f"{option} {word!r}: give features of a processor, words of its name, or memory: avx512f,EPYC,60GiB"
            )
    return needs


def offers(processor: str, features: Sequence[str], memory_bytes: int) -> Needs:
    """Return everything that a task can require of a machine, as resources."""
    words = {_has(word) for word in (*_WORD.findall(processor), *features)}
    return {_MEMORY: memory_bytes / 2**30, **dict.fromkeys(words, 1)}


def meets(offered: Mapping[str, float], needs: Needs) -> bool:
    """Return whether a worker with these resources meets the requirements."""
    return all(offered.get(name, 0) >= amount for name, amount in needs.items())


def needs_text(needs: Needs) -> str:
    """Return the requirements as text for users: ``measures llvm and has avx512f``."""
    memory = [f"has {amount:g} {name}" for name, amount in needs.items() if name == _MEMORY]
    return " and ".join([name for name in needs if name != _MEMORY] + memory)


def _has(word: str) -> str:
    return f"has {word.lower()}"
