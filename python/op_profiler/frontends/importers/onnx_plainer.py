"""Rewrites ONNX operators in forms that Relay's importer supports: with optional inputs, and in supported number
types."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from op_profiler.frontends.importers.onnx_graph import attribute, replace, set_attributes
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_resize import FractionalScales
from op_profiler.frontends.importers.onnx_rewriting import Rewriting
from op_profiler.frontends.importers.pool_windows import reach_behind

_SHIFT = 128  # from numbers of eight bits without a sign to those with one


class PlainerForms(Rewriting):
    """Rewrites the nodes of one model in forms that Relay's importer supports."""

    def spell_out(self) -> None:
        """Rewrite all nodes whose form Relay's importer does not support.

        Raises:
            ModelError: a node cannot be rewritten.
        """
        self.rewrite(
            {
                "Dropout": self._dropout,
                "GatherND": self._from_the_front,
                "GlobalLpPool": self._global_lp_pool,
                "LpPool": self._lp_pool,
                "Mod": self.folded,  # TVM compiles one of constants before `whole_quotients` gives it a form for LLVM
                "NonMaxSuppression": self._suppression,
                "TopK": self._top_k,
                "Unsqueeze": self._unsqueeze,
                **dict.fromkeys(("ConvInteger", "MatMulInteger"), self._integer_product),
                **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), self._zero_point),
                "ScatterElements": lambda graph, node: self._axis(graph, self._scatter(graph, node)[0]),
                **dict.fromkeys(("Gather", "GatherElements", "Scatter"), self._axis),
                "ScatterND": lambda graph, node: self._from_the_front(graph, self._scatter(graph, node)[0]),
            }
        )
        FractionalScales(self.model, self.shapes, self.name).spell_out()

    def _dropout(self, graph: Any, node: Any) -> list[Any]:
        """Remove a dropout: outside of training nothing is dropped, and the mask is true everywhere.

        The mask is undefined before opset 12, and zero in onnxruntime; before opset 10 it has the type of the data.
        """
        data, made = node.input[0], list(node.output)
        replace(node.input, [data])
        replace(node.output, made[:1])
        nodes = [node]
        if len(made) > 1 and made[1]:
            mask = NodeWriter(graph, node, self.opset)
            if self.opset < 10:
                mask.add("Sub", data, data, output=made[1])
            else:
                value = helper.make_tensor("value", TensorProto.BOOL, [1], [self.opset >= 12])
                mask.add("ConstantOfShape", mask.add("Shape", data), output=made[1], value=value)
            nodes += mask.nodes
        return nodes

    def _zero_point(self, graph: Any, node: Any) -> list[Any]:
        """Write a missing zero point: 0, with the shape of the scale."""
        if len(node.input) > 2 and node.input[2]:
            return [node]
        known = self.constants.value(node.input[1])
        shape = self.sizes.get(node.input[1]) if known is None else known.shape
        if shape is None or None in shape:
            raise self.refused(node, "has no zero point, and a scale whose shape is only known at run time")
        kind = attribute(node, "output_dtype", 0) or TensorProto.UINT8
        if node.op_type == "DequantizeLinear":
            kind = self.element_of(node.input[0]) or TensorProto.UINT8
        zeros = np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind))
        replace(node.input, [*node.input[:2], NodeWriter(graph, node, self.opset).constant(zeros, str(zeros.dtype))])
        return [node]

    def _writer(self, graph: Any, node: Any) -> NodeWriter:
        """Return a writer whose constants have the type of the node's data."""
        kinds = {TensorProto.FLOAT16: "float16", TensorProto.DOUBLE: "float64"}
        return NodeWriter(graph, node, self.opset, kinds.get(self.element_of(node.input[0]), "float32"))

    def _scatter(self, graph: Any, node: Any) -> list[Any]:
        """Remove the reduction `none`, which is the default."""
        if attribute(node, "reduction", b"none") == b"none":
            set_attributes(node, reduction=None)
        return [node]

    def _axis(self, graph: Any, node: Any) -> list[Any]:
        """Count an axis from the first one: Relay shifts negative indices by the size of the first axis instead."""
        axis = attribute(node, "axis", 0)
        if axis < 0:
            set_attributes(node, axis=axis + self.rank(node))
        return [node]

    def _top_k(self, graph: Any, node: Any) -> list[Any]:
        """Write the smallest values as the largest ones of the negative values, or of `top - x` for integers, because
        not all integers have a negative.

        Sorted results are a valid order if none is required.
        """
        smallest = not attribute(node, "largest", 1)
        set_attributes(node, largest=None, sorted=None)  # any order is valid
        if not smallest:
            return [node]
        kind = self.kind_of(node.input[0])
        writer = NodeWriter(graph, node, self.opset, kind)
        top = "" if kind.startswith("float") else writer.constant(np.iinfo(kind).max if kind.startswith("u") else -1)
        turn, before = ("Sub", [top]) if top else ("Neg", [])
        inputs = [writer.add(turn, *before, node.input[0]), *node.input[1:]]
        values, places = [*node.output, ""][:2]
        made = f"{values or places}__largest"
        largest = helper.make_node("TopK", inputs, [made, places], name=node.name)
        largest.attribute.extend(node.attribute)
        back = [helper.make_node(turn, [*before, made], [values], name=node.name)] if values else []
        return [*writer.nodes, largest, *back]

    def _unsqueeze(self, graph: Any, node: Any) -> list[Any]:
        """Replace negative or unordered axes by sorted axes of the result: Relay's importer inserts them one by one."""
        axes = attribute(node, "axes", None) or self.known(node, 1, "axes").reshape(-1).tolist()
        if min(axes, default=0) >= 0 and sorted(axes) == list(axes):
            return [node]
        rank = self.rank(node) + len(axes)
        writer = NodeWriter(graph, node, self.opset)
        plain = sorted(axis % rank for axis in axes)
        if self.opset < 13:
            return [helper.make_node("Unsqueeze", node.input[:1], node.output, name=node.name, axes=plain)]
        replace(node.input, [node.input[0], writer.constant(plain, "int64")])
        return [node]

    def _integer_product(self, graph: Any, node: Any) -> list[Any]:
        """Make both factors signed if only one of them is, and their zero points too."""
        kinds = [self.element_of(name) for name in node.input[:2]]
        if kinds[0] == kinds[1] or TensorProto.UINT8 not in kinds:
            return [node]
        unsigned = kinds.index(TensorProto.UINT8)
        writer = NodeWriter(graph, node, self.opset)
        shift = writer.constant(_SHIFT, "int32")
        inputs = [*node.input, "", ""][:4]
        inputs[unsigned] = self._with_sign(writer, inputs[unsigned], shift)
        zero = inputs[2 + unsigned]
        inputs[2 + unsigned] = self._with_sign(writer, zero, shift) if zero else writer.constant(-_SHIFT, "int8")
        inputs[3 - unsigned] = inputs[3 - unsigned] or writer.constant(0, "int8")
        replace(node.input, inputs)
        return [*writer.nodes, node]

    def _with_sign(self, writer: NodeWriter, name: str, shift: str) -> str:
        known = self.constants.value(name)
        if known is not None:
            return writer.constant(known.astype("int32") - _SHIFT, "int8")

        wide = writer.add("Cast", name, to=TensorProto.INT32)
        return writer.add("Cast", writer.add("Sub", wide, shift), to=TensorProto.INT8)

    def _from_the_front(self, graph: Any, node: Any) -> list[Any]:
        """Make indices non-negative if they may count from the end: Relay reads foreign memory at negative indices."""
        known = self.constants.value(node.input[1])
        if known is not None and (not known.size or known.min() >= 0):
            return [node]
        data, indices = self.sizes.get(node.input[0]), self.sizes.get(node.input[1])
        batch = attribute(node, "batch_dims", 0)
        if not data or not indices or indices[-1] is None or None in data[batch : batch + indices[-1]]:
            raise self.refused(
                node, "has indices and sizes that are only known at run time; export it with known sizes"
            )
        sizes = np.array(data[batch : batch + indices[-1]], "int64")
        writer = NodeWriter(graph, node, self.opset)
        if known is not None:
            node.input[1] = writer.constant(np.where(known < 0, known + sizes, known), "int64")
            return [node]
        behind = writer.add("Less", node.input[1], writer.constant(0, "int64"))
        moved = writer.add("Add", node.input[1], writer.constant(sizes, "int64"))
        node.input[1] = writer.add("Where", behind, moved, node.input[1])
        return [*writer.nodes, node]

    def _suppression(self, graph: Any, node: Any) -> list[Any]:
        """Write missing thresholds: TVM selects no score below zero, and drops boxes that overlap no other box."""
        most = self.constants.value(node.input[2]) if len(node.input) > 2 and node.input[2] else 0
        if most is not None and not np.any(most):  # TVM takes it for all
            raise self.refused(node, "selects 0 boxes of a class; give max_output_boxes_per_class")
        writer = NodeWriter(graph, node, self.opset)
        inputs = [*node.input, "", "", ""][:5]
        overlap = self.constants.value(inputs[3]) if inputs[3] else 0
        if overlap is not None and overlap <= 0:
            inputs[3] = writer.constant([1e-30])
        if not inputs[4]:  # the order of scores decides: all become positive
            lowest = writer.over_axes("ReduceMin", inputs[1], [0, 1, 2], since=18)
            inputs[1] = writer.add("Add", writer.add("Sub", inputs[1], lowest), writer.constant(1.0))
            inputs[4] = writer.constant([0.0])
        if not attribute(node, "center_point_box", 0):
            inputs[0] = self._with_corners_in_order(writer, inputs[0])
        replace(node.input, inputs)
        return [*writer.nodes, node]

    def _with_corners_in_order(self, writer: NodeWriter, boxes: str) -> str:
        """Return boxes by smallest and largest corners, as TVM requires; ONNX accepts any two opposite corners."""
        top, left, bottom, right = writer.split(boxes, 4, 2)
        corners = [writer.add(kind, *pair) for kind in ("Min", "Max") for pair in ((top, bottom), (left, right))]
        return writer.add("Concat", *corners, axis=2)

    def _global_lp_pool(self, graph: Any, node: Any) -> list[Any]:
        """Write the root of a sum of powers; Relay's importer keeps the signs, and uses the square root for some."""
        power = float(attribute(node, "p", 2))
        axes = list(range(2, self.rank(node)))
        writer = self._writer(graph, node)
        powers = writer.add("Pow", writer.add("Abs", node.input[0]), writer.constant(power))
        total = writer.over_axes("ReduceSum", powers, axes, since=13)
        writer.add("Pow", total, writer.constant(1 / power), output=node.output[0])
        return writer.nodes

    def _lp_pool(self, graph: Any, node: Any) -> list[Any]:
        """Write the root of a sum of powers over windows, with padding for windows beyond the data."""
        power = float(attribute(node, "p", 2))
        kernel = attribute(node, "kernel_shape", [])
        ones, rank = [1] * len(kernel), len(kernel)
        steps, apart = attribute(node, "strides", ones), attribute(node, "dilations", ones)
        pads = list(attribute(node, "pads", [0] * 2 * rank))
        if attribute(node, "ceil_mode", 0):
            data = self.sizes.get(node.input[0], ())[2:]
            if not data or None in data:
                raise self.refused(node, "rounds up, and has sizes that are only known at run time")
            windows = zip(data, kernel, steps, zip(pads[:rank], pads[rank:], strict=True), apart, strict=True)
            pads[rank:] = [max(0, reach_behind(*one)) for one in windows]
        writer = self._writer(graph, node)
        powers = writer.add("Pow", writer.add("Abs", node.input[0]), writer.constant(power))
        if any(pads):
            powers = writer.padded(powers, [0, 0, *pads[:rank], 0, 0, *pads[rank:]])
        options: dict[str, Any] = {"kernel_shape": kernel, "strides": steps}
        options |= {"dilations": apart} if apart != ones else {}
        mean = writer.add("AveragePool", powers, **options)
        total = writer.add("Mul", mean, writer.constant(float(math.prod(kernel))))
        writer.add("Pow", total, writer.constant(1 / power), output=node.output[0])
        return writer.nodes
