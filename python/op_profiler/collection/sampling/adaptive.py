"""Adaptive sampling: batches of the operators whose predictions are least certain.

Pool-based active learning with the expected error as criterion (Settles, Active Learning Literature Survey, 2009,
section 3): from a pool of random operators, the operators with the widest predicted intervals are measured. The
predictor is fitted again after every batch.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.collection.sampling import spaces
from op_profiler.collection.sampling.batch import Batch, batches_of_points
from op_profiler.collection.sampling.batches import distinct, operators_of_points
from op_profiler.errors import DatasetError
from op_profiler.prediction.latency.devices import devices_in, is_here
from op_profiler.prediction.latency.fit import fingerprint, fit
from op_profiler.prediction.latency.open_predictor import examples_for
from op_profiler.prediction.latency.operator_predictor import SAMPLED
from op_profiler.schedules.records import slug

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.collection.request import CollectRequest
    from op_profiler.compilers.compiled_model import Occurrence
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.measure.measurement import Precision
    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.examples import Examples

_POOL = 160
_CHOSEN = 40
_POOL_BATCH = 32
_FEWEST = 200
"""Smallest number of measurements that a predictor is fitted to; with fewer, operators are drawn at random."""


def adaptive_batches(
    request: CollectRequest, names: Sequence[str], seed: int, note: Callable[[str], None]
) -> Iterator[Batch]:
    """Yield batches without end; the first ones are random while the dataset has few measurements.

    Args:
        request: request with the machine and its dataset, which grows while the batches are measured.
        names: kinds of operators, as for `spaces.draw`.
        seed: seed of the random draws.
        note: called once with the reason if the measurements in the dataset cannot be used, so that operators are
            drawn at random.
    """
    drawn = batches_of_points(spaces.draw(random.Random(seed), names), f"draw{seed}", seed)
    number, noted = 0, False
    while True:
        try:
            examples = _examples(request)
        except DatasetError as error:
            examples = None
            if not noted:
                note(f"--adaptive: operators are drawn at random, since {error}")
            noted = True
        if examples is None:
            yield next(drawn)
            continue
        precision = next(spaces.draw(random.Random(seed + number), names)).precision
        yield Batch(
            f"adaptive{seed}-{number:04d}",
            [seed, number, list(names), fingerprint(examples)],
            functools.partial(_least_certain, examples, precision, names, seed + number),
            precision,
        )
        number += 1


def _examples(request: CollectRequest) -> Examples | None:
    """Return the measurements of the requested machine; None if the dataset has fewer than `_FEWEST`.

    Raises:
        DatasetError: the dataset cannot be used, or has several machines that match the request.
    """
    build = request.build
    there = [device for device in devices_in(db=request.db) if _matches_request(device, build)]
    if not there:
        return None
    if len(there) > 1:
        keys = ", ".join(device.key for device in there)
        raise DatasetError(
            f"the dataset has several devices that this target may run on ({keys}); use a separate dataset with --db"
        )
    found = examples_for(db=request.db, device=there[0].key, compiler=build.compiler)
    return found if len(found) >= _FEWEST else None


def _matches_request(device: DeviceName, build: BuildRequest) -> bool:
    """Return whether a request may measure on a stored device; certain only for devices of this machine."""
    if (device.kind, device.compiler) != (build.kind.name, build.compiler):
        return False
    if build.kind.on_host:
        return is_here(device) == (build.place is None)
    if build.kind.on_gpu and build.place is None:
        return slug(device.processor) == slug(build.kind.processor_name())
    return True


def _least_certain(
    examples: Examples,
    precision: Precision,
    names: Sequence[str],
    seed: int,
    target: Target,
    refused: Callable[[str], None],
) -> list[Occurrence]:
    rng = random.Random(seed)
    points = (point for point in spaces.draw(rng, names) if point.precision == precision)
    pool: list[Occurrence] = []
    for _ in range(_POOL // _POOL_BATCH):
        pool += operators_of_points(list(itertools.islice(points, _POOL_BATCH)), target, rng.randrange(2**30), refused)
    pool = distinct(pool)
    predictor = fit(examples, choice="xgboost", folds=2, seed=seed)
    traffic = float(np.median(examples.traffic_bytes))
    found = predictor.predict([o.operator for o in pool], threads=max(predictor.thread_counts), traffic_bytes=traffic)
    width = np.where(np.isfinite(found.latency_us), np.log(found.high_us / found.low_us), np.inf)
    known = np.isin([int(o.operator.key, 16) for o in pool], [int(o.key, 16) for o in examples.operators])
    width[(found.tier <= SAMPLED) | known] = -1.0
    chosen = [int(i) for i in np.argsort(-width)[:_CHOSEN] if width[i] >= 0]
    return [pool[i] for i in chosen]
