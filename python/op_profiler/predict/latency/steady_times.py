"""Times at the usual state of the machine, from times in the state in which they were taken."""

from __future__ import annotations

import dataclasses

import numpy as np

from op_profiler.predict.latency.examples import Examples
from op_profiler.predict.latency.features import transcendental_work
from op_profiler.predict.latency.roofline import Roofline, Work

FARTHEST = 1.4
_FEWEST_RUNS = 8
"""Fewer runs at a thread count do not tell what is usual; they stay as they are."""
_FEWEST_REPEATED = 200
_FARTHEST_REPEATED = 0.5
"""Times of an operator that are further from their mean, on a logarithmic scale, are so for another reason."""
_USUAL_PART = 0.5
"""Of what the probe says, where too few operators were measured in several runs to tell."""


def steady(examples: Examples) -> Examples:
    """The same measurements, as they would have been taken while the steadiness probe shows its median.

    The probe's two kernels (`op_profiler.measure.steadiness`) say how much slower arithmetic and memory were than usual
    at that thread count, among runs whose probe read as much. An operator slows down by a part of the mean of the two,
    on a logarithmic scale, weighted by what it waits for according to its roofline; a whole model by the mean of its
    operators. How large that part is, operators tell that were measured in several runs: a reading of the probe is of
    a moment, and taken for the whole run it would bring in more than it takes out. Runs without a steadiness probe
    stay as they are.

    Where a kernel of the probe was more than `FARTHEST` times off, the machine did something that no factor describes
    (two threads on one core, for instance); such measurements are left out and counted.

    Returns:
        Examples without a steadiness probe: asking again changes nothing.
    """
    known = np.isfinite(examples.gauge_us).all(axis=1)
    if not known.any():
        return examples
    slower = np.zeros_like(examples.gauge_us)
    comparable = np.stack([examples.device, examples.threads, examples.gauge_bytes], axis=1)
    for group in np.unique(comparable, axis=0):
        mine = known & (comparable == group).all(axis=1)
        _, first = np.unique(examples.model[mine], return_index=True)
        if len(first) >= _FEWEST_RUNS:
            usual = np.median(examples.gauge_us[mine][first], axis=0)
            slower[mine] = np.log(examples.gauge_us[mine] / usual)
    usual_state = (np.abs(slower) <= np.log(FARTHEST)).all(axis=1)
    expected = (slower * _shares(examples)).sum(axis=1)
    factor = np.exp(_part(examples.where(usual_state & known), expected[usual_state & known]) * expected)
    count = int((~usual_state).sum())
    found = dataclasses.replace(
        examples,
        latency_us=examples.latency_us / factor,
        whole_model_us=examples.whole_model_us / _of_models(examples, factor),
        gauge_us=np.full_like(examples.gauge_us, np.nan),
        left_out=examples.left_out | ({"the machine was in an unusual state": count} if count else {}),
    )
    return found.where(usual_state)


def _part(examples: Examples, expected: np.ndarray) -> float:
    """How much of what the probe says operators slow down by, 0 to 1: least squares over the times of one operator at
    one thread count around their mean.

    Args:
        expected: by how much each entry should be slower, on a logarithmic scale.
    """
    _, group = np.unique(np.stack([examples.operator, examples.threads]), axis=1, return_inverse=True)
    group = group.ravel()
    counts = np.bincount(group)
    several = counts[group] > 1
    if several.sum() < _FEWEST_REPEATED:
        return _USUAL_PART

    def around_mean(values: np.ndarray) -> np.ndarray:
        return np.asarray((values - (np.bincount(group, values) / counts)[group])[several])

    said, found = around_mean(expected), around_mean(np.log(examples.latency_us))
    near = np.abs(found) < _FARTHEST_REPEATED
    return float(np.clip((said[near] * found[near]).sum() / max((said[near] ** 2).sum(), 1e-12), 0.0, 1.0))


def _shares(examples: Examples) -> np.ndarray:
    """How much each operator waits for arithmetic and for memory, shape (entries, 2); rows sum to 1."""
    amounts = [(o.flops, o.bytes_read + o.bytes_written, transcendental_work(o)) for o in examples.operators]
    work = Work(*np.array(amounts, dtype=np.float64)[examples.operator].T)
    parts = Roofline.of(work, examples.threads, examples.latency_us).parts_us(work, examples.threads)
    both = np.stack([parts[:, 0] + parts[:, 2], parts[:, 1]], axis=1)
    shares: np.ndarray = both / np.maximum(both.sum(axis=1, keepdims=True), 1e-12)
    return shares


def _of_models(examples: Examples, factor: np.ndarray) -> np.ndarray:
    """The factor of the model of each entry at its thread count: its operators' by their part of the time."""
    _, group = np.unique(np.stack([examples.model, examples.threads]), axis=1, return_inverse=True)
    group = group.ravel()
    time = examples.latency_us * examples.occurrences
    total = np.bincount(group, time) / np.bincount(group, time / factor)
    return np.asarray(total[group])
