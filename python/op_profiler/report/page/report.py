"""Creates pages from the models that a user names: ``op-profiler report``, and ``--report`` of other commands."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import ColumnElement, exists, or_, select

import op_profiler
from op_profiler.dataset import schema
from op_profiler.errors import UnknownNameError
from op_profiler.report.page.document import ModelPart, Report
from op_profiler.report.page.models import content_of, model_part
from op_profiler.report.page.several_models import Analysis, ComparisonPart, CorunPart
from op_profiler.report.page.shell import write_page

if TYPE_CHECKING:
    from op_profiler.dataset import Dataset
    from op_profiler.dataset.row import Model

_FEWEST_DIGITS = 6
_SHORT_KEY = re.compile(f"[0-9a-f]{{1,{_FEWEST_DIGITS - 1}}}")
_HAS_TIMES = exists().where(schema.model_timings.c.model_key == schema.models.c.key)
_SAME = ("name", "source", "batch_size", "precision", "executor", "label")


def chosen_models(dataset: Dataset, names: Sequence[str]) -> list[Model]:
    """Return the models with these names, in the order of the names, without duplicates.

    Args:
        names: each a model's name, ``source:name``, or at least six digits of the beginning of a key. If several models
            have the same name, for example with different batch sizes, the latest model with times is chosen, followed
            by the same model on every other device. If none has times, as after a dry run, the latest is chosen.

    Raises:
        UnknownNameError: there is no such model; the message names the most similar.
    """
    found: dict[str, Model] = {}
    for name in names:
        model = _chosen_model(dataset, name)
        if model is None:
            known = select(schema.models.c.name).distinct().order_by(schema.models.c.name)
            hint = f"The beginning of a key has {_FEWEST_DIGITS} digits or more." if _SHORT_KEY.fullmatch(name) else ""
            raise UnknownNameError("model", name, [row["name"] for row in dataset.rows(known)], hint)
        named = name in (model.name, f"{model.source}:{model.name}")
        for one in _everywhere(dataset, model) if named else [model]:
            found.setdefault(one.key, one)
    return list(found.values())


def _chosen_model(dataset: Dataset, name: str) -> Model | None:
    table = schema.models.c
    ways: list[ColumnElement[bool]] = [or_(table.name == name, table.source + ":" + table.name == name)]
    if len(name) >= _FEWEST_DIGITS:
        ways.append(table.key.startswith(name, autoescape=True))
    for way in ways:
        for row in dataset.rows(
            select(table.key).where(way).order_by(_HAS_TIMES.desc(), table.added_at.desc()).limit(1)
        ):
            return dataset.find_model(row["key"])
    return None


def _everywhere(dataset: Dataset, model: Model) -> list[Model]:
    """Return a model, followed by the latest collection of the same model on every other device, as in
    `chosen_models`."""
    here = dataset.find_device(model.device_key or "")
    if here is None:
        return [model]
    table = schema.models.c
    same = [table[name] == getattr(model, name) for name in _SAME]
    found: dict[str, Model] = {}
    for row in dataset.rows(select(table.key).where(*same).order_by(_HAS_TIMES, table.added_at)):
        other = dataset.find_model(row["key"])
        device = dataset.find_device(other.device_key or "") if other is not None else None
        if other is None or device is None or device.identity == here.identity:
            continue
        if (device.compiler, content_of(other)) == (here.compiler, content_of(model)):
            found[device.identity] = other
    return [model, *found.values()]


def report_of(
    models: Sequence[ModelPart] = (),
    coruns: Sequence[CorunPart] = (),
    analysis: Analysis | None = None,
    comparison: ComparisonPart | None = None,
) -> Report:
    """Return a report of models, co-runs, analyses and comparisons."""
    names = [*(m.title for m in models[:3]), *(c.title for c in coruns), *(["factors"] if analysis else [])]
    names += [f"changes of {comparison.title}"] if comparison else []
    return Report(
        title=" + ".join(dict.fromkeys(names)),
        made_at=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        version=op_profiler.__version__,
        models=list(models),
        coruns=list(coruns),
        analysis=analysis,
        comparison=comparison,
    )


def write_report(path: Path, report: Report) -> None:
    """Write the page of a report.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    write_page(path, f"{report.title} · op_profiler", report)


def write_reports_of(path: Path, dataset: Dataset, keys: Sequence[str], note: Callable[[str], None]) -> None:
    """Write the report of a command's measurements.

    Args:
        keys: keys of the command's models; an empty key stands for a model that could not be lowered.
        note: called with a message if there is no model to report on.

    Raises:
        OpProfilerError: the file cannot be written.
    """
    found = [key for key in dict.fromkeys(keys) if key and dataset.find_model(key) is not None]
    if found:
        write_model_report(path, dataset, found)
    else:
        note(f"{path} is not written: there is no model to report on")


def model_report(dataset: Dataset, names: Sequence[str], predictor: str = "default") -> Report:
    """Return the report of models of a dataset.

    Args:
        names: as for `chosen_models`.
        predictor: predictor of the estimates: a name of `PREDICTORS`, or a file.

    Raises:
        UnknownNameError: there is no such model.
    """
    return report_of([model_part(dataset, model, predictor) for model in chosen_models(dataset, names)])


def write_model_report(path: Path, dataset: Dataset, names: Sequence[str]) -> Report:
    """Write the report of models of a dataset, and return it.

    Raises:
        OpProfilerError: there is no such model, or the file cannot be written.
    """
    report = model_report(dataset, names)
    write_report(path, report)
    return report
