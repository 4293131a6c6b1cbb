"""Requirements of tasks and offers of machines as Dask resources, by which the scheduler assigns tasks to workers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names

Needs = dict[str, float]
"""Required or offered amounts of Dask resources, by name."""

_MEMORY = "GiB of memory"
_SIZE = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)\s*GiB", re.IGNORECASE)
_OTHER_SIZE = re.compile(r"[\d.]+[KMGT]i?B?", re.IGNORECASE)
_WORD = re.compile(r"[\w.+-]+")


def parse_needs(option: str, text: str) -> Needs:
    """Parse the requirements in ``--needs``.

    Args:
        option: name of the option, for messages.
        text: features of a processor (``avx512f``), words of its name (``EPYC``), and memory (``60GiB``), separated by
            commas.

    Raises:
        UsageError: a part is neither a word nor an amount of memory.
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
    """Return the resources that a machine offers: its memory, features, and the words of its processor's name."""
    words = {_has(word) for word in (*_WORD.findall(processor), *features)}
    return {_MEMORY: memory_bytes / 2**30, **dict.fromkeys(words, 1)}


def meets(offered: Mapping[str, float], needs: Needs) -> bool:
    """Return whether a worker with the resources `offered` meets the requirements `needs`."""
    return all(offered.get(name, 0) >= amount for name, amount in needs.items())


def needs_text(needs: Needs) -> str:
    """Return the requirements as text for users: ``measures llvm and has avx512f``."""
    memory = [f"has {amount:g} {name}" for name, amount in needs.items() if name == _MEMORY]
    return " and ".join([name for name in needs if name != _MEMORY] + memory)


def _has(word: str) -> str:
    return f"has {word.lower()}"
