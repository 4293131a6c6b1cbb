"""Restores the samples of a killed run from the dataset, so that the next run continues with them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.measure.measurement import Measurement, ModelTiming
from op_profiler.measure.samples import Samples, numbers

if TYPE_CHECKING:
    from op_profiler.collection.session import Session


def restored(session: Session, stored: dict[str, Measurement], timing: ModelTiming) -> Samples:
    """Return the samples that an earlier process stored for one thread count.

    If the stored samples do not fit the session, the result has no rounds, and the earlier rounds count as discarded.
    The counts of failed rounds are restored in either case. With hot or cold caches, an operator may have been timed in
    only some of the rounds (`Rounds._wanted`). The dataset does not store in which rounds, and nothing depends on it,
    so the samples of such an operator are restored to the first rounds. Stored samples do not include call overhead;
    the overhead of this process is added to them, because it will be subtracted from all rounds.

    Args:
        stored: measurements by workload key.
        timing: timing of the whole model that the earlier process stored.
    """
    whole, failed = timing.whole_model, timing.details.get("failed_rounds", {})
    rounds, discarded = len(whole.samples_us), whole.discarded_rounds or 0
    counted = Counter({number: failed[key] for key, number in numbers(session.operators) if key in failed})
    anew = Samples(failed=counted, discarded=discarded + int(timing.details.get("rounds", 0)))
    overheads_us = [kept.call_overhead_us for kept in stored.values() if kept.error is None]
    now_us = session.model.call_overhead_us() if overheads_us else None
    if any((one is None) != (now_us is None) for one in overheads_us):
        return anew  # an older version timed calls in another way
    matrix = np.full((rounds, len(session.groups)), np.nan)
    for group, operator in enumerate(session.operators):
        columns = np.flatnonzero(session.groups == group)
        kept = stored.get(operator.key)
        if kept is None or kept.error is not None:
            continue
        rows = np.asarray(kept.samples_us)
        expected = len(rows) if session.request.build.cache != "model" and len(rows) < rounds else rounds
        if rows.shape != (expected, len(columns)):
            return anew
        matrix[: len(rows), columns] = rows + (now_us or 0.0)
    return Samples(
        [row[0] for row in whole.samples_us],
        matrix.tolist(),
        [whole.foreign_load] * rounds,
        call_overhead_us=[] if now_us is None else [now_us],
        failed=counted,
        discarded=discarded,
    )
