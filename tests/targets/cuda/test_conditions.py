"""What a GPU tells of its state, from NVML's answers to what a user reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from op_profiler.measure.conditions import ConditionsOfWindow
from op_profiler.measure.measurement import LAUNCH_GAP_METHOD, Measurement, ModelTiming
from op_profiler.targets.cuda.management import Nvml


class NVMLError(Exception):
    """In place of `pynvml.NVMLError`."""


def nvml(answers: dict[str, Any]) -> Nvml:
    """One whose library answers this, and refuses everything else."""

    def refuse(*_: object) -> None:
        raise NVMLError

    names: dict[str, Any] = {
        f"nvmlDeviceGet{name}": lambda *_, answer=answer: answer for name, answer in answers.items()
    }
    for name in ("ClockInfo", "Temperature", "PowerUsage", "CurrentClocksEventReasons"):
        names.setdefault(f"nvmlDeviceGet{name}", refuse)
    found = Nvml.__new__(Nvml)
    found._handle = object()
    constants = {"NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0}
    found._library = SimpleNamespace(NVMLError=NVMLError, **constants, **names)
    return found


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0, []),
        (0x1 | 0x2, []),
        (0x4, ["power cap"]),
        (0x1 | 0x20 | 0x40, ["slowdown by heat", "slowdown by heat, in hardware"]),
    ],
)
def test_an_idle_gpu_and_clocks_that_were_asked_for_hold_nothing_back(bits: int, reasons: list[str]) -> None:
    answers = {"ClockInfo": 1980, "Temperature": 41, "PowerUsage": 178273, "CurrentClocksEventReasons": bits}
    assert nvml(answers).conditions() == {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 1980,
        "temperature_c": 41,
        "power_w": 178.273,
        "held_back_by": reasons,
    }


def test_what_is_not_told_is_left_out() -> None:
    assert nvml({"Temperature": 41}).conditions() == {"temperature_c": 41}
    silent = nvml({})
    silent._handle = None
    assert silent.conditions() is None


def test_a_clock_that_changes_within_a_window_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read once behind a window, a clock that was held back in its middle was stored as the full one."""
    seconds = iter(0.03 * number for number in range(100))
    monkeypatch.setattr("time.monotonic", lambda: next(seconds))
    clocks = iter([1980, 1980, 345, 1980])
    answers: list[dict[str, Any]] = []

    def ask() -> dict[str, Any]:
        clock = next(clocks)
        answers.append({"sm_clock_mhz": clock, "held_back_by": ["power cap"] if clock < 1980 else []})
        return answers[-1]

    window = ConditionsOfWindow(ask)
    while len(answers) < 4:
        window.read()
    (found,) = window.result()
    assert found == {
        "sm_clock_mhz": 1980,
        "sm_clock_mhz_low": 345,
        "sm_clock_mhz_high": 1980,
        "held_back_by": ["power cap"],
    }
    assert ConditionsOfWindow(lambda: None).result() == []


def test_a_timing_tells_what_held_any_window_back() -> None:
    windows = [{"held_back_by": []}, {"held_back_by": ["power cap"]}, {}]
    timing = ModelTiming(
        whole_model=Measurement(median_us=10.0),
        before_us=None,
        after_us=None,
        sum_of_operators_us=7.0,
        details={
            **{"conditions_windows": windows, "reused_operators": 0},
            **{"launch_gap_us": 2.5, "launch_gap_method": LAUNCH_GAP_METHOD},
        },
    )
    assert timing.held_back_by == ("power cap",)
    assert timing.ratio == pytest.approx(0.95)
