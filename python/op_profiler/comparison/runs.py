"""Runs in datasets: a run is one collection of a model, with operator times at each thread count."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import or_, select

from op_profiler.addresses import without_password
from op_profiler.comparison.matching import ComparedCall
from op_profiler.compilers import COMPILERS
from op_profiler.dataset import Dataset, queries, schema
from op_profiler.dataset.address import is_sqlite_path
from op_profiler.dataset.row import ModelIdentity
from op_profiler.errors import DatasetError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from op_profiler.dataset.row import Model, StoredMeasurement, StoredTiming
    from op_profiler.measure.measurement import Device
    from op_profiler.operators.operator import Operator

_PIECE = 1000  # rows


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnownRun:
    """A run (one collection of a model) without its times.

    Attributes:
        where: URL of the dataset.
        processor: processor that the run was measured on.
        compiler: name of the compiler that generated the kernels.
        model: the model.
        measured_at: UTC time at which the newest times of the run were stored.
        project_revision, user_revision: revisions of these newest times, as in `StoredTiming`.
    """

    where: str
    model: ModelIdentity
    processor: str
    compiler: str
    measured_at: str
    project_revision: str | None
    user_revision: str | None

    @property
    def name(self) -> str:
        """Label of the run, or the key of its model if it has none."""
        return self.model.label or self.model.key

    @property
    def identity(self) -> tuple[Any, ...]:
        """Value that is equal for runs of the same model."""
        model = self.model
        return model.source, model.name, model.batch_size, model.precision, model.executor

    @property
    def title(self) -> str:
        """Source, name, batch size, precision and executor of the model, and the compiler."""
        model = self.model
        words = f"{model.source}:{model.name}, batch {model.batch_size}, {model.precision}, {model.executor}"
        return f"{words}, {self.compiler}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedRun:
    """A run with its times.

    Attributes:
        known: the run without its times.
        device: device that the run was measured on.
        operators: operators by workload key.
        calls: calls in the order in which the model makes them.
        timings: timings of the whole model, by thread count.
        measurements: times of the operators in the model, by thread count and workload key.
    """

    known: KnownRun
    model: Model
    device: Device
    operators: dict[str, Operator]
    calls: tuple[ComparedCall, ...]
    timings: dict[int, StoredTiming]
    measurements: dict[int, dict[str, StoredMeasurement]]

    @property
    def name(self) -> str:
        """Label of the run, or the key of its model if it has none."""
        return self.known.name

    @property
    def compiler(self) -> str:
        """Name of the compiler that generated the kernels."""
        return self.known.compiler

    @functools.cached_property
    def times_called(self) -> Counter[str]:
        """Number of calls of each operator in the model, by workload key."""
        return Counter(call.key for call in self.calls)

    @functools.cached_property
    def shares(self) -> dict[int, dict[str, float]]:
        """Share of each operator in the summed time of all operators, by thread count and workload key.

        Thread counts without times of operators are missing.
        """
        found: dict[int, dict[str, float]] = {}
        for threads, rows in self.measurements.items():
            times = {
                key: (row.measurement.median_us or 0.0) * self.times_called[key]
                for key, row in rows.items()
                if key in self.operators
            }
            if total := sum(times.values()):
                found[threads] = {key: time / total for key, time in times.items()}
        return found


def runs_of(text: str, db: str, only: str | None = None) -> list[KnownRun]:
    """Return the runs that an argument of the command line selects, the newest first.

    Args:
        text: the URL or the file of a dataset, which selects all its runs; or the label or key of a run in `db`; or a
            compiler, which selects all its runs in `db`.
        only: a name, source:name or key; runs of other models are ignored.

    Raises:
        UnknownNameError: there is no such run, dataset or compiler.
        UsageError: `text` selects no complete run, or none of the model `only`.
        DatasetError: the dataset cannot be read.
    """
    is_file = is_sqlite_path(text) or Path(text).is_file()  # what looks like one is missed as one
    if "://" in text:
        found = _runs(text, None)
    else:
        try:
            found = _runs(db, text)
        except DatasetError:
            found = []
            if not is_file:
                raise
        if not found and is_file:
            found = _runs(f"sqlite:///{text}", None)
    if not found and text in COMPILERS:
        found = [run for run in _runs(db, None) if run.compiler == text]
    if not found and "://" not in text and not Path(text).is_file():
        named = select(schema.models.c.label, schema.models.c.key)
        with Dataset.open(db, create=False, read_only=True) as dataset:
            known = {name for row in dataset.rows(named) for name in row.values() if name}
        places = f"A run is a label, a key or a compiler in {without_password(db)}, or a dataset's file or address"
        raise UnknownNameError("run", text, known, places)
    wanted = [run for run in found if only is None or only in _names(run.model)]
    if not wanted:
        what = "no run that was measured to its end" if only is None else f"no run of {only!r}"
        raise UsageError(f"{without_password(text)} contains {what}; 'op-profiler dataset' lists its content")
    return sorted(wanted, key=lambda run: run.measured_at, reverse=True)


def pairs_of(
    before: Sequence[KnownRun], after: Sequence[KnownRun]
) -> tuple[list[tuple[KnownRun, KnownRun]], list[str]]:
    """Return pairs of runs of the same model, and notes on the runs that are ignored.

    If both sides have exactly one run, these two are a pair, even if their models differ. If a side has several runs of
    one model by one compiler, the newest of these runs is used. A run is paired with a run by the same compiler if
    there is one, otherwise with a run by another compiler.

    Args:
        before, after: runs of each side, the newest first.

    Raises:
        UsageError: no model has a run on both sides.
    """
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], []
    notes: list[str] = []
    first, second = (_newest(side, runs, notes) for side, runs in (("before", before), ("after", after)))
    pairs = [(run, second[key]) for key, run in first.items() if key in second]
    paired = {one.identity for one, _ in pairs}
    of_any_compiler = {other.identity: other for other in reversed(second.values())}  # the first of each stays
    for run in first.values():
        if run.identity not in paired and run.identity in of_any_compiler:
            paired.add(run.identity)
            pairs.append((run, of_any_compiler[run.identity]))
    if not pairs:
        held = ["; ".join(sorted({run.title for run in runs})) for runs in (before, after)]
        raise UsageError(f"there is no model in both: {held[0]} before, {held[1]} after; --model and keys choose runs")
    for at, (side, runs) in enumerate((("before", first), ("after", second))):
        met = {pair[at].model.key for pair in pairs}
        notes += [f"only {side}: {run.title}" for run in runs.values() if run.model.key not in met]
    return pairs, list(dict.fromkeys(notes))


def _newest(side: str, runs: Sequence[KnownRun], notes: list[str]) -> dict[tuple[Any, ...], KnownRun]:
    """Return the newest run of each model and compiler, and add notes on older runs.

    Args:
        runs: the newest first.
    """
    newest: dict[tuple[Any, ...], KnownRun] = {}
    for run in runs:
        kept = newest.setdefault((run.identity, run.compiler), run)
        if kept is not run:
            notes.append(f"{side}: of several runs of {kept.model.name} the newest counts ({kept.model.key})")
    return newest


def _names(model: ModelIdentity) -> tuple[str, ...]:
    return model.name, f"{model.source}:{model.name}", model.key


def _runs(url: str, word: str | None) -> list[KnownRun]:
    """Return the complete runs of a dataset; with `word`, only those with this label or key."""
    query, model = queries.runs(), schema.models.c
    if word is not None:
        query = query.where(or_(model.label == word, model.key == word))
    with Dataset.open(url, create=False, read_only=True) as dataset, dataset.read() as connection:
        found = connection.execute(query.execution_options(yield_per=_PIECE)).mappings()
        rows = cast("Iterable[Mapping[str, Any]]", found)
        return [_known(url, list(timings)) for _, timings in itertools.groupby(rows, key=lambda row: row["key"])]


def _known(url: str, timings: Sequence[Mapping[str, Any]]) -> KnownRun:
    """Return the run of a model.

    Args:
        timings: rows of the model in the result of `queries.runs`.
    """
    counted = [next(of_count) for _, of_count in itertools.groupby(timings, key=lambda row: row["threads"])]
    newest, first = max(counted, key=lambda row: row["measured_at"]), counted[0]
    return KnownRun(
        where=url,
        model=ModelIdentity(**{field.name: first[field.name] for field in dataclasses.fields(ModelIdentity)}),
        **{name: first[name] for name in ("processor", "compiler")},
        **{name: newest[name] for name in ("measured_at", "project_revision", "user_revision")},
    )


def load(known: KnownRun) -> TimedRun:
    """Return a run with its times.

    Raises:
        DatasetError: the run is no longer in the dataset.
    """
    with Dataset.open(known.where, create=False, read_only=True, was_open=True) as dataset:
        return _loaded(dataset, known)


def _loaded(dataset: Dataset, known: KnownRun) -> TimedRun:
    model = dataset.find_model(known.model.key)
    timings: dict[int, StoredTiming] = {}
    for row in dataset.rows(queries.thread_counts(known.model.key, "model")):
        threads = row["threads"]
        timing = dataset.find_model_timing(known.model.key, threads=threads, cache="model")
        if timing is not None and timing.complete:
            timings[threads] = timing
    if model is None or not timings:
        raise DatasetError(f"{known.title} was taken out of {without_password(known.where)} meanwhile; compare again")
    device = dataset.find_device(next(iter(timings.values())).device_key)
    assert device is not None  # rows with times refer to one
    operators = {operator.key: (operator, positions) for operator, positions in dataset.model_operators(model.key)}
    layers = dataset.layers_of(model.key)
    calls = {
        position: ComparedCall(key, operator.anchor, tuple(names))
        for key, (operator, positions) in operators.items()
        for position, names in zip(positions, layers.get(key, ((),) * len(positions)), strict=True)
    }
    measured = {
        threads: dataset.measurements_of(
            model.key, threads=threads, cache="model", resources={"core_set": timing.settings.core_set}
        )
        for threads, timing in timings.items()
    }
    return TimedRun(
        known=known,
        model=model,
        device=device,
        operators={key: operator for key, (operator, _) in operators.items()},
        calls=tuple(calls[position] for position in sorted(calls)),
        timings=timings,
        measurements={n: {k: row for k, row in rows.items() if row.complete} for n, rows in measured.items()},
    )
