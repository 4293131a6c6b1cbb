"""Chooses schedules inside the model: builds the model with different finalists, and times the builds alternately.

The fastest schedule in isolation may not be the fastest between other operators: Winograd's weights are four times as
large, and if they come from memory, the direct method is faster. Therefore the first finalists of all operators are
built into one build of the model, the second finalists into another build, and so on. Every build is timed in
alternation with the default build.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.collection.studies.compare import Build, in_turns, load_build, same_calls
from op_profiler.errors import MeasureError, ModelError
from op_profiler.measure.statistics import median_interval
from op_profiler.schedules import record_files, records

if TYPE_CHECKING:
    from op_profiler.collection.studies.study import Study
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.measure.measurement import Cache
    from op_profiler.schedules.records import Record
    from op_profiler.tuning.tunable import Tunable

MOST_CANDIDATES = 3
"""Largest number of candidates of one operator that are built into the model."""
_STATE_ROUNDS = 9


@dataclasses.dataclass(frozen=True)
class OperatorCandidates:
    """One tunable operator and the candidates for its schedule record.

    Attributes:
        candidates: records of schedules other than the default, at most `MOST_CANDIDATES`.
        champion: the candidate that the present record contains; None if no candidate is in use.
    """

    item: Tunable
    candidates: tuple[Record, ...]
    champion: Record | None = None


@dataclasses.dataclass(frozen=True)
class Decision:
    """The schedule that was chosen for an operator in the model.

    Attributes:
        winner: record of the chosen schedule; None for the default schedule.
        default_us, winner_us: times of the default and of the chosen schedule, microseconds per call, including fused
            ops.
    """

    winner: Record | None
    default_us: float
    winner_us: float


class InModel:
    """Compares the default build of a model with builds with other schedules.

    Raises:
        ModelError, MeasureError: the model cannot be built or run as a whole.
    """

    def __init__(self, study: Study, model: ImportedModel) -> None:
        self._study = study
        self._model = model
        self._default = load_build(study, model, records.NONE)

    def cache_states(self, items: Sequence[Tunable]) -> dict[str, Cache]:
        """Return the cache state (``hot`` or ``cold``) in which each anchor's time is nearer to its time in the model.

        The result is by workload key of the anchor; ``hot`` if an anchor has no calls. The state is measured, because
        the size of a cache is no guide if other programs share the cache.
        """
        loaded = self._default.loaded
        self._study.machine.threads.use(self._study.threads)
        wanted = [any(o.key in item.operators for item in items) for o in self._default.operators]
        states: list[Cache] = ["model", "hot"]
        with contextlib.suppress(MeasureError):
            loaded.cache_mechanism("cold")
            states.append("cold")
        walks: dict[str, list[list[float]]] = {state: [] for state in states}
        for _ in range(_STATE_ROUNDS):
            for state in states:
                loaded.run_model()
                walks[state].append(loaded.walk(state, wanted))
        medians = {state: np.median(np.asarray(times), axis=0) for state, times in walks.items()}
        found: dict[str, Cache] = {}
        for item in items:
            at = self._positions(item)
            total = {state: float(median[at].sum()) for state, median in medians.items()}
            off: dict[Cache, float] = {
                state: abs(math.log(total[state] / total["model"])) for state in states[1:] if at
            }
            found[item.anchor.key] = min(off, key=lambda s: off[s]) if off else "hot"
        return found

    def decide(self, entries: Sequence[OperatorCandidates]) -> dict[Tunable, Decision]:
        """Return for each operator the candidate that is significantly faster in the model, or else the default.

        The winners are built together and compared with the default once more; an operator whose winner is then not
        significantly faster keeps the default. Operators without calls in the default build are left out.
        """
        ranks = range(max((len(entry.candidates) for entry in entries), default=0))
        builds = [self._built([e.candidates[rank] for e in entries if rank < len(e.candidates)]) for rank in ranks]
        times = self._times(builds)
        first = {e.item: self._first(e, times) for e in entries if self._positions(e.item)}
        chosen = {item: winner for item, winner in first.items() if winner is not None}
        (final,) = self._times([self._built(list(chosen.values()))])[1:] or [None]
        decisions = {}
        for entry in entries:
            at = self._positions(entry.item)
            if not at or times[0] is None:
                continue
            default_us = float(_median(times[0][:, at]))
            winner = chosen.get(entry.item)
            if winner is None or final is None:
                decisions[entry.item] = Decision(None, default_us, default_us)
                continue
            default, beside = self._last_default[:, at], final[:, at]
            holds = is_faster(beside.sum(axis=1), default.sum(axis=1))
            default_us = float(_median(default))
            us = float(_median(beside)) if holds else default_us
            decisions[entry.item] = Decision(winner if holds else None, default_us, us)
        return decisions

    def _first(self, entry: OperatorCandidates, times: Sequence[np.ndarray | None]) -> Record | None:
        """Return the candidate that wins the first comparison; None for the default.

        The fastest candidate wins if it is significantly faster than the champion and the default; otherwise the
        champion wins if it is significantly faster than the default.
        """
        default, *others = times
        if default is None:
            return None
        at = self._positions(entry.item)
        sums = {
            number: build[:, at].sum(axis=1)
            for number, (_, build) in enumerate(zip(entry.candidates, others))
            if build is not None
        }
        if not sums:
            return None
        best = min(sums, key=lambda number: float(_median(sums[number])))
        if entry.champion in entry.candidates:
            champion = entry.candidates.index(entry.champion)
            if champion in sums and not is_faster(sums[best], sums[champion]):
                best = champion
        return entry.candidates[best] if is_faster(sums[best], default[:, at].sum(axis=1)) else None

    def _positions(self, item: Tunable) -> list[int]:
        """Return the positions, in the default build, of the calls of operators that contain an anchor."""
        return [i for i, operator in enumerate(self._default.operators) if operator.key in item.operators]

    def _built(self, chosen: Sequence[Record]) -> Build | None:
        """Build the model with these records; return None if it cannot be built or run with them."""
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            file = dataclasses.replace(self._study.build, schedules=folder).record_file()
            assert file is not None  # only `records.NONE` has none
            for record in chosen:
                record_files.keep(file, record)
            try:
                return load_build(self._study, self._model, folder)
            except (ModelError, MeasureError) as error:
                self._study.announce(problem=f"a build with candidates failed: {error}")
                return None

    def _times(self, builds: Sequence[Build | None]) -> list[np.ndarray | None]:
        """Time the default build and these builds alternately, and return the kernel times of each, the default first.

        Each entry has shape (rounds, kernels), microseconds; it is None for a build with other calls than the default
        build.
        """
        same = [b if b is not None and same_calls(self._default.operators, b.operators) else None for b in builds]
        there = [self._default, *(build for build in same if build is not None)]
        self._study.machine.threads.use(self._study.threads)
        _, kernels = in_turns([build.loaded for build in there])
        measured = iter(kernels)
        self._last_default = next(measured)
        return [self._last_default, *(next(measured) if build is not None else None for build in same)]


def is_faster(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether `one` is significantly faster: the 95 % interval of the ratio other / one is above 1.

    Args:
        one, other: times in the same rounds, measured alternately, shape (rounds,).
    """
    return median_interval(other / one)[0] > 1.0


def _median(times: np.ndarray) -> float:
    return float(np.median(times.mean(axis=1) if times.ndim == 2 else times))
