"""Times are rounded to the digits that their intervals support."""

from __future__ import annotations

import math

import pytest

from op_profiler.report.page.amounts import half_width, us_text


@pytest.mark.parametrize(
    ("us", "half_us", "text"),
    [
        (44028.6, 1232.8, "44000"),
        (44028.6, 95.0, "44029"),
        (44028.6, 3.1, "44028.6"),
        (5430.44, 0.26, "5430.44"),
        (1698.3, 14.0, "1698"),
        (9.96, 0.5, "9.96"),
        (0.01234, 0.0021, "0.012"),
    ],
)
def test_the_last_digit_is_the_second_one_of_the_half_width(us: float, half_us: float, text: str) -> None:
    assert us_text(us, half_us) == text


@pytest.mark.parametrize("half_us", [None, 0.0, math.nan, math.inf])
@pytest.mark.parametrize(
    ("us", "text"),
    [
        (44028.6, "44029"),
        (123.46, "123"),
        (12.345, "12.3"),
        (1.2345, "1.23"),
        (0.12345, "0.123"),
        (0.0, "0.00"),
        (-12.345, "-12.3"),
        (3.2e12, "3200000000000"),
    ],
)
def test_without_an_interval_a_time_has_three_digits_or_more(us: float, text: str, half_us: float | None) -> None:
    assert us_text(us, half_us) == text


@pytest.mark.parametrize("us", [None, math.nan, math.inf, -math.inf])
def test_what_is_no_time_is_a_dash(us: float | None) -> None:
    assert us_text(us) == us_text(us, 1.0) == "-"


def test_tiny_half_widths_show_no_more_than_nanoseconds() -> None:
    assert us_text(12.3456789, 1e-9) == "12.346"
    assert us_text(0.0000012) == "0.000"


def test_huge_half_widths_leave_one_digit() -> None:
    assert us_text(44028.6, 1e9) == "40000"
    assert us_text(5.4, 1e9) == "5"
    assert us_text(0.0, 1e9) == "0"


def test_half_a_width_needs_both_ends() -> None:
    assert half_width(1.0, 4.0) == 1.5
    assert half_width(None, 4.0) is half_width(1.0, None) is None
