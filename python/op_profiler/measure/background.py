"""What keeps this machine's processor busy before anything is measured on it."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection

import psutil

from op_profiler.measure.load import MINIMUM_SECONDS, CoreMeter

_SECONDS = 0.4
"""Of the second look, which names processes: the first one, of a quiet machine, costs less."""
_MOST_NAMED = 3
_LEAST_SHARE = 0.05
"""Of a core, that a process uses to be named."""


def tell_background(cores: Collection[int], say: Callable[[str], None]) -> None:
    """Say which processes disturb what is about to be measured on cores of this machine; nothing where none does."""
    meter = CoreMeter(cores)
    if not _disturbed(meter, MINIMUM_SECONDS):
        return
    before = _seconds_of_processes()
    if not _disturbed(meter, _SECONDS):
        return
    after = _seconds_of_processes()
    shares = {process: (after[process] - before[process]) / _SECONDS for process in before.keys() & after.keys()}
    busiest = sorted((one for one in shares if shares[one] >= _LEAST_SHARE), key=lambda one: -shares[one])
    named = [f"{name} (process {number}) uses {shares[number, name]:.0%} of a core" for number, name in busiest]
    who = ", ".join(named[:_MOST_NAMED]) or "no process that can be seen here, so another container or virtual machine"
    say(f"the processor is busy: {who}; disturbed times are measured again for a while, then marked")


def _disturbed(meter: CoreMeter, seconds: float) -> bool:
    time.sleep(seconds)
    load = meter.read()
    return load is not None and load.disturbs


def _seconds_of_processes() -> dict[tuple[int, str], float]:
    """Processor time so far of all processes but this one, by number and name."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # it ended, or is another user's
            times = process.cpu_times()
            found[process.pid, process.name()] = times.user + times.system
    return {key: seconds for key, seconds in found.items() if key[0] != os.getpid()}
