"""Writes a model in file formats that other runtimes read.

This is done in a separate process: exporters may fail in any way, and torch's threads and its copy of the weights must
not exist when the measurement begins.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from op_profiler.building.request import BuildRequest
from op_profiler.building.requested_target import load_target
from op_profiler.child_processes import Child, carry_out
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import Form, NoReference
from op_profiler.frontends import FRONTENDS

INPUTS = "inputs.npz"
"""Name of the file with the input arrays; they are named by their position in the model's own framework."""
_GIVEN = "given.npz"


@dataclasses.dataclass(frozen=True, kw_only=True)
class FormsTask:
    """Task of the separate process: a model, the formats to write it in, and the folder for the files."""

    build: BuildRequest
    forms: tuple[Form, ...]
    folder: str


@dataclasses.dataclass(frozen=True)
class Forms:
    """The written files of a model.

    Attributes:
        files: written file of each format.
        problems: for each format without a file, the reason.
    """

    files: Mapping[Form, Path]
    problems: Mapping[Form, str]


def write_forms(build: BuildRequest, forms: Sequence[Form], inputs: Mapping[str, np.ndarray], folder: Path) -> Forms:
    """Write a model in each format, and its inputs as `INPUTS`.

    Args:
        inputs: arrays by their names in the imported model.
    """
    np.savez(folder / _GIVEN, **dict(inputs))  # type: ignore[arg-type]
    files: dict[Form, Path] = {}
    problems: dict[Form, str] = {}
    everything = "the process that writes it ended"
    task = FormsTask(build=build, forms=tuple(forms), folder=str(folder))
    with tempfile.TemporaryFile("w+") as log, Child(__name__, task, log) as child:
        for event in child.events():
            if "file" in event:
                files[event["form"]] = Path(event["file"])
            elif "form" in event:
                problems[event["form"]] = event["problem"]
            else:
                everything = event["error"]
    missing = {form: everything for form in forms if form not in files and form not in problems}
    return Forms(files, problems | missing)


def main() -> int:
    """Entry point of the process that writes a model in other formats."""
    return carry_out(FormsTask, _write)


def _write(task: FormsTask, send: Callable[..., None]) -> None:
    load_target(task.build)
    model = compiler_in_use().load_model(FRONTENDS.get(task.build.model.source), task.build.model)
    reference, folder = model.reference, Path(task.folder)
    if reference is None:
        for form in task.forms:
            send(form=form, problem=f"no other framework has {model.name}")
        return
    with np.load(folder / _GIVEN, allow_pickle=False) as given:
        by_name = {theirs: given[ours] for ours, theirs in reference.names_of(model.inputs).items()}
    arrays = [by_name[spec.name] for spec in reference.inputs]
    np.savez(folder / INPUTS, **{str(place): array for place, array in enumerate(arrays)})
    for form in task.forms:
        try:
            send(form=form, file=str(reference.write(form, folder, arrays)))
        except NoReference as error:
            send(form=form, problem=str(error))
        except Exception as error:  # noqa: BLE001 - whatever an exporter raises
            line = (str(error).strip() or type(error).__name__).splitlines()[0]
            send(form=form, problem=f"its {form} form cannot be written: {line[:300]}")
