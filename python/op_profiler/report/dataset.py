"""Tables of a dataset's contents and failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from op_profiler.building.request import EXECUTORS
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.option_values import threads_text
from op_profiler.report.tables import numbers, screen, show_table, texts

if TYPE_CHECKING:
    from op_profiler.dataset.maintain import Contents, ModelContents
    from op_profiler.dataset.row import Failure


def show_contents(held: Contents) -> None:
    """Print tables of a dataset's models and devices, then the numbers of other measurements and of failures, and the
    size of the dataset."""
    console = screen()
    rows = [
        [
            model.key,
            f"{model.source}:{model.name}, batch {model.batch_size}" + (f", run {model.label}" if model.label else ""),
            ", ".join(_built_by(model)) or "-",
            {None: "-", False: "default", True: "tuned"}[model.tuned],
            model.precision,
            model.target,
            ",".join(map(str, model.threads)),
            *map(str, (model.operators, model.measured, model.failed)),
            *map(str, (model.foreign_load, model.unsettled, model.unfinished)),
        ]
        for model in held.models
    ]
    headings = [
        *numbers("key"),  # it is copied into other commands
        *texts("model"),
        *texts("built by", "schedules", "precision", "target", rank=1),
        *numbers("threads", rank=1),
        *numbers("operators", "times", "failed", rank=2),
        *numbers("background load", "not converged", "unfinished", rank=3),
    ]
    show_table(console, f"models: {len(held.models)}", headings, rows)
    names = ("key", "kind", "processor", "cores", "rows")
    machines = [[str(device[name] or "-") for name in names] for device in held.devices]
    headings = [*numbers("key"), *texts("kind", "processor"), *numbers("cores", "measurements")]
    show_table(console, f"devices: {len(held.devices)}", headings, machines)
    elsewhere = ", ".join(f"{count} {origin}" for origin, count in sorted(held.elsewhere.items())) or "none"
    print(f"measurements outside models: {elsewhere}; groups side by side: {held.coruns}")
    print(
        f"failures: {held.failures} (--failures lists them); {held.size_bytes / 1e6:.1f} MB, "
        f"tables of version {held.version}"
    )


def _built_by(model: ModelContents) -> Iterator[str]:
    """Return the compiler of a model, and its options that differ from the default."""
    if model.compiler is not None:
        yield model.compiler
    if model.pipeline not in (None, DEFAULT_PIPELINE):
        yield f"pipeline {model.pipeline}"
    if model.executor != EXECUTORS[0]:
        yield f"executor {model.executor}"


def show_failures(failures: Sequence[Failure], models: Mapping[str, str]) -> None:
    """Print one line per failure, the newest first.

    Args:
        models: names of models by key.
    """
    for one in failures:
        where = models.get(one.model_key, "outside models")
        state = ", ".join(f"{name} {value}" for name, value in (one.machine_state or {}).items() if value is not None)
        kept = f"; the time of {one.timed_at[:16]} stands" if one.timed_at else ""
        place = f"{threads_text(one.settings.threads)}, {one.settings.cache}"
        what = (
            f"{where}: {one.operator_label or 'the whole model'} at {place}"
            if one.model_key or one.operator_name
            else "quarantined"
        )
        print(f"{one.failed_at[:16]} {one.cause}: {what}: {one.error}{kept}" + (f" [{state}]" if state else ""))
    if not failures:
        print("no failures")
