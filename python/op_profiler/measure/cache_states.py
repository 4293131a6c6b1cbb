"""Measures a model's heavy kernels in each cache state (in the model, hot, cold) and at each thread count.

All states alternate in one run, so that all times are from the same minutes of the machine.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np

from op_profiler.errors import OpProfilerError
from op_profiler.measure.measurement import Cache
from op_profiler.targets.machine import LoadedModel, Machine

_ROUNDS = 40
_FEWEST_ROUNDS = 7
_SECONDS = 20.0
_REPORT_SECONDS = 2.0
_CHOOSING_WALKS = 7
"""Number of walks whose minimum selects the heavy kernels; background load only adds time, so it affects the minimum
least."""


@dataclasses.dataclass(frozen=True)
class CacheStateTimes:
    """Times of kernels and of the whole model, microseconds.

    Attributes:
        kernels: times of kernels by cache state and thread count, shape (rounds, kernels); NaN for kernels that are not
            heavy.
        whole: times of the whole model by thread count, shape (rounds,).
        heavy: indices of the kernels that take most of the model's time.
        foreign_load: whether there was background load during the measurement; None if it cannot be read.
    """

    kernels: dict[tuple[Cache, int], np.ndarray]
    whole: dict[int, np.ndarray]
    heavy: list[int]
    foreign_load: bool | None


def time_cache_states(
    machine: Machine,
    model: LoadedModel,
    counts: Sequence[int],
    choose: Callable[[np.ndarray], list[int]],
    announce: Callable[[str], None],
) -> CacheStateTimes:
    """Measure heavy kernels and the whole model in all cache states, in rounds.

    Args:
        counts: thread counts; cold times are measured at the largest count only.
        choose: called with the time of every kernel in the model at the largest thread count, microseconds; returns the
            indices of the heavy kernels.
        announce: called with the progress, and with the reason if cold caches cannot be produced.
    """
    most = max(counts)
    overhead_us = _overhead_us(machine, model, most)
    walks = [_walk(machine, model, "model", most, None) for _ in range(_CHOOSING_WALKS)]
    heavy = choose(np.min(walks, axis=0) - overhead_us)
    timed = [number in heavy for number in range(len(model.labels))]
    states: list[tuple[Cache, int]] = [(state, n) for n in counts for state in ("model", "hot")]
    try:
        model.cache_mechanism("cold")
        states.append(("cold", most))
    except OpProfilerError as error:
        announce(str(error))
    found: dict[tuple[Cache, int], list[np.ndarray]] = {state: [] for state in states}
    whole: dict[int, list[float]] = {n: [] for n in counts}
    meter = machine.meter(most)
    started = reported = time.monotonic()
    while len(whole[most]) < _FEWEST_ROUNDS or (len(whole[most]) < _ROUNDS and time.monotonic() - started < _SECONDS):
        turn = len(whole[most])
        if time.monotonic() - reported > _REPORT_SECONDS:
            reported = time.monotonic()
            announce(f"measuring, round {turn + 1}")
        for place in range(len(states)):
            state, n = states[(turn + place) % len(states)]
            found[state, n].append(_walk(machine, model, state, n, timed) - overhead_us)
        for n in counts:
            machine.threads.use(n)
            model.run_model()
            whole[n].append(model.time_model())
    load = meter.read() if meter is not None else None
    return CacheStateTimes(
        {state: np.array(rows) for state, rows in found.items()},
        {n: np.array(times) for n, times in whole.items()},
        heavy,
        load.disturbs if load is not None else None,
    )


def _walk(machine: Machine, model: LoadedModel, state: Cache, threads: int, timed: list[bool] | None) -> np.ndarray:
    """Run the model once untimed, then walk over its kernels; return their times (NaN if not timed), microseconds.

    Args:
        timed: whether each kernel is timed; None: all kernels.
    """
    machine.threads.use(threads)
    model.run_model()
    return np.array(model.walk(state, timed or [True] * len(model.labels)))


def _overhead_us(machine: Machine, model: LoadedModel, threads: int) -> float:
    machine.threads.use(threads)
    model.run_model()
    return model.call_overhead_us() or 0.0
