"""Reports the processes that use this machine's processor before a measurement begins."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection

import psutil

from op_profiler.child_processes import COMMAND, public_command
from op_profiler.measure.load import MINIMUM_SECONDS, CoreMeter

_SECONDS = 0.4
"""Duration of the second reading, seconds, after which processes are named. The first reading is shorter; on a quiet
machine there is no second reading."""
_MOST_NAMED = 3
_LEAST_SHARE = 0.05
"""A process is named if it uses at least this share of a core."""


def report_background_load(cores: Collection[int], say: Callable[[str], None]) -> None:
    """Report which processes would disturb a measurement on these cores of this machine.

    Args:
        cores: numbers of the cores.
        say: called with a message if the background load is high enough to disturb; otherwise, and if only processes
            of the same command use the processor, which never measure beside each other, not called.
    """
    meter = CoreMeter(cores)
    if not _disturbed(meter, MINIMUM_SECONDS):
        return
    before = _seconds_of_processes()
    if not _disturbed(meter, _SECONDS):
        return
    after = _seconds_of_processes()
    shares = {process: (after[process] - before[process]) / _SECONDS for process in before.keys() & after.keys()}
    busiest = sorted((one for one in shares if shares[one] >= _LEAST_SHARE), key=lambda one: -shares[one])
    others = [one for one in busiest if not _works_for_this_command(one[0])]
    if busiest and not others:
        return
    named = [f"{name} (process {number}) uses {shares[number, name]:.0%} of a core" for number, name in others]
    who = ", ".join(named[:_MOST_NAMED]) or "no process that can be seen here, so another container or virtual machine"
    say(f"the processor is busy: {who}; disturbed times are measured again for a while, then marked")


def _disturbed(meter: CoreMeter, seconds: float) -> bool:
    time.sleep(seconds)
    load = meter.read()
    return load is not None and load.disturbs


def _works_for_this_command(number: int) -> bool:
    """Return whether a process works for the same command of the user: its environment names the command, or this
    process is a worker of the command, and the other process is the command's or one of its children."""
    command = public_command()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(number)
        if process.environ().get(COMMAND) == command:
            return True
        is_worker = not command.startswith(f"process {os.getpid()} ")
        return is_worker and any(command.startswith(f"process {one.pid} ") for one in (process, *process.parents()))
    return False


def _seconds_of_processes() -> dict[tuple[int, str], float]:
    """Return the processor time so far, in seconds, of all processes except this one, by process number and name."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # the process has ended, or belongs to another user
            times = process.cpu_times()
            found[process.pid, process.name()] = times.user + times.system
    return {key: seconds for key, seconds in found.items() if key[0] != os.getpid()}
