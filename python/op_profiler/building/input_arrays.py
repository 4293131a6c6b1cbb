"""The inputs of a requested model: their sizes, and the arrays of ``--inputdata`` or random ones."""

from __future__ import annotations

import dataclasses
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends.input_shapes import free_sizes, shapes_by_name

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec

_MOST_BYTES = 4 << 30  # unpacked: a few kB of a zip archive may claim to be any number


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz file by name; no pickle is read.

    Raises:
        UsageError: there is no such file, it is damaged or something else (a single .npy too), or an array is none of
            numbers.
    """
    import numpy as np

    if not path.is_file():
        raise UsageError(f"--inputdata {path}: there is no such file")
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MOST_BYTES:
                raise ValueError(f"it unpacks to more than {_MOST_BYTES >> 30} GiB")
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file.files}
        for name, array in arrays.items():
            if array.dtype.kind not in "biuf":
                raise ValueError(f"{name!r} holds {array.dtype}, which is no tensor's")
    except _DAMAGES as error:
        reason = str(error).strip() or type(error).__name__
        raise UsageError(
            f"--inputdata {path} is no .npz file of arrays that can be read ({reason}); "
            "write one with numpy.savez(path, NAME=array, ...), a name for every input"
        ) from error
    return arrays


_DAMAGES = (
    *(OSError, ValueError, EOFError, KeyError, TypeError, SyntaxError, OverflowError, MemoryError, RuntimeError),
    *(zipfile.BadZipFile, zlib.error, NotImplementedError),
)
"""What numpy and zipfile raise over files that are no archives of arrays."""


def static_inputs(model: ImportedModel, request: BuildRequest) -> list[Any]:
    """The model's inputs with every dynamic dimension replaced by the size that the user gave.

    Raises:
        ModelError: there are dynamic dimensions, and no sizes for them or not the executor that can run them.
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
    """The arrays of ``--inputdata``; empty where none were given.

    Raises:
        UsageError: the file does not hold an array of the right shape for every input.
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
    """The same arrays in every process."""
    import numpy as np

    rng = np.random.default_rng(0)
    return {spec.name: spec.random(rng) for spec in specs}
