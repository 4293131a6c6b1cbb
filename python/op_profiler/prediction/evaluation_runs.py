"""`Evaluation`: scores every predictor on every split of the measurements of a dataset or of a library's file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from op_profiler.compilers.compiler import use_compiler
from op_profiler.dataset.formats.tinynas import read_library
from op_profiler.prediction import latency, library
from op_profiler.prediction.latency import held_out as of_operators
from op_profiler.prediction.latency.open_predictor import examples_for
from op_profiler.prediction.library import splits as of_rows
from op_profiler.prediction.library.library_predictor import without_suspicious
from op_profiler.prediction.library.scoring import Score, evaluate


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Predictors to score on splits of measurements.

    Attributes:
        about: sentences on used and unused measurements.
        descriptions: description of the measurements that each split holds out, by the name of the split.
        splits, predictors: names.
        fits: how many times each predictor is fitted for a split, by the name of the split.
        score: fits a predictor to the training part of a split and returns its scores on the held-out part: two for the
            split ``model``, one for other splits. Arguments: name of the split, name of the predictor, and a function
            that is called with a text before each fit.
    """

    about: str
    descriptions: Mapping[str, str]
    splits: tuple[str, ...]
    predictors: tuple[str, ...]
    fits: Mapping[str, int]
    score: Callable[[str, str, Callable[[str], None]], list[Score]]

    @property
    def steps(self) -> int:
        """Number of fits of all predictors on all splits."""
        return sum(self.fits[split] for split in self.splits) * len(self.predictors)

    def scores(self, announce: Callable[[str], None]) -> Iterator[Score]:
        """Fit every predictor on every split, and yield the scores.

        Args:
            announce: called before each fit with a text that names the split and the predictor.
        """
        for split, predictor in itertools.product(self.splits, self.predictors):
            yield from self.score(split, predictor, announce)


def of_library(path: Path, splits: tuple[str, ...] | None, predictors: tuple[str, ...] | None, seed: int) -> Evaluation:
    """Return the evaluation of convolution predictors on the measurements in the file of a convolution library.

    Args:
        path: file with the measurements.
        splits: names of splits; None for all.
        predictors: names of predictors; None for all.
        seed: seed of the splits and of the predictors.

    Raises:
        UnknownNameError: there is no such split or predictor.
        DatasetError: the measurements cannot be read, or there is nothing to hold out.
    """
    splits = of_rows.SPLITS if splits is None else splits
    predictors = tuple(library.PREDICTORS) if predictors is None else predictors
    for name in predictors:
        library.PREDICTORS.get(name)()
    read = read_library(path)
    table, findings = without_suspicious(read)
    for name in splits:
        of_rows.held_out(table, name, seed)
    about = (
        f"{len(table)} rows; not used: {read.failed} failed, {read.unreadable} that are no rows, "
        f"{len(findings)} suspicious"
    )
    about += "".join(f"\n  {finding.kind}: {finding.reason}" for finding in findings[:5])

    def score(split: str, predictor: str, announce: Callable[[str], None]) -> list[Score]:
        announce(f"{split}: {predictor}")
        return [evaluate(table, split, predictor, seed)]

    return Evaluation(
        about=about,
        descriptions=of_rows.DESCRIPTIONS,
        splits=splits,
        predictors=predictors,
        fits=dict.fromkeys(splits, 1),
        score=score,
    )


def of_dataset(
    db: str | None,
    device: str | None,
    compiler: str,
    splits: tuple[str, ...] | None,
    predictors: tuple[str, ...] | None,
    seed: int,
    note: Callable[[str], None],
) -> Evaluation:
    """Return the evaluation of operator predictors on a dataset. `compiler` becomes the compiler of this process.

    Args:
        db, device, note: as in `examples_for`.
        compiler: name of the compiler whose measurements are used.
        splits: names of splits; None for all.
        predictors: names of predictors; None for all.
        seed: seed of the splits and of the predictors.

    Raises:
        UnknownNameError: there is no such split, predictor or compiler.
        DatasetError: the measurements cannot be read, or there is nothing to hold out.
    """
    splits = of_operators.SPLITS if splits is None else splits
    predictors = tuple(latency.PREDICTORS) if predictors is None else predictors
    for name in predictors:
        latency.PREDICTORS.check(name)
    use_compiler(compiler)
    examples = examples_for(db=db, device=device, compiler=compiler, note=note)
    fits = {name: of_operators.fits_of(examples, name, seed) for name in splits}
    left = ", ".join(f"{count} {reason}" for reason, count in examples.left_out.items()) or "none"
    processor = examples.only_device.processor
    about = f"{len(examples)} measurements of {len(examples.operators)} operators on {processor}; not used: {left}"
    return Evaluation(
        about=about,
        descriptions=of_operators.DESCRIPTIONS,
        splits=splits,
        predictors=predictors,
        fits=fits,
        score=lambda split, predictor, announce: of_operators.evaluate(examples, split, predictor, seed, announce),
    )
