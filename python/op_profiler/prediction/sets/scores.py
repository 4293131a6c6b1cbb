"""Errors of the methods on public sets, next to published errors."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from op_profiler.cache import cache_folder
from op_profiler.errors import DatasetError
from op_profiler.prediction.library.scoring import score
from op_profiler.prediction.sets import SETS
from op_profiler.prediction.sets.public_set import METHODS, Published, Split, spearman


@dataclasses.dataclass(frozen=True)
class SetScore:
    """Errors of the methods on one split, relative to the measured time, as fractions (0.1 is 10 %).

    Attributes:
        set, split: names of the set and of the split.
        held_out: description of the rows that were not used to fit.
        development: description of the training rows by which intervals and weights were chosen.
        trained, tested: numbers of rows.
        mape, median, within_10, bias, coverage_90: of this project's method, as in `Score`.
        spearman: rank correlation of this project's method, mean over the devices; None if the split has no ranks.
        trees, factor: MAPE of the methods ``trees`` and ``factor``, see `METHODS`.
        published: published error or rank correlation; None if none was published.
        seconds: duration of fitting and predicting in seconds, for all three methods together.
    """

    set: str
    split: str
    held_out: str
    development: str
    trained: int
    tested: int
    mape: float
    median: float
    within_10: float
    bias: float
    coverage_90: float | None
    spearman: float | None
    trees: float
    factor: float
    published: Published | None
    seconds: float


@dataclasses.dataclass(frozen=True)
class SetResult:
    """Results on one set.

    Attributes:
        set: name of the set.
        licence: licence of the set, or a note that no licence is stated.
        fetch: command that fetches the set if it is absent; None if it is present.
        skipped: number of rows that are not used, by reason.
        scores: one per split; empty if the set is absent.
    """

    set: str
    licence: str
    fetch: str | None
    skipped: dict[str, int]
    scores: list[SetScore]


def sets_folder(folder: Path | None) -> Path:
    """Return the folder that contains a folder for each set: the given one, or ``sets`` in the cache folder."""
    return cache_folder() / "sets" if folder is None else folder


def evaluate_sets(
    names: Sequence[str],
    folder: Path | None,
    seed: int,
    announce: Callable[[str], None],
    wanted: Callable[[str, str], bool] = lambda name, split: True,
    scored: Callable[[SetScore], None] = lambda score: None,
) -> Iterator[SetResult]:
    """Fit and evaluate the methods on each split of each set.

    Args:
        names: names of sets.
        folder: folder that contains a folder for each set; None: see `sets_folder`.
        seed: seed of random choices.
        announce: called with a message before a set is read and before a split is evaluated.
        wanted: called with the names of a set and a split; returns whether the split is evaluated.
        scored: called after each split with its errors.

    Yields:
        the result of each set, in the order of `names`.

    Raises:
        UnknownNameError: there is no such set.
        DatasetError: a file of a set cannot be read.
    """
    sets = {name: SETS.get(name) for name in names}
    for name, public in sets.items():
        own = sets_folder(folder) / name
        if public.missing(own):
            command = f"mkdir -p {own.parent} && cd {own.parent} && {public.fetch}"
            yield SetResult(name, public.licence, command, {}, [])
            continue
        announce(f"{name}: reading")
        try:
            reading = public.read(own, seed)
        except OSError as error:
            raise DatasetError(f"the set {name} in {own} cannot be read: {error}") from error
        scores = []
        for split in reading.splits:
            if wanted(name, split.name):
                announce(f"{name}: {split.name}")
                scores.append(_score(name, split))
                scored(scores[-1])
        skipped = {reason: count for reason, count in reading.skipped.items() if count}
        yield SetResult(name, public.licence, None, skipped, scores)


def _score(name: str, split: Split) -> SetScore:
    started = time.perf_counter()
    predicted = {method: split.answer(method) for method in METHODS}
    seconds = time.perf_counter() - started
    ours, trees, factor = (
        score(split.truth_us, predicted[method], split.name, method, split.trained, 0.0) for method in METHODS
    )
    ranks = None
    if split.ranked is not None:
        groups = [split.ranked == group for group in np.unique(split.ranked)]
        estimate = predicted["default"].latency_us
        ranks = float(np.mean([spearman(estimate[group], split.truth_us[group]) for group in groups]))
    return SetScore(
        set=name,
        split=split.name,
        held_out=split.held_out,
        development=split.development,
        trained=split.trained,
        tested=ours.tested,
        mape=ours.mape,
        median=ours.median,
        within_10=ours.within_10,
        bias=ours.bias,
        coverage_90=ours.coverage_90,
        spearman=ranks,
        trees=trees.mape,
        factor=factor.mape,
        published=split.published,
        seconds=round(seconds, 1),
    )
