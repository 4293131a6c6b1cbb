"""Times, rates and sizes as text with units."""

from __future__ import annotations

import math

_TIMES = (("s", 1e6), ("ms", 1e3), ("us", 1.0), ("ns", 1e-3))
_UNKNOWN_DIGITS = 3
_MOST_DECIMALS = 3  # of microseconds: clocks count nanoseconds


def time_text(us: float) -> str:
    """Return a time with three digits and a suitable unit: ``27.3 ms``."""
    unit, scale = next(((u, s) for u, s in _TIMES if abs(us) >= s), _TIMES[-1])
    return f"{_three_digits(us / scale)} {unit}"


def us_text(us: float | None, half_width_us: float | None = None) -> str:
    """Return microseconds without a unit, rounded to the digits that the interval of the time supports.

    The last digit is the second significant digit of the half width: 44028.6 with a half width of 1233 is ``44000``,
    and with a half width of 3.1 it is ``44028.6``. If the half width is unknown or zero, the time has at least three
    significant digits, and all digits before the point.

    Args:
        us: None or not finite: there is no time, and the text is ``-``.
        half_width_us: half of the width of the interval of `us`.
    """
    if us is None or not math.isfinite(us):
        return "-"
    first = _power_of_ten(us)
    if half_width_us is None or not math.isfinite(half_width_us) or half_width_us <= 0:
        digits = max(0, _UNKNOWN_DIGITS - 1 - first)
    else:
        digits = max(1 - _power_of_ten(half_width_us), -first)
    digits = min(digits, _MOST_DECIMALS)
    return f"{round(us, digits):.{max(0, digits)}f}"


def half_width(low: float | None, high: float | None) -> float | None:
    """Return half of the width of an interval; None if an end is unknown."""
    return None if low is None or high is None else (high - low) / 2


def _power_of_ten(value: float) -> int:
    """Return the power of ten of the first significant digit of a number; 0 for the number 0."""
    return math.floor(math.log10(abs(value))) if value else 0


def rate_text(per_us: float, unit: str) -> str:
    """Return a rate as text per second, such as ``27.3 GFLOP/s``.

    Args:
        per_us: FLOP or bytes per microsecond.
        unit: unit without a prefix, such as ``FLOP``.
    """
    scale, prefix = (1e6, "T") if per_us >= 1e6 else (1e3, "G") if per_us >= 1e3 else (1.0, "M")
    return f"{_three_digits(per_us / scale)} {prefix}{unit}/s"


def amount_text(count: float, unit: str) -> str:
    """Return an amount of `unit` as text with three digits and a decimal prefix."""
    scale, prefix = next(((s, p) for s, p in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= s), (1.0, ""))
    return f"{_three_digits(count / scale)} {prefix}{unit}"


def _three_digits(value: float) -> str:
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f}"
