"""Parsers of option values; each receives the option, for its error message, and the text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import TypeVar

from op_profiler.errors import UsageError

T = TypeVar("T")

_TRUE = {"true", "yes", "1"}
_FALSE = {"false", "no", "0"}
_MOST_DIGITS = 9  # of a size: more is no tensor and no machine
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def parse_bool(option: str, text: str) -> bool:
    """Parse true/false/yes/no/1/0 in any case.

    Raises:
        UsageError: the text is anything else.
    """
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise UsageError(f"{option} takes true or false (also yes, no, 1, 0), not {text!r}")


def parse_counts(option: str, text: str) -> tuple[int, ...]:
    """Parse positive integers that are separated by commas or blanks; return them without repetitions, ascending.

    Raises:
        UsageError: the text contains no number, or anything other than positive integers.
    """
    words = [word for word in re.split(r"[,\s]+", text.strip()) if word]
    if not words or not all(re.fullmatch(rf"-?\d{{1,{_MOST_DIGITS}}}", word, re.ASCII) for word in words):
        raise UsageError(f"{option} takes numbers separated by commas, such as 1,2,4; not {text!r}")
    counts = sorted({int(word) for word in words})
    if counts[0] < 1:
        raise UsageError(f"{option} {counts[0]} is out of range; give 1 or more")
    return tuple(counts)


def parse_shapes(option: str, text: str) -> tuple[tuple[int, ...], ...]:
    """Parse shapes that are separated by semicolons; sizes are separated by commas, blanks or x.

    Brackets are optional: ``1,3,224,224``, ``[1, 3, 224, 224]``, ``1x3x224x224`` and ``1,128;1,128`` (two inputs) are
    all valid; an empty text, ``()`` and ``[]`` are scalars.

    Raises:
        UsageError: a size is not a positive integer.
    """
    shapes = []
    for part in text.split(";"):
        words = [word for word in re.split(r"[,\sx]+", part.strip().strip("[]()").strip()) if word]
        empty = not words and re.fullmatch(r"\s*(\[\s*\]|\(\s*\)|)\s*", part) is None  # such as a comma alone
        if empty or not all(re.fullmatch(rf"0*[1-9]\d{{0,{_MOST_DIGITS - 1}}}", w, re.ASCII) for w in words):
            raise UsageError(
                f"{option} takes sizes such as 1,3,224,224 (a semicolon between inputs, nothing for a scalar); "
                f"not {text!r}"
            )
        shapes.append(tuple(int(word) for word in words))
    return tuple(shapes)


def parse_input_shapes(option: str, text: str) -> tuple[tuple[int, ...], ...] | dict[str, tuple[int, ...]]:
    """Parse shapes of inputs as `parse_shapes` does; return a dict if each shape has a name: ``a:1,64;b:``.

    Raises:
        UsageError: a shape cannot be parsed, or only some shapes have a name.
    """
    parts = [part.rpartition(":") for part in text.split(";")] if text else []
    names = [name.strip() for name, colon, _ in parts if colon]
    if names and (len(names) < len(parts) or not all(names)):
        raise UsageError(f"{option} {text!r}: give every shape a name, as in a:1,64;b:")
    sizes = parse_shapes(option, ";".join(size for _, _, size in parts)) if parts else ()
    return dict(zip(names, sizes, strict=True)) if names else sizes


def threads_text(*counts: int) -> str:
    """Return thread counts with their noun: ``1 thread``, ``1 and 2 threads``."""
    return f"{' and '.join(map(str, counts))} thread{'s' if counts != (1,) else ''}"


def several(count: int, what: str) -> str:
    """Return a count with its noun: ``1 call``, ``2 calls``."""
    return f"{count} {what}" if count == 1 else f"{count:,} {what}s"


def size_text(count: float) -> str:
    """Return a number of bytes as text with a binary prefix, such as ``1.5 MiB``."""
    power = 0
    while abs(count) >= 1024 and power < len(_SIZES) - 1:
        count /= 1024
        power += 1
    return f"{count:.4g} {_SIZES[power]}"


def parse_duration(option: str, text: str) -> float:
    """Parse 90s, 10m or 2h into seconds; a number without a unit is in seconds.

    Raises:
        UsageError: the text is anything else.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*([smh]?)", text.strip().lower(), re.ASCII)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{option} takes a time such as 90s, 10m or 2h; not {text!r}")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def parse_latency_us(option: str, text: str) -> float:
    """Parse ``5ms``, ``800us`` or ``1.5s`` into microseconds; an empty text is infinity.

    Raises:
        UsageError: the text is anything else.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(us|ms|s)", text.strip())
    if text and not found:
        raise UsageError(f"{option} takes a time such as 5ms, 800us or 1.5s, not {text!r}")
    return float(found[1]) * {"us": 1.0, "ms": 1e3, "s": 1e6}[found[2]] if found else math.inf


def parse_percent(option: str, text: str) -> float:
    """Parse 5% or 0.05 into a share.

    Raises:
        UsageError: the text is anything else, more than 1000 %, or more than 1 without a percent sign, which is
            ambiguous.
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)\s*(%?)", text.strip(), re.ASCII)
    share = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= share <= (10 if found and found[2] else 1):
        raise UsageError(
            f"{option} takes 5% or 0.05, and what is above 1 with a percent sign, up to 1000%; not {text!r}"
        )
    return share


def parse_limit(option: str, text: str) -> tuple[float, float]:
    """Parse a limit into a share and microseconds, one of them 0: ``5%`` into 0.05 and 0, ``2ms`` into 0 and 2000.

    Raises:
        UsageError: the text is anything else.
    """
    if re.search(r"\ds$|[um]s$", text.strip()):
        return 0.0, parse_latency_us(option, text)
    return parse_percent(option, text), 0.0


def parse_names(option: str, text: str) -> tuple[str, ...]:
    """Parse names that are separated by commas.

    Raises:
        UsageError: the text contains no name.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UsageError(f"{option} {text!r} names nothing; give names separated by commas, or leave it out")
    return names


def parse_tensors(option: str, text: str) -> tuple[tuple[tuple[int, ...], str], ...]:
    """Parse shapes as `parse_shapes` does, each with a dtype after a colon unless it is float32: ``1,64;1,64:int8``."""
    tensors = []
    for part in text.split(";"):
        sizes, _, dtype = part.partition(":")
        (shape,) = parse_shapes(option, sizes)
        tensors.append((shape, dtype.strip() or "float32"))
    return tuple(tensors)


def parse_trials_from(option: str, text: str) -> bool:
    """Return whether the trials that op_profiler includes are used: True for ``shipped``, False for ``none``.

    Raises:
        UsageError: the text is anything else.
    """
    if text not in ("shipped", "none"):
        raise UsageError(f"{option} {text!r}: give shipped or none")
    return text == "shipped"


def or_nothing(parse: Callable[[str, str], tuple[T, ...]]) -> Callable[[str, str], tuple[T, ...]]:
    """Return a parser that returns an empty tuple for an empty text, and otherwise calls `parse`."""
    return lambda option, text: parse(option, text) if text else ()
