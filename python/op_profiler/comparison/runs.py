"""Runs in datasets: one is a model, collected once, with its operators' times at each thread count."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import select

from op_profiler.comparison.matching import Call
from op_profiler.compilers import COMPILERS
from op_profiler.dataset import Dataset, schema
from op_profiler.errors import DatasetError, UnknownNameError, UsageError

if TYPE_CHECKING:
    from op_profiler.dataset.row import Model, StoredMeasurement, StoredTiming
    from op_profiler.measure.measurement import Device
    from op_profiler.operators.operator import Operator


@dataclasses.dataclass(frozen=True)
class Run:
    """A collected model.

    Attributes:
        where: address of the dataset.
        device: that it was measured on.
        operators: by workload key.
        calls: in the order in which the model makes them.
        timings: of the whole model, by thread count.
        measurements: of the operators in the model, by thread count and workload key.
    """

    where: str
    model: Model
    device: Device
    operators: dict[str, Operator]
    calls: tuple[Call, ...]
    timings: dict[int, StoredTiming]
    measurements: dict[int, dict[str, StoredMeasurement]]

    @property
    def name(self) -> str:
        """What people call it."""
        return self.model.label or self.model.key

    @property
    def measured_at(self) -> str:
        """When its last part was stored, UTC."""
        return max(timing.measured_at for timing in self.timings.values())

    @property
    def compiler(self) -> str:
        """That made its kernels, by its name."""
        return self.device.compiler

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for runs of one model that are meant to be compared."""
        model = self.model
        return model.source, model.name, model.batch_size, model.precision, model.executor


def runs_of(text: str, db: str, only: str | None = None) -> list[Run]:
    """The runs that a word on the command line means, the newest first.

    Args:
        text: the address or the file of a dataset, with all runs in it; or the label or key of a run in `db`, or a
            compiler, with all its runs there.
        only: a name, source:name or key of a model: no others.

    Raises:
        UnknownNameError: it means nothing.
        DatasetError: the dataset cannot be read.
    """
    if "://" in text:
        found = _runs(text, None)
    else:
        try:
            found = _runs(db, text)
        except DatasetError:
            found = []
            if not Path(text).is_file():
                raise
        if not found and Path(text).is_file():
            found = _runs(f"sqlite:///{text}", None)
    if not found and text in COMPILERS:
        found = [run for run in _runs(db, None) if run.compiler == text]
    if not found and "://" not in text and not Path(text).is_file():
        with Dataset.open(db, create=False, read_only=True) as dataset:
            known = {name for model in dataset.models() for name in (model.label, model.key) if name}
        places = f"A run is a label, a key or a compiler in {db}, or a dataset's file or address"
        raise UnknownNameError("run", text, known, places)
    wanted = [run for run in found if only is None or only in _names(run.model)]
    if not wanted:
        what = "no run that was measured to its end" if only is None else f"no run of {only!r}"
        raise UsageError(f"{text} holds {what}; 'op-profiler dataset' lists what there is")
    return sorted(wanted, key=lambda run: run.measured_at, reverse=True)


def pairs_of(before: Sequence[Run], after: Sequence[Run]) -> tuple[list[tuple[Run, Run]], list[str]]:
    """Runs that belong together, and notes on those that are left out.

    A run alone on its side meets one that is alone on the other, whatever they are. Of several runs of one model by one
    compiler on one side the newest counts. It meets one of the same compiler if there is one, else one of another.

    Raises:
        UsageError: none belong together.
    """
    if len(before) == len(after) == 1:
        return [(before[0], after[0])], []
    notes: list[str] = []
    first, second = (_newest(side, runs, notes) for side, runs in (("before", before), ("after", after)))
    pairs = [(run, second[key]) for key, run in first.items() if key in second]
    for run in first.values():
        if all(run.identity != one.identity for one, _ in pairs):
            pairs += [(run, other) for other in second.values() if other.identity == run.identity][:1]
    if not pairs:
        held = ["; ".join(sorted({_title(run) for run in runs})) for runs in (before, after)]
        raise UsageError(f"there is no model in both: {held[0]} before, {held[1]} after; --model and keys choose runs")
    for at, (side, runs) in enumerate((("before", first), ("after", second))):
        paired = {pair[at].model.key for pair in pairs}
        notes += [f"only {side}: {_title(run)}" for run in runs.values() if run.model.key not in paired]
    return pairs, list(dict.fromkeys(notes))


def _newest(side: str, runs: Sequence[Run], notes: list[str]) -> dict[tuple[Any, ...], Run]:
    """One run of each model and compiler, of those that come the newest first; notes where there are more."""
    newest: dict[tuple[Any, ...], Run] = {}
    for run in runs:
        kept = newest.setdefault((run.identity, run.compiler), run)
        if kept is not run:
            notes.append(f"{side}: of several runs of {kept.model.name} the newest counts ({kept.model.key})")
    return newest


def _names(model: Model) -> tuple[str, ...]:
    return model.name, f"{model.source}:{model.name}", model.key


def _title(run: Run) -> str:
    model = run.model
    return f"{model.source}:{model.name}, batch {model.batch_size}, {model.precision}, {model.executor}, {run.compiler}"


def _runs(url: str, word: str | None) -> list[Run]:
    """Those of a dataset that were measured to their end; only those with this label or key."""
    with Dataset.open(url, create=False, read_only=True) as dataset:
        chosen = [model for model in dataset.models() if word is None or word in (model.label, model.key)]
        return [run for model in chosen for run in _run(dataset, url, model)]


def _run(dataset: Dataset, url: str, model: Model) -> Iterator[Run]:
    """The run of a model; nothing where it has no time."""
    timings: dict[int, StoredTiming] = {}
    for threads in _thread_counts(dataset, model.key):
        timing = dataset.find_model_timing(model.key, threads=threads, cache="model")
        if timing is not None and timing.complete:
            timings[threads] = timing
    if not timings:
        return
    device = dataset.find_device(next(iter(timings.values())).device_key)
    assert device is not None  # rows with times refer to one
    operators = {operator.key: (operator, positions) for operator, positions in dataset.model_operators(model.key)}
    layers = dataset.layers_of(model.key)
    calls = {
        position: Call(key, operator.anchor, tuple(names))
        for key, (operator, positions) in operators.items()
        for position, names in zip(positions, layers.get(key, ((),) * len(positions)), strict=True)
    }
    measured = {
        threads: dataset.measurements_of(
            model.key, threads=threads, cache="model", resources={"core_set": timing.settings.core_set}
        )
        for threads, timing in timings.items()
    }
    yield Run(
        where=url,
        model=model,
        device=device,
        operators={key: operator for key, (operator, _) in operators.items()},
        calls=tuple(calls[position] for position in sorted(calls)),
        timings=timings,
        measurements={n: {k: row for k, row in rows.items() if row.complete} for n, rows in measured.items()},
    )


def _thread_counts(dataset: Dataset, model_key: str) -> list[int]:
    timing, settings = schema.model_timings, schema.settings
    query = (
        select(settings.c.threads)
        .join(timing, timing.c.settings_key == settings.c.key)
        .where(timing.c.model_key == model_key, settings.c.cache == "model", timing.c.complete)
        .distinct()
    )
    return sorted(row["threads"] for row in dataset.rows(query))
