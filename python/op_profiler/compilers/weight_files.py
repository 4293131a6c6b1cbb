"""Stores weights of a model in a file, one after the other; TVM's own format needs two more copies of all in memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import DeviceArray

_MUCH_BYTES = 1 << 26
_KINDS = {"bool": "uint8", "bfloat16": "uint16"}
"""Types of TVM that numpy does not have, or stores in other bytes, and the type with the same bytes."""


def bytes_of(array: DeviceArray) -> int:
    """Return the size of an array in bytes."""
    return math.prod(map(int, array.shape)) * _width(str(array.dtype))


def _width(dtype: str) -> int:
    import numpy as np

    return np.dtype(_KINDS.get(dtype, dtype)).itemsize


def drop_copies(weights: Mapping[str, DeviceArray]) -> None:
    """Collect garbage if the weights are large. This frees copies of weights that only unreachable objects keep alive,
    such as errors that keep the frames of an importer."""
    if sum(map(bytes_of, weights.values())) > _MUCH_BYTES:
        gc.collect()
        return_freed_memory()


def return_freed_memory() -> None:
    """Return freed memory to the operating system: glibc keeps freed blocks of up to 32 MB, into which the next weight
    may not fit."""
    with contextlib.suppress(AttributeError):  # a C library other than glibc
        ctypes.CDLL(None).malloc_trim(0)


def write_weights(path: Path, weights: Mapping[str, DeviceArray]) -> None:
    """Write arrays that are in the memory of this machine.

    Raises:
        OSError: the disk is full, or a similar error.
    """
    about = [[name, str(array.dtype), [int(size) for size in array.shape]] for name, array in weights.items()]
    head = json.dumps(about).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for array in weights.values():
            array.numpy().tofile(file)


def read_weights(path: Path) -> dict[str, DeviceArray]:
    """Read the file that `write_weights` wrote.

    Raises:
        OSError, ValueError, KeyError, TypeError: `write_weights` did not write the file, or the file is cut off.
    """
    import numpy as np

    tvm = load_tvm()
    empty = tvm.runtime.empty if hasattr(tvm.runtime, "empty") else tvm.nd.empty  # TVM with Relax, TVM with Relay
    weights: dict[str, Any] = {}
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if size > path.stat().st_size:
            raise ValueError(f"{path} contains no weights")
        for name, dtype, shape in json.loads(file.read(size)):
            count = math.prod(shape)
            values = np.fromfile(file, np.dtype(_KINDS.get(dtype, dtype)), count)
            if len(values) < count:
                raise ValueError(f"{path} is cut off")
            array = empty(tuple(shape), dtype)
            array.copyfrom(values.reshape(shape).view("bool") if dtype == "bool" else values.reshape(shape))
            weights[name] = array
    return weights
