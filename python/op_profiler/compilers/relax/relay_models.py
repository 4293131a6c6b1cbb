"""Imports models with Relay, in a process that loads the other TVM, and rebuilds them in Relax."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from op_profiler.child_processes import Child, carry_out, python_path
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import use_compiler
from op_profiler.compilers.imported_model import FrameworkReference, ImportedModel, InputSpec, NoReference
from op_profiler.compilers.relax import tvm_package
from op_profiler.compilers.relax.from_relay import read_graph
from op_profiler.compilers.relay.plain_graph import write_graph
from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.lowered_cache import original_model
from op_profiler.frontends.references.values import read_arrays, write_arrays


class _Task(msgspec.Struct, frozen=True):
    """The task of the process with Relay.

    Attributes:
        folder: folder for the results.
        batches: number of batches of inputs in the folder for which the process computes the outputs of the model's own
            framework; 0 to import the model.
    """

    request: ModelRequest
    folder: str
    batches: int = 0


class _Import:
    """A running process that imports with Relay and writes its results into a temporary folder."""

    def __init__(self, request: ModelRequest, batches: Sequence[Mapping[str, np.ndarray]] = ()) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="op_profiler-")
        for number, batch in enumerate(batches):
            named: dict[str, Any] = dict(batch)
            np.savez(Path(self.folder.name) / f"in{number}.npz", **named)
        task = _Task(request, self.folder.name, len(batches))
        self._child = Child(__name__, task, path=tvm_package.without(python_path()))

    def answer(self) -> dict[str, Any]:
        """Return the values that the process sent; a dictionary with only ``error`` if it sent nothing."""
        about = next(self._child.events(), None)
        return about or {"error": f"the process with Relay ended with {self._child.process.wait()}"}

    def close(self) -> None:
        """Kill the process, and remove its files."""
        with self.folder, self._child:
            pass


_begun: dict[ModelRequest, _Import] = {}


def begin(request: ModelRequest) -> None:
    """Start importing a model in the process with Relay, for which `load_from_relay` then waits. This process needs no
    TVM for this call.

    An earlier import that was not used belongs to a failed call, and is discarded because files may have changed since.
    """
    stale = _begun.pop(request, None)
    if stale is not None:
        stale.close()
    _begun[request] = _Import(request)


def load_from_relay(request: ModelRequest) -> ImportedModel:
    """Return the model in Relax, as Relay imports it; its weights are constants of the module.

    Raises:
        ModelError: Relay does not import it, or it has an op that has no counterpart in Relax.
    """
    with contextlib.closing(_begun.pop(request) if request in _begun else _Import(request)) as begun:
        about = begun.answer()
        if "error" in about:
            raise ModelError(about["error"])
        module = read_graph(Path(begun.folder.name))
    inputs = tuple(InputSpec(**(spec | {"shape": tuple(spec["shape"])})) for spec in about["inputs"])
    notes, compared = tuple(about["notes"]), FRONTENDS.get(request.source).has_framework(request)
    reference = _InRelaysProcess(request, inputs) if compared else None
    return ImportedModel(
        request.name, request.source, module, {}, inputs, about["batch_size"], notes, reference=reference
    )


class _InRelaysProcess(FrameworkReference):
    """The model's own framework, in a process that can import the model with Relay.

    Args:
        inputs: inputs of the imported model.
    """

    framework = "its own framework"

    def __init__(self, request: ModelRequest, inputs: tuple[InputSpec, ...]) -> None:
        self.inputs = inputs
        self._request = request

    def outputs(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        with contextlib.closing(_Import(self._request, batches)) as begun:
            about = begun.answer()
            if "error" in about:
                raise NoReference(about["error"])
            self.framework = about["framework"]
            return [read_arrays(Path(begun.folder.name) / f"out{number}.npz") for number in range(len(batches))]


def main() -> int:
    """Run as the process that imports with Relay; return the exit code."""
    return carry_out(_Task, _carry_out)


def _carry_out(task: _Task, send: Callable[..., None]) -> None:
    """Write the graph and report the rest of the model, or write the outputs of the model's own framework."""
    use_compiler(DEFAULT_COMPILER)
    if task.batches:
        send(**_write_outputs(Path(task.folder), task.request, task.batches))
        return
    model = original_model(task.request)
    write_graph(Path(task.folder), model.mod, model.params)
    inputs = [dataclasses.asdict(spec) for spec in model.inputs]
    send(inputs=inputs, batch_size=model.batch_size, notes=model.notes)


def _write_outputs(folder: Path, request: ModelRequest, batches: int) -> dict[str, str]:
    """Write the outputs of the model's own framework for batches of the imported model's inputs; return its name."""
    model = FRONTENDS.get(request.source).load(request)
    reference = model.reference
    if reference is None:
        return {"error": "no other framework has this model"}
    rng = np.random.default_rng(0)
    given = []
    try:
        names = reference.names_of(model.inputs)
        for number in range(batches):
            with np.load(folder / f"in{number}.npz", allow_pickle=False) as arrays:
                found = {names[name]: arrays[name] for name in arrays.files}
            # an input that the importer dropped does not change the outputs
            given.append({s.name: found[s.name] if s.name in found else s.random(rng) for s in reference.inputs})
        outputs = reference.outputs(given)
    except NoReference as error:
        return {"error": str(error)}
    for number, values in enumerate(outputs):
        write_arrays(folder / f"out{number}.npz", values)
    return {"framework": reference.framework}
