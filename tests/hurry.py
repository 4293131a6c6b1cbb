"""How tests measure: they ask what is measured and stored, not how sure it is."""

from __future__ import annotations

import os
from pathlib import Path

HOOK = Path(__file__).with_name("hurried")
"""On the path of processes that tests start by themselves: their workers call `measure_in_a_hurry`."""


def hurried_path(*folders: Path) -> str:
    """A ``PYTHONPATH``: these folders and what is on it."""
    return os.pathsep.join([str(HOOK), *map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


def measure_in_a_hurry() -> None:
    """Rounds end with the fewest, in short windows; the machine's steadiness and its peaks are told from two pieces of
    memory, whatever its caches hold, and from a few calls. What the host does to the cores disturbs nothing, nor do
    rounds that lie apart."""
    from op_profiler.collection.session import Session
    from op_profiler.measure.host_state import HostState
    from op_profiler.measure.limits import Limits
    from op_profiler.measure.rounds import Rounds
    from op_profiler.targets.llvm import peaks, reference_kernels

    Limits.__init__.__kwdefaults__["window_seconds"] = 0.1  # type: ignore[index]
    Limits.reached = lambda self, rounds, seconds: rounds >= self.minimum_rounds  # type: ignore[method-assign]
    # Other tests run meanwhile: a window that ends before the meter can tell of them is not given the time.
    Rounds._load_of_window = lambda self: self._meter.read() if self._meter is not None else None  # type: ignore[method-assign]
    HostState.disturbs = lambda *_: False  # type: ignore[method-assign]
    HostState.stored_times = lambda *_: {}  # type: ignore[method-assign]
    Rounds._drop_disturbed = lambda *_: []  # type: ignore[method-assign]
    Rounds._repeats_reading = lambda *_: False  # type: ignore[method-assign]
    Session._is_unsteady = lambda *_: False  # type: ignore[method-assign]
    for module in map(vars, (reference_kernels, peaks)):
        assert "beyond_caches_bytes" in module
        module["beyond_caches_bytes"] = lambda wanted_bytes: 0
    peaks._best_us.__defaults__ = (0.0,)
    peaks._OF_CACHES_SECONDS = 0.0
