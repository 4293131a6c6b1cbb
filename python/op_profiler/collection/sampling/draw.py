"""`Draw`: serializable description of a sampling run, from which every machine creates the same batches."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

from op_profiler.collection.sampling import batch, spaces
from op_profiler.collection.sampling.batch import Batch
from op_profiler.collection.sampling.grid import Grid
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.kinds.convolutions import Conv2d


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draw:
    """Describes the operators that a sampling run measures: those of a grid or of models, random ones, or the most
    informative ones.

    Attributes:
        label: start of the batches' names.
        seed: seed of all random draws.
        kinds: kinds of random operators; empty for the default kinds.
        grid: grid to measure instead of random operators.
        rules: names of `grid.RULES` that exclude points of the grid.
        models: models whose operators are measured instead of random operators.
        informative: start with the operators that are most informative about networks (`telling.py`).
        cached: draw random operators in batches whose weights stay in the cache, see `batch.batches_of_points`.
    """

    label: str
    seed: int = 0
    kinds: tuple[str, ...] = ()
    grid: Grid | None = None
    rules: tuple[str, ...] = ()
    models: tuple[ModelRequest, ...] = ()
    informative: bool = False
    cached: bool = False

    def batches(self) -> Iterator[Batch]:
        """Return the batches in a reproducible order; endless for random and for informative operators.

        Raises:
            UnknownNameError: a kind or a rule does not exist.
        """
        if self.informative:
            from op_profiler.collection.sampling.telling import informative_batches

            return informative_batches(self.seed)
        if self.models:
            return batch.batches_of_models(self.models)
        if self.grid is not None:
            return batch.batches_of_points(batch.shuffled(self.points(), self.seed), self.label, self.seed)
        points_without_end = spaces.draw(random.Random(self.seed), self.kinds)
        return batch.batches_of_points(points_without_end, self.label, self.seed, cached=self.cached)

    def points_of(self, number: int) -> int:
        """Return the approximate number of operators in a batch; 0 for models, whose operators only lowering can count.

        Args:
            number: number of the batch, from 0.
        """
        if self.models:
            return 0
        return batch.CACHED_SIZE if self.cached else batch.BATCH_SIZES[number % len(batch.BATCH_SIZES)]

    def points(self) -> list[Conv2d]:
        """Return the convolutions of the grid that all rules allow; empty without a grid."""
        found = self.grid.valid_points(self.rules) if self.grid is not None else []
        return [point.convolution() for point in found]
