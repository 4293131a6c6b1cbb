"""`Draw`: a sampling run as plain values, from which every machine creates the same batches."""

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
    """A grid's points, models' operators, random operators, or the most informative ones.

    Attributes:
        label: start of the batches' names.
        seed: seed of all random draws.
        kinds: kinds of random operators; empty for the default ones.
        grid: grid to measure instead of random operators, with `rules`.
        models: models to measure instead of random operators.
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
        """Return the batches in a fixed order; without end for random operators.

        Raises:
            UnknownNameError: there is no such kind or rule.
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
        """Return the approximate number of operators in batch `number`, from 0; 0 for models, which only lowering can
        count."""
        if self.models:
            return 0
        return batch.CACHED_SIZE if self.cached else batch.BATCH_SIZES[number % len(batch.BATCH_SIZES)]

    def points(self) -> list[Conv2d]:
        """The convolutions of the grid; empty without a grid."""
        found = self.grid.valid_points(self.rules) if self.grid is not None else []
        return [point.convolution() for point in found]
