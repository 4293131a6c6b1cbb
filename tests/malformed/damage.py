"""Damaged versions of valid files, the same in every run."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from typing import Any

VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 1.5, 10**30, -(10**30), 1e308, float("nan"), float("inf"), "", "nonsense", "é\u2028\u0000"),
    *(
        [],
        {},
        [[]],
        [None],
        {"a": []},
        "9" * 5000,
        [[["x"]]],
        "../../../etc/passwd",
        "__import__('os').system('false')",
    ),
)
_WORDS = (
    "-1",
    "0",
    "1e400",
    "nan",
    "inf",
    "9" * 400,
    "",
    "null",
    "[]",
    "{",
    '"',
    "'",
    "\x00",
    "é",
    "0x10",
    "1_000",
    ",,",
)


def flip(content: bytes, rng: random.Random) -> bytes:
    """A few bits turned over."""
    damaged = bytearray(content)
    for _ in range(rng.choice((1, 1, 3, 12))):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def cut(content: bytes, rng: random.Random) -> bytes:
    """Broken off."""
    return content[: rng.randrange(len(content))]


def zeros(content: bytes, rng: random.Random) -> bytes:
    """A hole, as a disk leaves it."""
    start = rng.randrange(len(content))
    length = rng.randrange(1, max(2, len(content) // 4))
    return content[:start] + bytes(min(length, len(content) - start)) + content[start + length :]


def insert(content: bytes, rng: random.Random) -> bytes:
    """Something else in between."""
    start = rng.randrange(len(content))
    return content[:start] + rng.randbytes(rng.randrange(1, 64)) + content[start:]


def swap(content: bytes, rng: random.Random) -> bytes:
    """Two parts in the wrong order."""
    first, second, third = sorted(rng.randrange(len(content)) for _ in range(3))
    return content[:first] + content[second:third] + content[first:second] + content[third:]


def word(content: bytes, rng: random.Random) -> bytes:
    """Text: a number or a name that is something else."""
    text = content.decode("utf-8", "replace")
    found = list(re.finditer(r"-?[\d.]+|[A-Za-z_]\w*", text))
    for one in sorted(rng.sample(found, min(len(found), rng.choice((1, 1, 3)))), key=lambda m: -m.start()):
        text = text[: one.start()] + rng.choice(_WORDS) + text[one.end() :]
    return text.encode("utf-8", "replace")


def value(content: bytes, rng: random.Random) -> bytes:
    """JSON, one value or one a line: a value, or a part of it, that is something else or is missing."""
    lines = content.decode().splitlines()
    try:
        json.loads(content)
        lines = [content.decode()]
    except ValueError:
        pass
    number = rng.randrange(len(lines))
    try:
        lines[number] = json.dumps(_changed(json.loads(lines[number]), rng))
    except ValueError:  # a line that is no JSON
        lines[number] = "[" * 100_000
    return "\n".join(lines).encode()


def _changed(found: Any, rng: random.Random) -> Any:
    places = list(_places(found))
    path = rng.choice(places) if places else ()
    if not path:
        return rng.choice(VALUES)
    *above, last = path
    parent = found
    for key in above:
        parent = parent[key]
    if rng.random() < 0.2:
        del parent[last]
    else:
        parent[last] = rng.choice(VALUES)
    return found


def _places(found: Any, path: tuple[Any, ...] = ()) -> Any:
    items = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from _places(inner, (*path, key))


Damage = Callable[[bytes, random.Random], bytes]
BYTES: tuple[Damage, ...] = (flip, cut, zeros, insert, swap)
TEXT: tuple[Damage, ...] = (*BYTES, word, word)
LINES: tuple[Damage, ...] = (*TEXT, value, value, value)


def damaged(content: bytes, kind: Damage, seed: int) -> bytes:
    return kind(content, random.Random(f"{kind.__name__} {seed}"))
