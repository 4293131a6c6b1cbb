"""`held_out_errors`: the errors of estimates for families of models that nothing was fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from op_profiler.prediction.latency.base import TrainingSet, trained
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.families import families_in
from op_profiler.prediction.latency.interpolation import Interpolation
from op_profiler.prediction.latency.intervals import NOT_HELD, WITHOUT_LOOPS, HeldOutErrors
from op_profiler.prediction.latency.method import Method
from op_profiler.prediction.latency.operator_predictor import MeasuredTimes
from op_profiler.prediction.latency.query import Query

TrainingSetOf = Callable[[Examples, Query], TrainingSet]
"""Makes the training data of measurements on the device to predict for."""


def _splits(examples: Examples, folds: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield masks of training and held-out entries.

    Whole families of models are held out, as in the evaluation (`op_profiler.prediction.latency.held_out`); with fewer
    families than folds, single models. Their operators are removed from the training data in all other models too,
    under all schedules.
    """
    families = families_in([examples])
    _, group = np.unique([families[name] for name in examples.models], return_inverse=True)
    if group.max() + 1 < folds:
        group = np.arange(len(examples.models))
    order = np.random.default_rng(seed).permutation(group.max() + 1)
    fold_of_group = np.empty(len(order), dtype=int)
    fold_of_group[order] = np.arange(len(order)) % folds
    for fold in range(folds):
        held = fold_of_group[group[examples.model]] == fold
        if held.any() and not held.all():
            yield ~np.isin(examples.workload, np.unique(examples.workload[held])), held


def held_out_errors(
    examples: Examples,
    own: TrainingSet,
    training_set_of: TrainingSetOf,
    elsewhere: Sequence[TrainingSet],
    measured: MeasuredTimes,
    families: np.ndarray,
    method: Method,
    seed: int,
    folds: int,
) -> HeldOutErrors:
    """Return the errors on held-out models, by source of the estimate and for `WITHOUT_LOOPS`.

    The analytic models (`Base`) are fitted without the held-out entries, too. Held-out operators are removed from the
    training data of other devices.

    Args:
        own: training data of all `examples`; `training_set_of` creates the training data of a part of `examples`.
        elsewhere: training data of other devices.
        measured: look-up table of all `examples`.
        families: family of each entry for interpolation (`families_of`).
        folds: number of groups of families of models; each group is held out once.
    """
    query, target = own.query, own.target
    tiers = ("regressed", "interpolated", "sampled", WITHOUT_LOOPS)
    errors = {name: np.full(len(examples), np.nan) for name in tiers}
    fold = np.full(len(examples), NOT_HELD)
    seen = query.has_loops | (own.base.kernels is None)
    for number, (train, held) in enumerate(_splits(examples, folds, seed)):
        if not train.any():
            continue
        blind = number == 0  # one fold suffices for the errors without loops; training is slow
        asked = query.take(held)
        fold[held] = number
        own_part = training_set_of(examples.where(train), query.take(train))
        if own_part.base.kernels is None:  # too few kernels to fit a kernel model: use that of all entries, if any
            own_part = own.take(train)
        base = own_part.base
        above = np.log(examples.latency_us[held] / base.roofline.bound_us(asked.amounts, asked.threads))
        parts = [own_part, *(one.take(~np.isin(one.query.keys, asked.keys)) for one in elsewhere)]
        models = trained(method, seed, parts, plain=blind)
        if models:
            found = base.regressed(method, models, asked)
            errors["regressed"][held] = np.where(seen[held], found - above, np.nan)
        if models and blind:
            errors[WITHOUT_LOOPS][held] = base.regressed(method, models, asked.without_loops()) - above
        if models and method.corrects_samples:
            known, at = measured.find(asked.sampled())
            alone = measured.as_sampled(asked, at)
            change = found - base.regressed(method, models, alone)
            off = np.log(measured.latency_us[at] / examples.latency_us[held]) + change
            errors["sampled"][held] = np.where(known & asked.network, off, np.nan)
        if method.interpolates != "nowhere":
            grid = Interpolation(query.take(train), families[train], target[train])
            errors["interpolated"][held] = grid.predict(asked, families[held]) - target[held]
    if own.base.kernels is None:
        errors[WITHOUT_LOOPS] = errors["regressed"]
    return HeldOutErrors(errors, fold, own.weight)
