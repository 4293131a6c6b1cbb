"""`EvaluateRequest`: scores of predictors on held-out measurements, for ``op-profiler evaluate``."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_names
from op_profiler.options import Option

if TYPE_CHECKING:
    from op_profiler.prediction.library.scoring import Score
    from op_profiler.prediction.sets.scores import SetResult

_ALL = ("all",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Every predictor on every split.

    Attributes:
        about: the measurements that are used and those that are not, in words.
        descriptions: what each split holds out, by its name.
        fits: how often a predictor is fitted for a split, by its name.
        score: fits a predictor to what a split leaves (split, predictor, and what is called before each fit with its
            name); ``model`` has two scores, others one.
    """

    about: str
    descriptions: Mapping[str, str]
    splits: tuple[str, ...]
    predictors: tuple[str, ...]
    fits: Mapping[str, int]
    score: Callable[[str, str, Callable[[str], None]], list[Score]]

    @property
    def steps(self) -> int:
        """How many fits there will be."""
        return sum(self.fits[split] for split in self.splits) * len(self.predictors)

    def scores(self, announce: Callable[[str], None]) -> Iterator[Score]:
        """Fit and score, one by one.

        Args:
            announce: called before each fit with the split and the predictor.
        """
        for split, predictor in itertools.product(self.splits, self.predictors):
            yield from self.score(split, predictor, announce)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateRequest:
    """Measurements, ways to hold some of them out, and predictors."""

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
        """Refuse what does not go together; raises UsageError."""
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
        """Read the measurements; every name is looked up before the first fit, which may take minutes.

        Args:
            note: called with what takes long.

        Raises:
            UnknownNameError: there is no such split, predictor or compiler.
            DatasetError: the measurements cannot be read, or there is nothing to hold out.
        """
        self.check()
        return self._of_dataset(note) if self.library is None else self._of_library(self.library)

    def public_sets(self, announce: Callable[[str], None]) -> Iterator[SetResult]:
        """Read the sets of ``sets`` and score the methods on them, set by set.

        Args:
            announce: called before each step that takes long.

        Raises:
            UnknownNameError: there is no such set.
            DatasetError: a file of a set cannot be read.
        """
        self.check()
        from op_profiler.prediction.sets import SETS
        from op_profiler.prediction.sets.scores import evaluate_sets

        names = tuple(SETS) if self.sets == _ALL else self.sets or ()
        return evaluate_sets(names, self.sets_from, self.seed, announce)

    def _of_library(self, path: Path) -> Evaluation:
        from op_profiler.dataset.formats.tinynas import read_library
        from op_profiler.prediction.library import PREDICTORS
        from op_profiler.prediction.library.library_predictor import without_suspicious
        from op_profiler.prediction.library.scoring import evaluate
        from op_profiler.prediction.library.splits import DESCRIPTIONS, SPLITS, held_out

        splits = SPLITS if self.splits == _ALL else self.splits
        predictors = tuple(PREDICTORS) if self.predictors == _ALL else self.predictors
        for name in predictors:
            PREDICTORS.get(name)()
        read = read_library(path)
        table, findings = without_suspicious(read)
        for name in splits:
            held_out(table, name, self.seed)
        about = (
            f"{len(table)} rows; not used: {read.failed} failed, {read.unreadable} that are no rows, "
            f"{len(findings)} suspicious"
        )
        about += "".join(f"\n  {finding.kind}: {finding.reason}" for finding in findings[:5])

        def score(split: str, predictor: str, announce: Callable[[str], None]) -> list[Score]:
            announce(f"{split}: {predictor}")
            return [evaluate(table, split, predictor, self.seed)]

        return Evaluation(
            about=about,
            descriptions=DESCRIPTIONS,
            splits=splits,
            predictors=predictors,
            fits=dict.fromkeys(splits, 1),
            score=score,
        )

    def _of_dataset(self, note: Callable[[str], None]) -> Evaluation:
        from op_profiler.compilers.compiler import use_compiler
        from op_profiler.prediction.latency import PREDICTORS
        from op_profiler.prediction.latency.held_out import DESCRIPTIONS, SPLITS, evaluate, fits_of
        from op_profiler.prediction.latency.open_predictor import examples_for

        splits = SPLITS if self.splits == _ALL else self.splits
        predictors = tuple(PREDICTORS) if self.predictors == _ALL else self.predictors
        for name in predictors:
            PREDICTORS.check(name)
        use_compiler(self.compiler)
        examples = examples_for(db=self.db, device=self.device, compiler=self.compiler, note=note)
        fits = {name: fits_of(examples, name, self.seed) for name in splits}
        left = ", ".join(f"{count} {reason}" for reason, count in examples.left_out.items()) or "none"
        processor = examples.devices[int(examples.device[0])].processor
        about = f"{len(examples)} measurements of {len(examples.operators)} operators on {processor}; not used: {left}"
        return Evaluation(
            about=about,
            descriptions=DESCRIPTIONS,
            splits=splits,
            predictors=predictors,
            fits=fits,
            score=lambda split, predictor, announce: evaluate(examples, split, predictor, self.seed, announce),
        )
