"""Inputs of the model of a request: their sizes, and the user's arrays or random ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.building.input_arrays import read_arrays
from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends.input_shapes import free_sizes, shapes_by_name

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec


def static_inputs(model: ImportedModel, request: BuildRequest) -> list[Any]:
    """Return the model's inputs with every dynamic dimension replaced by the size that the user gave.

    Raises:
        ModelError: sizes of dynamic dimensions are missing, and the executor cannot run the model without them.
    """
    if all(None not in spec.shape for spec in model.inputs):
        return list(model.inputs)
    specs = []
    given = shapes_by_name(request.model, [spec.name for spec in model.inputs])
    for spec in model.inputs:
        if None in spec.shape:
            shape = given.get(spec.name, ())
            fixed = all(size in (None, wanted) for size, wanted in zip(spec.shape, shape))
            if len(shape) != len(spec.shape) or not fixed or request.executor != "vm":
                free = free_sizes({one.name: one.shape for one in model.inputs})
                raise ModelError(
                    f"{model.name} cannot be measured: {free}. Add --executor vm where sizes depend on values"
                )
            spec = dataclasses.replace(spec, shape=shape)
        specs.append(spec)
    return specs


def given_inputs(request: BuildRequest, model: ImportedModel) -> dict[str, np.ndarray]:
    """Return the arrays of ``--inputdata`` by input name; empty without this option.

    Raises:
        UsageError: the file does not contain an array of the right shape for every input.
    """
    if request.input_data is None:
        return {}
    arrays = read_arrays(Path(request.input_data))
    found = {}
    for spec in static_inputs(model, request):
        array = arrays.get(spec.name)
        if array is None or array.shape != tuple(spec.shape):
            have = "no such array" if array is None else f"shape {array.shape}"
            raise UsageError(
                f"--inputdata: {model.name} needs {spec.name!r} of shape {tuple(spec.shape)}; there is {have}"
            )
        found[spec.name] = array.astype(spec.dtype)
    return found


def random_inputs(specs: list[InputSpec]) -> dict[str, np.ndarray]:
    """Return random arrays, the same in every process."""
    rng = np.random.default_rng(0)
    return {spec.name: spec.random(rng) for spec in specs}
