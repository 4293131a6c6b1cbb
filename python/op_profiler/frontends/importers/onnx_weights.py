"""Reads the tensors of an ONNX file; a large one in an external file is read only when it is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import ExternalDataInfo, load_external_data_for_tensor, uses_external_data

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError
from op_profiler.frontends.importers.onnx_graph import (
    WEIGHT_ELEMENTS,
    Dims,
    elements_in,
    remove,
    tensors_in,
    used_inside,
)

_PACKED = ("INT2", "UINT2", "INT4", "UINT4", "FLOAT4E2M1")  # several elements a byte


class Weights:
    """The tensors of one model that was read without its external data.

    Large floating-point initializers stay outside the model, because protobuf would keep a second copy of them as long
    as the model exists. `array` reads them.

    Args:
        path: path of the model.

    Raises:
        ModelError: the data of a tensor is missing or cut off, or lies outside the folder of the model.
    """

    def __init__(self, model: Any, path: Path, *, all_inside: bool) -> None:
        self._path = path
        large = set() if all_inside else {t.name for t in model.graph.initializer if _is_weight(t)}
        large -= used_inside(model.graph.node)
        for tensor in tensors_in(model):
            if not uses_external_data(tensor):
                self._check_size(tensor, _stored(tensor))
                continue
            self._check_file(tensor)
            if tensor.name not in large:
                load_external_data_for_tensor(tensor, str(path.parent))
                tensor.data_location = 0
                del tensor.external_data[:]

    def array(self, tensor: Any) -> Any:
        """Return the values of a tensor, from an external file or from the model itself."""
        if not uses_external_data(tensor):
            return numpy_helper.to_array(tensor)
        about = ExternalDataInfo(tensor)
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).newbyteorder("<")
        file = self._path.parent / about.location
        return np.memmap(file, kind, "r", about.offset or 0, tuple(tensor.dims))

    def take_out(self, graph: Any, shapes: dict[str, Dims]) -> dict[str, Any]:
        """Turn the large tensors into inputs, and return them as parameters of the Relay module.

        As constants inside the module, they would be copied by every pass that the importer runs.

        Args:
            shapes: shapes of the inputs; those of the new inputs are added.
        """
        tvm, weights = load_tvm(), {}
        inside = used_inside(graph.node)  # TVM looks for these among the constants
        for tensor in graph.initializer:
            array = self.array(tensor)
            if array.dtype.kind != "f" or array.size < WEIGHT_ELEMENTS or tensor.name in inside:
                continue
            weights[tensor.name] = tvm.nd.array(array)
            shapes[tensor.name] = tuple(array.shape)
            graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, array.shape))
        remove(graph.initializer, weights)
        return weights

    def _check_file(self, tensor: Any) -> None:
        about, folder = ExternalDataInfo(tensor), self._path.parent.resolve()
        file = (folder / about.location).resolve()
        if not file.is_relative_to(folder):
            raise self._damaged(tensor, f"its data lies in {about.location}, outside the folder of the model")
        if not file.is_file():
            raise self._damaged(tensor, f"its data lies in {about.location}, which does not exist")
        there = max(file.stat().st_size - (about.offset or 0), 0)
        self._check_size(tensor, min(there, about.length or there), " of " + about.location)

    def _check_size(self, tensor: Any, stored: int | None, where: str = "") -> None:
        """Reject a tensor with fewer stored bytes than its shape and type require."""
        wanted = _size(tensor)
        if stored is not None and wanted is not None and stored < wanted:
            raise self._damaged(tensor, f"it needs {wanted} bytes{where}, and {stored} are there")

    def _damaged(self, tensor: Any, why: str) -> ModelError:
        return ModelError(
            f"{self._path} cannot be read as ONNX: tensor {tensor.name!r} is incomplete: {why}. Copy the model again, "
            "with the files beside it"
        )


def _is_weight(tensor: Any) -> bool:
    floats = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
    return tensor.data_type in floats and elements_in(tensor) >= WEIGHT_ELEMENTS


def _size(tensor: Any) -> int | None:
    """Return the bytes of all elements; None if elements are not whole bytes, or if the type is unknown."""
    known = tensor.data_type in TensorProto.DataType.values()
    name = TensorProto.DataType.Name(tensor.data_type) if known else "UNDEFINED"
    if name in ("UNDEFINED", "STRING", *_PACKED):
        return None
    return elements_in(tensor) * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _stored(tensor: Any) -> int | None:
    """Return the number of bytes of a tensor that are stored in the model itself; None if it is unknown."""
    if tensor.HasField("raw_data"):
        return len(tensor.raw_data)
    size, elements = _size(tensor), elements_in(tensor)
    if size is None or not elements:
        return None
    field = helper.tensor_dtype_to_field(tensor.data_type)
    numbers = len(getattr(tensor, field)) // (2 if "COMPLEX" in helper.tensor_dtype_to_string(tensor.data_type) else 1)
    return numbers * (size // elements)
