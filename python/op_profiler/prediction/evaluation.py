"""`EvaluateRequest`: scores of predictors on held-out measurements, for ``op-profiler evaluate``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names
from op_profiler.options import Option
from op_profiler.prediction.sets import SETS

if TYPE_CHECKING:
    from op_profiler.prediction.evaluation_runs import Evaluation
    from op_profiler.prediction.sets.scores import SetResult

_ALL = ("all",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Options of ``op-profiler evaluate``: measurements, splits that hold some of them out, and predictors."""

    sets: Annotated[
        tuple[str, ...] | None,
        Option(
            "Evaluate on public data sets instead of --db, separated by commas, or all: {public_sets}.",
            flags=("--set",),
            parse=parse_names,
        ),
    ] = None
    sets_from: Annotated[
        Path | None,
        Option(
            "Folder that contains a folder for each public set. Default: the folder 'sets' in the cache folder.",
            flags=("--from",),
        ),
    ] = None
    db: Annotated[
        str | None, Option("Dataset to fit and evaluate on. Default: the data included with the package.")
    ] = None
    library: Annotated[
        Path | None, Option("Evaluate on this table of convolutions, in TinyNAS's format, instead of --db.")
    ] = None
    splits: Annotated[
        tuple[str, ...],
        Option(
            "Which measurements to hold out, separated by commas, or all: random (a random fifth), h (every other "
            "image size), oc, ratio, batch (certain output channels, channel ratios or batch sizes), largest (the "
            "largest sizes), model (networks with their families; not with --library).",
            flags=("--split",),
            parse=parse_names,
            shown="all",
        ),
    ] = _ALL
    predictors: Annotated[
        tuple[str, ...],
        Option(
            "Predictors to evaluate, separated by commas, or all: {predictors}. With --library: {library_predictors}.",
            flags=("--predictor",),
            parse=parse_names,
            shown="default",
        ),
    ] = ("default",)
    device: Annotated[
        str | None,
        Option(
            "Device whose measurements are used: the start of its key, or a part of its name or target; 'list' prints "
            "the devices."
        ),
    ] = None
    compiler: Annotated[str, Option("Compiler whose rows of --db are used: {compilers}.")] = DEFAULT_COMPILER
    seed: Annotated[int, Option("Seed of the random split and of the regressors.", least=0, most=2**32 - 1)] = 0

    def check(self) -> None:
        """Reject options that exclude each other; raises UsageError."""
        if self.sets_from is not None and not self.sets:
            raise UsageError("--from is the folder of public sets; name them with --set")
        if self.sets:
            others = {
                "--db": self.db is not None,
                "--library": self.library is not None,
                "--device": self.device is not None,
                "--split": self.splits != _ALL,
                "--predictor": self.predictors != ("default",),
                "--compiler": self.compiler != DEFAULT_COMPILER,
            }
            if wrong := [flag for flag, given in others.items() if given]:
                raise UsageError(f"--set defines its own splits and methods; leave out {wrong[0]}")
        if self.library is None:
            return
        if self.db is not None:
            raise UsageError("give --db or --library, not both")
        if self.device is not None:
            raise UsageError(
                "--device chooses among the devices of --db; leave it out with --library, which is of one device"
            )
        if self.compiler != DEFAULT_COMPILER:
            raise UsageError("--compiler chooses among the rows of --db; leave it out with --library, which names none")

    def evaluation(self, note: Callable[[str], None]) -> Evaluation:
        """Read the measurements and return their evaluation, which fits and scores the predictors.

        Every name is checked before the first fit, because a fit may take minutes.

        Args:
            note: called with a text before each step that takes long.

        Raises:
            UnknownNameError: there is no such split, predictor or compiler.
            DatasetError: the measurements cannot be read, or there is nothing to hold out.
        """
        self.check()
        from op_profiler.prediction.evaluation_runs import of_dataset, of_library

        splits = None if self.splits == _ALL else self.splits
        predictors = None if self.predictors == _ALL else self.predictors
        if self.library is not None:
            return of_library(self.library, splits, predictors, self.seed)
        return of_dataset(self.db, self.device, self.compiler, splits, predictors, self.seed, note)

    def public_sets(self, announce: Callable[[str], None]) -> Iterator[SetResult]:
        """Read the public sets that the option ``sets`` names, and yield the scores of the methods on each set.

        Args:
            announce: called before each step that takes long.

        Raises:
            UnknownNameError: there is no such set.
            DatasetError: a file of a set cannot be read.
        """
        self.check()
        from op_profiler.prediction.sets.scores import evaluate_sets

        names = tuple(SETS) if self.sets == _ALL else self.sets or ()
        return evaluate_sets(names, self.sets_from, self.seed, announce)
