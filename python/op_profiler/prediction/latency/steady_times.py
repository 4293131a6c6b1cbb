"""Measured times, corrected to the reference state of the machine."""

from __future__ import annotations

import dataclasses

import numpy as np

from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.features import work_of
from op_profiler.prediction.latency.roofline import Roofline, Work

FARTHEST = 1.4
_MOST = 0.1
"""Largest correction, on a logarithmic scale: beyond it, the observations overstate how long a disturbance lasted."""
_FEWEST_RUNS = 8
"""With fewer runs at a thread count, the reference state is unknown and the times are not corrected."""
_FEWEST_REPEATED = 200
_FARTHEST_REPEATED = 0.5
"""Times of an operator that are further from their mean, on a logarithmic scale, have another cause and are ignored."""
_CACHED_BYTES = 1 << 20
"""If the operators of a model, each called once, move no more bytes, its data stays in a second-level cache."""
_USUAL_PARTS = (0.5, 0.5)
"""Applied parts of the two observations if too few operators were measured in several runs to fit them."""


def at_reference_state(examples: Examples) -> Examples:
    """Return the measurements corrected to the reference state of the machine.

    Two observations show the state of the machine during a run. First, the two reference kernels
    (`op_profiler.measure.steadiness`) show how much slower arithmetic and memory were than usual at that thread count,
    among runs whose reference kernel read the same amount of data. An operator is assumed to slow down by their mean on
    a logarithmic scale, weighted by what limits the operator according to its roofline. Second, the further the median
    of an operator's rounds lies above that of the quietest tenth (`Measurement.steady_us`), compared with what is
    usual, the more other programs disturbed it.

    Only a part of each observation is applied, because both are momentary, and applying them completely would add
    more error than it removes. The size of these parts is fitted to operators that were measured in several runs. No
    correction is larger than `_MOST`. The time of a whole model is corrected by the mean of its operators. Runs without
    these observations are not changed.

    If a reference kernel took more than `FARTHEST` times its usual time, no factor describes the disturbance (for
    example, two threads on one core); such measurements are removed and counted.

    Returns:
        Examples without the observations, so that a second correction changes nothing.
    """
    known = np.isfinite(examples.reference_us).all(axis=1)
    if not known.any() and not np.isfinite(examples.steady_us).any():
        return examples
    slower = np.zeros_like(examples.reference_us)
    comparable = np.stack([examples.device, examples.threads, examples.reference_bytes], axis=1)
    for group in np.unique(comparable, axis=0):
        mine = known & (comparable == group).all(axis=1)
        _, first = np.unique(examples.model[mine], return_index=True)
        if len(first) >= _FEWEST_RUNS:
            usual = np.median(examples.reference_us[mine][first], axis=0)
            slower[mine] = np.log(examples.reference_us[mine] / usual)
    usual_state = (np.abs(slower) <= np.log(FARTHEST)).all(axis=1)
    slowdowns = np.stack([(slower * _shares(examples)).sum(axis=1), _disturbed(examples)], axis=1)
    factor = np.ones(len(examples))
    for count in np.unique(examples.threads):
        mine = examples.threads == count
        parts = _parts(examples.where(mine & usual_state), slowdowns[mine & usual_state])
        factor[mine] = np.exp(np.clip(slowdowns[mine] @ parts, -_MOST, _MOST))
    left = int((~usual_state).sum())
    found = dataclasses.replace(
        examples,
        latency_us=examples.latency_us / factor,
        whole_model_us=examples.whole_model_us / _of_models(examples, factor),
        reference_us=np.full_like(examples.reference_us, np.nan),
        steady_us=np.full_like(examples.steady_us, np.nan),
        left_out=examples.left_out | ({"the machine was not in its reference state": left} if left else {}),
    )
    return found.where(usual_state)


def _disturbed(examples: Examples) -> np.ndarray:
    """Return how far an operator's median lies above its quiet rounds, on a logarithmic scale, relative to the usual
    ratio at its thread count.

    It is 0 if unknown, and for models in a second-level cache: their rounds are short, so a tenth of them is always
    much faster, while the median is the same hours later.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.log(examples.latency_us / examples.steady_us)
    found, comparable = np.zeros(len(examples)), np.isfinite(ratio) & ~_cached(examples)
    for count in np.unique(examples.threads):
        mine = (examples.threads == count) & comparable
        if mine.any():
            found[mine] = ratio[mine] - np.median(ratio[mine])
    return found


def _cached(examples: Examples) -> np.ndarray:
    """Return the mask of the entries whose model moves only data that stays in a second-level cache."""
    return np.asarray(examples.working_set_bytes <= _CACHED_BYTES)


def _parts(examples: Examples, slowdowns: np.ndarray) -> np.ndarray:
    """Return the part of each observation that is applied, 0 to 1, shape (2,).

    The parts are fitted by least squares to the times of each operator at one thread count around their mean.

    Args:
        slowdowns: slow-down of each entry according to each observation, on a logarithmic scale, shape (entries, 2).
    """
    from scipy.optimize import lsq_linear

    _, group = np.unique(np.stack([examples.operator, examples.threads]), axis=1, return_inverse=True)
    group = group.ravel()
    counts = np.bincount(group)
    several = counts[group] > 1
    if several.sum() < _FEWEST_REPEATED:
        return np.array(_USUAL_PARTS)

    def deviations(values: np.ndarray) -> np.ndarray:
        return np.asarray((values - (np.bincount(group, values) / counts)[group])[several])

    found = deviations(np.log(examples.latency_us))
    near = np.abs(found) < _FARTHEST_REPEATED
    signs = np.stack([deviations(one)[near] for one in slowdowns.T], axis=1)
    return np.asarray(lsq_linear(signs, found[near], bounds=(0.0, 1.0)).x)


def _shares(examples: Examples) -> np.ndarray:
    """Return the shares of arithmetic and memory in what limits each operator, shape (entries, 2); rows sum to 1.

    Data in a second-level cache does not depend on memory: a slow memory does not slow down networks of microseconds.
    """
    amounts = np.array([work_of(operator) for operator in examples.operators], dtype=np.float64)
    work = Work(*amounts[examples.operator].T)
    parts = Roofline.of(work, examples.threads, examples.latency_us).parts_us(work, examples.threads)
    in_memory = np.where(_cached(examples), 0.0, parts[:, 1])
    both = np.stack([parts[:, 0] + parts[:, 2], in_memory], axis=1)
    total = both.sum(axis=1, keepdims=True)
    shares: np.ndarray = np.divide(both, total, out=np.tile((1.0, 0.0), (len(both), 1)), where=total > 0)
    return shares


def _of_models(examples: Examples, factor: np.ndarray) -> np.ndarray:
    """Return for each entry the factor of its model at its thread count, weighted by the operators' times."""
    group, time = examples.run, examples.latency_us * examples.occurrences
    total = np.bincount(group, time) / np.bincount(group, time / factor)
    return np.asarray(total[group])
