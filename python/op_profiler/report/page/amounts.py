"""Times, rates and sizes as text with units."""

from __future__ import annotations

_TIMES = (("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")


def time_text(us: float) -> str:
    """Return a time with three digits and a suitable unit: ``27.3 ms``."""
    unit, scale = next(((u, s) for u, s in _TIMES if abs(us) >= s), _TIMES[-1])
    return f"{_three_digits(us / scale)} {unit}"


def size_text(count: float) -> str:
    """Return a size with a binary prefix."""
    power = 0
    while abs(count) >= 1024 and power < len(_SIZES) - 1:
        count /= 1024
        power += 1
    return f"{count:.4g} {_SIZES[power]}"


def rate_text(per_us: float, unit: str) -> str:
    """Return a rate per microsecond (FLOP or bytes) as a rate per second."""
    scale, prefix = (1e6, "T") if per_us >= 1e6 else (1e3, "G") if per_us >= 1e3 else (1.0, "M")
    return f"{_three_digits(per_us / scale)} {prefix}{unit}/s"


def amount_text(count: float, unit: str) -> str:
    """Return an amount with a decimal prefix."""
    scale, prefix = next(((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= s), (1.0, ""))
    return f"{_three_digits(count / scale)} {prefix}{unit}"


def _three_digits(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"
