"""Rewrites valid ONNX graphs that TVM's importers reject or silently mistake for something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.onnx_graph import (
    Dims,
    attribute,
    graphs_in,
    replace,
    set_attributes,
    sizes_in,
    tensors_in,
    types_in,
)
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_rewriting import Rewriting, add_constant, with_defaults
from op_profiler.frontends.importers.pool_windows import begins_outside, reach_behind

_SMALL_FLOATS = ("FLOAT8", "FLOAT4")
_SMALL = (*_SMALL_FLOATS, "INT4", "UINT4", "INT2", "UINT2")  # what names of types begin with
_TEXTS = ("value_string", "value_strings")
_MAKERS = ("Cast", "CastLike", "QuantizeLinear")  # of other numbers, which importers do not cut off
_BROADCAST = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
_POOLS = ("AveragePool", "LpPool", "MaxPool")
_VALUES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")  # that importers know some of


def note_small_numbers(model: Any, shapes: Mapping[str, Dims], name: str) -> tuple[str, ...]:
    """Return notes about integers of fewer than eight bits and floats of eight bits, which importers convert to other
    types.

    Args:
        shapes: shapes of the inputs.
        name: name of the model, for error messages.

    Raises:
        ModelError: the conversion would change the results.
    """
    nodes = [node for graph in graphs_in(model.graph) for node in graph.node]
    kinds = {tensor.data_type for tensor in tensors_in(model)}
    kinds |= {one.type.tensor_type.elem_type for one in model.graph.input}
    kinds |= {attribute(node, named, 0) for node in nodes for named in ("to", "output_dtype")}
    if "STRING" in map(_kind, kinds) or any(attribute(node, named, None) for node in nodes for named in _TEXTS):
        raise ModelError(
            f"{name} does not lower: it has tensors of strings, which TVM does not; leave them out of the model"
        )
    if not any(_kind(one).startswith(_SMALL) for one in kinds):
        return ()
    types = types_in(model, shapes)
    made = [types[out].tensor_type.elem_type for n in nodes if n.op_type in _MAKERS for out in n.output if out in types]
    refused = [one for one in map(_kind, kinds) if one.startswith(_SMALL_FLOATS)]
    refused += [one for one in map(_kind, made) if one.startswith(_SMALL)]
    if refused:
        raise ModelError(f"{name} does not lower: it has numbers of type {refused[0]}; export it with int8 or float16")
    return ("numbers of four bits are held in eight",)


def _kind(number: int) -> str:
    """Return ONNX's name of a type of elements; empty if the number stands for no type."""
    return str(TensorProto.DataType.Name(number)) if number in TensorProto.DataType.values() else ""


def with_tensors(graph: Any) -> None:
    """Rewrite every Constant node so that its value is a tensor, because TVM does not support numbers and lists."""
    for one in graphs_in(graph):
        for node in one.node:
            sparse = attribute(node, "sparse_value", None) if node.op_type == "Constant" else None
            if sparse is not None:
                replace(node.attribute, [helper.make_attribute("value", numpy_helper.from_array(_dense(sparse)))])
                continue
            number = next((a for a in node.attribute if a.name in _VALUES), None)
            if node.op_type != "Constant" or number is None:
                continue
            array = np.array(helper.get_attribute_value(number), _VALUES[number.name])
            replace(node.attribute, [helper.make_attribute("value", numpy_helper.from_array(array))])


def _dense(sparse: Any) -> Any:
    """Return the array of a sparse tensor, whose indices are into the flat array or along each axis."""
    values, places = (numpy_helper.to_array(one) for one in (sparse.values, sparse.indices))
    array = np.zeros([*sparse.dims], values.dtype)
    if places.ndim == 1:
        array.reshape(-1)[places] = values
    else:
        array[tuple(places.T)] = values
    return array


def reliable_sizes(model: Any, shapes: Mapping[str, Dims]) -> dict[str, Dims]:
    """Return the sizes of all tensors that onnx infers; empty if the model has a pool whose size onnx infers wrongly,
    because it counts a window that begins outside the data."""
    sizes = sizes_in(model, shapes)
    pools = [n for graph in graphs_in(model.graph) for n in graph.node if n.op_type in _POOLS]
    return {} if any(attribute(one, "ceil_mode", 0) and True in _outside(one, sizes) for one in pools) else sizes


def _outside(node: Any, sizes: Mapping[str, Dims]) -> list[bool | None]:
    """Return for each dimension whether the last window of a pool starts outside, as `begins_outside` returns it."""
    return [begins_outside(*span) for span in _windows(node, sizes)]


def _windows(node: Any, sizes: Mapping[str, Dims]) -> list[tuple[Any, int, int, tuple[int, int], int]]:
    """Return the windows of a pool by dimension, as arguments of `begins_outside`."""
    kernel = attribute(node, "kernel_shape", [])
    ones, rank = [1] * len(kernel), len(kernel)
    pads = attribute(node, "pads", [0] * 2 * rank)
    spans = zip(
        sizes.get(node.input[0], (None,) * (rank + 2))[2:],
        kernel,
        attribute(node, "strides", ones),
        zip(pads[:rank], pads[rank:], strict=True),
        attribute(node, "dilations", ones),
        strict=True,
    )
    return list(spans)


class Repairs(Rewriting):
    """Rewrites the nodes of one model that every importer gets wrong."""

    def fold_whole_numbers(self) -> None:
        """Replace known sizes, and values computed from sizes, by constants. ONNX's functions compute with sizes, so
        that they work for any size, but importers do not support all of these computations."""
        types = types_in(self.model, self.shapes)
        whole = {name for name, one in types.items() if one.tensor_type.elem_type == TensorProto.INT64}
        for graph in graphs_in(self.model.graph):
            nodes: list[Any] = []
            for node in graph.node:
                is_whole = len(node.output) == 1 and node.output[0] in whole
                nodes += self.folded(graph, node) if is_whole else [node]
            replace(graph.node, nodes)

    def for_all(self) -> None:
        """Rewrite all nodes that every importer gets wrong.

        Raises:
            ModelError: a node cannot be rewritten, or is an operator of another vendor.
        """
        self._refuse_vendors()
        self.rewrite(
            {
                "Pad": self._pad,
                "Resize": self._resize,
                "Split": self._split,
                "Cast": with_defaults(saturate=None, round_mode=None),  # they concern fewer than eight bits only
                "DFT": self._dft,
                "EyeLike": self._eye_like,
                "Dropout": self._dropout,
                "Range": self.folded,  # ONNX's own functions make it of tensors, of which importers know no form
                **dict.fromkeys(("AveragePool", "MaxPool"), self._pool),
            }
        )
        if self.opset < 7:
            self.rewrite(dict.fromkeys(_BROADCAST, self._broadcast))
        self.rewrite({"QLinearAveragePool": self._pool}, domains=("com.microsoft",))

    def _refuse_vendors(self) -> None:
        """Reject operators of other vendors, which importers mistake for ONNX operators of the same name."""
        nodes = [node for graph in graphs_in(self.model.graph) for node in graph.node]
        if foreign := sorted({f"{node.domain}::{node.op_type}" for node in nodes if node.domain not in _DOMAINS}):
            raise ModelError(f"{self.name} does not lower: TVM has no converter for {', '.join(foreign)}")

    def _broadcast(self, graph: Any, node: Any) -> list[Any]:
        """Reshape a second input whose position is given by an axis, as before opset 7; importers use the last axes."""
        axis = attribute(node, "axis", None)
        set_attributes(node, axis=None, broadcast=None, consumed_inputs=None)
        if axis is None:
            return [node]
        if any(name not in self.sizes for name in node.input):
            raise self.refused(node, "broadcasts along an axis, and the ranks of its inputs are only known at run time")
        rank, own = (len(self.sizes[name]) for name in node.input)
        behind = rank - own - axis % rank
        if not behind:
            return [node]
        aligned = f"{node.output[0]}__aligned"
        earlier = helper.make_node("Unsqueeze", [node.input[1]], [aligned], axes=list(range(own, own + behind)))
        node.input[1] = aligned
        return [earlier, node]

    def _dropout(self, graph: Any, node: Any) -> list[Any]:
        training = self.known(node, 2, "a training mode") if len(node.input) > 2 and node.input[2] else False
        if training:
            raise self.refused(node, "drops at random, as in training; export the model for use")
        set_attributes(node, seed=None)
        return [node]

    def _eye_like(self, graph: Any, node: Any) -> list[Any]:
        """Write the matrix as a constant: importers write a shifted diagonal outside of the matrix's memory."""
        dims = self.sizes.get(node.input[0])
        if dims is None or None in dims:
            raise self.refused(
                node, "makes a matrix of a size that is free; give the sizes of inputs with --inputshape"
            )
        rows, columns = dims
        shift = min(max(attribute(node, "k", 0), -rows), columns)
        element = attribute(node, "dtype", self.element_of(node.input[0])) or TensorProto.FLOAT
        matrix = np.eye(rows, columns, shift, helper.tensor_dtype_to_np_dtype(element))
        graph.initializer.append(numpy_helper.from_array(matrix, node.output[0]))
        return []

    def _dft(self, graph: Any, node: Any) -> list[Any]:
        """Turn an axis that is an input into an attribute, the only form that importers support."""
        if self.opset < 20:
            return [node]
        axis = int(self.known(node, 2, "an axis").reshape(-1)[0]) if len(node.input) > 2 and node.input[2] else -2
        set_attributes(node, axis=axis)
        replace(node.input, node.input[:2])
        return [node]

    def _pool(self, graph: Any, node: Any) -> list[Any]:
        """Rewrite pools with windows beyond the data, and indices in another order.

        ONNX drops windows that would start in the padding; importers drop them along no axis or along every axis.
        Elements after the padding do not count in a mean. The storage order applies to the indices only; importers
        apply it to the data.
        """
        if len(node.output) < 2:
            set_attributes(node, storage_order=None)
        if not attribute(node, "ceil_mode", 0) or attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return [node]
        outside = _outside(node, self.sizes)
        counted = attribute(node, "count_include_pad", 0)
        if True in outside and False not in outside:
            set_attributes(node, ceil_mode=0)
        windows = _windows(node, self.sizes)
        mixed = {True, False} <= set(outside) and all(data is not None for data, *_ in windows)
        if not mixed or len(node.output) > 1 or counted and node.op_type != "AveragePool":
            return [node]
        before = [pads[0] for *_, pads, _ in windows]
        reach = [max(0, reach_behind(*one)) for one in windows]
        if not counted:
            set_attributes(node, ceil_mode=0, pads=before + reach)
            return [node]
        zeros = [min(more, pads[1]) for more, (*_, pads, _) in zip(reach, windows, strict=True)]
        beyond = [more - zero for more, zero in zip(reach, zeros, strict=True)]
        set_attributes(node, ceil_mode=0, count_include_pad=0, pads=[0] * len(beyond) + beyond)
        if not any(before + zeros):
            return [node]
        writer = NodeWriter(graph, node, self.opset, self.kind_of(node.input[0]))
        node.input[0] = writer.padded(node.input[0], [0, 0, *before, 0, 0, *zeros])
        return [*writer.nodes, node]

    def _split(self, graph: Any, node: Any) -> list[Any]:
        """Write the sizes of parts if the last one is smaller: importers split into equal parts."""
        parts, axis = attribute(node, "num_outputs", None), attribute(node, "axis", 0)
        dims = self.sizes.get(node.input[0], ()) if parts else ()
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if not size or size % parts == 0:
            return [node]
        each = -(-size // parts)
        last = size - each * (parts - 1)
        if last < 1:
            raise self.refused(node, f"cannot divide {size} elements into {parts} parts")
        set_attributes(node, num_outputs=None)
        replace(node.input, [node.input[0], add_constant(graph, node, "sizes", [each] * (parts - 1) + [last], "int64")])
        return [node]

    def _pad(self, graph: Any, node: Any) -> list[Any]:
        """Write pads for all axes: Relay's importer ignores an input with axes."""
        if len(node.input) < 4:
            return [node]
        inputs = list(node.input[:3])
        if node.input[3]:
            full = np.zeros((2, self.rank(node)), "int64")
            full[:, self.known(node, 3, "axes")] = self.known(node, 1, "pads").reshape(2, -1)
            inputs[1] = add_constant(graph, node, "pads", full.reshape(-1), "int64")
        replace(node.input, inputs if inputs[2] else inputs[:2])
        return [node]

    def _resize(self, graph: Any, node: Any) -> list[Any]:
        """Write sizes for all axes: importers ignore the axes, and never resize the first two."""
        axes = attribute(node, "axes", None)
        if axes is None:
            return [node]
        rank = self.rank(node)
        dims = np.array([size or 0 for size in self.sizes[node.input[0]]])
        inputs = [*node.input, "", "", ""][:4]
        for place, what, kind in ((1, "roi", "float32"), (2, "scales", "float32"), (3, "sizes", "int64")):
            given = self.known(node, place, what) if inputs[place] else np.zeros(0)
            if not given.size:
                continue
            full = np.stack([np.zeros(rank), np.ones(rank)]) if what == "roi" else np.ones(rank)
            full = dims.copy() if what == "sizes" else full
            full[..., axes] = given.reshape(2, -1) if what == "roi" else given
            if what != "roi" and (full[:2] != (dims if what == "sizes" else np.ones(rank))[:2]).any():
                raise self.refused(node, "resizes one of the first two axes, which TVM does not; transpose around it")
            if (full == 0).any() and what == "sizes":
                raise self.refused(node, "leaves an axis as it is whose size is only known at run time")
            inputs[place] = add_constant(graph, node, what, full.reshape(-1), kind)
        while not inputs[-1]:
            inputs.pop()
        replace(node.input, inputs)
        set_attributes(node, axes=None)
        return [node]
