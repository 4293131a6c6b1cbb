"""Rewrites of ONNX graphs for what TVM's importers refuse though it is valid, or silently take for something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.onnx_graph import (
    Dims,
    attribute,
    graphs_in,
    replace,
    tensors_in,
    types_in,
)
from op_profiler.frontends.importers.onnx_rewriting import Rewriting, add_constant
from op_profiler.frontends.importers.pool_windows import WINDOWS_DIFFER, begins_outside

_SMALL_FLOATS = ("FLOAT8", "FLOAT4")
_SMALL = (*_SMALL_FLOATS, "INT4", "UINT4", "INT2", "UINT2")  # what names of types begin with
_MAKERS = ("Cast", "CastLike", "QuantizeLinear")  # of other numbers, which importers do not cut off
_VALUES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft")  # that importers know some of


def note_small_numbers(model: Any, shapes: Mapping[str, Dims], name: str) -> tuple[str, ...]:
    """What to say about numbers of fewer than eight bits, and floats of eight: importers take them for other types.

    Args:
        shapes: of the inputs.
        name: of the model, for errors.

    Raises:
        ModelError: other numbers would come of it.
    """
    nodes = [node for graph in graphs_in(model.graph) for node in graph.node]
    kinds = {tensor.data_type for tensor in tensors_in(model)}
    kinds |= {one.type.tensor_type.elem_type for one in model.graph.input}
    kinds |= {attribute(node, named, 0) for node in nodes for named in ("to", "output_dtype")}
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
    """The name of a type of elements."""
    from onnx import TensorProto

    return str(TensorProto.DataType.Name(number)) if number in TensorProto.DataType.values() else ""


def with_tensors(graph: Any) -> None:
    """Let every Constant hold a tensor: TVM knows no numbers and lists of them."""
    import numpy as np
    from onnx import helper, numpy_helper

    for one in graphs_in(graph):
        for node in one.node:
            number = next((a for a in node.attribute if a.name in _VALUES), None)
            if node.op_type != "Constant" or number is None:
                continue
            array = np.array(helper.get_attribute_value(number), _VALUES[number.name])
            replace(node.attribute, [helper.make_attribute("value", numpy_helper.from_array(array))])


class Repairs(Rewriting):
    """Of one model, for every importer."""

    def fold_whole_numbers(self) -> None:
        """Put known sizes, and what is calculated from them, into the graph: functions of ONNX fit any size, and
        importers do not know all that they calculate from shapes."""
        from onnx import TensorProto, numpy_helper

        types = types_in(self.model, self.shapes)
        whole = {name for name, one in types.items() if one.tensor_type.elem_type == TensorProto.INT64}
        for graph in graphs_in(self.model.graph):
            nodes = []
            for node in graph.node:
                is_whole = len(node.output) == 1 and node.output[0] in whole
                known = self.constants.value(node.output[0]) if is_whole else None
                if known is None:
                    nodes.append(node)
                else:
                    graph.initializer.append(numpy_helper.from_array(known, node.output[0]))
            replace(graph.node, nodes)

    def for_all(self) -> None:
        """What no importer gets right.

        Raises:
            ModelError: a node cannot be written in another way, or is another vendor's.
        """
        self._refuse_vendors()
        self.rewrite(
            {
                "Pad": self._pad,
                "Resize": self._resize,
                "Split": self._split,
                "BatchNormalization": self._norm,
                "Cast": self._cast,
                "DFT": self._dft,
                "Dropout": self._dropout,
                "LpPool": self._lp_pool,
                "MaxUnpool": self._unpool,
                "Range": self._range,
                "RoiAlign": self._roi,
                **dict.fromkeys(("AveragePool", "MaxPool"), self._pool),
            }
        )

    def _refuse_vendors(self) -> None:
        """Importers take an operator for ONNX's own of the same name."""
        nodes = [node for graph in graphs_in(self.model.graph) for node in graph.node]
        if foreign := sorted({f"{node.domain}::{node.op_type}" for node in nodes if node.domain not in _DOMAINS}):
            raise ModelError(f"{self.name} does not lower: TVM has no converter for {', '.join(foreign)}")

    def _norm(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "training_mode", 0):  # importers would take the statistics that were learned
            raise self.refused(node, "norms by the statistics of the batch, as in training; export the model for use")
        return [node]

    def _cast(self, graph: Any, node: Any) -> list[Any]:
        """How a cast to fewer than eight bits rounds, which says nothing of other types."""
        replace(node.attribute, [a for a in node.attribute if a.name not in ("saturate", "round_mode")])
        return [node]

    def _dropout(self, graph: Any, node: Any) -> list[Any]:
        training = self.known(node, 2, "a training mode") if len(node.input) > 2 and node.input[2] else False
        if training:
            raise self.refused(node, "drops at random, as in training; export the model for use")
        replace(node.attribute, [a for a in node.attribute if a.name != "seed"])
        return [node]

    def _dft(self, graph: Any, node: Any) -> list[Any]:
        """An axis as an input becomes an attribute, of which importers know no other form."""
        from onnx import helper

        if self.opset < 20:
            return [node]
        axis = int(self.known(node, 2, "an axis").reshape(-1)[0]) if len(node.input) > 2 and node.input[2] else -2
        node.attribute.append(helper.make_attribute("axis", axis))
        replace(node.input, node.input[:2])
        return [node]

    def _lp_pool(self, graph: Any, node: Any) -> list[Any]:
        """Importers do not take the absolute values, which an even power does without."""
        from onnx import helper

        if attribute(node, "p", 2) % 2 == 0:
            return [node]
        made = f"{node.output[0]}__absolute"
        absolute = helper.make_node("Abs", node.input[:1], [made], name=node.name)
        replace(node.input, [made])
        return [absolute, node]

    def _unpool(self, graph: Any, node: Any) -> list[Any]:
        if len(node.input) > 2 and node.input[2]:  # importers put values where they are in the smaller output
            raise self.refused(node, "names the size of its output, which TVM does not; leave it out")
        return [node]

    def _pool(self, graph: Any, node: Any) -> list[Any]:
        """Of windows that stick out, ONNX leaves out those that would begin in the padding. Importers keep them."""
        from onnx import helper

        if not attribute(node, "ceil_mode", 0) or attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return [node]
        kernel = attribute(node, "kernel_shape", [])
        ones, rank = [1] * len(kernel), len(kernel)
        pads = attribute(node, "pads", [0] * 2 * rank)
        dims = self.sizes.get(node.input[0], (None,) * (rank + 2))[2:]
        spans = zip(
            dims,
            kernel,
            attribute(node, "strides", ones),
            zip(pads[:rank], pads[rank:], strict=True),
            attribute(node, "dilations", ones),
            strict=True,
        )
        outside = [begins_outside(*span) for span in spans]
        if True not in outside:
            return [node]
        if False in outside:
            raise self.refused(node, f"{WINDOWS_DIFFER}; export it without ceil_mode")
        kept = [a for a in node.attribute if a.name != "ceil_mode"]
        replace(node.attribute, [*kept, helper.make_attribute("ceil_mode", 0)])
        return [node]

    def _range(self, graph: Any, node: Any) -> list[Any]:
        """One that is known: ONNX's own functions make it of tensors, of which importers know no form."""
        from onnx import numpy_helper

        known = self.constants.value(node.output[0])
        if known is None:
            return [node]
        graph.initializer.append(numpy_helper.from_array(known, node.output[0]))
        return []

    def _roi(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "mode", b"avg") == b"max":
            raise self.refused(
                node, "takes the largest of weighted values, which TVM does not; export it with averages"
            )
        return [node]

    def _split(self, graph: Any, node: Any) -> list[Any]:
        """Parts of which the last one is smaller: importers divide into equal ones."""
        parts, axis = attribute(node, "num_outputs", None), attribute(node, "axis", 0)
        dims = self.sizes.get(node.input[0], ()) if parts else ()
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if not size or size % parts == 0:
            return [node]
        each = -(-size // parts)
        last = size - each * (parts - 1)
        if last < 1:
            raise self.refused(node, f"cannot divide {size} elements into {parts} parts")
        replace(node.attribute, [a for a in node.attribute if a.name != "num_outputs"])
        replace(node.input, [node.input[0], add_constant(graph, node, "sizes", [each] * (parts - 1) + [last], "int64")])
        return [node]

    def _pad(self, graph: Any, node: Any) -> list[Any]:
        """Axes as an input: Relay's importer takes what is given for that of all axes, in their order."""
        import numpy as np

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
        """Axes become all axes: importers take what is given for that of all, and never resize the first two."""
        import numpy as np

        if attribute(node, "antialias", 0):
            raise self.refused(node, "smooths what it makes smaller, which TVM does not; export it without antialias")
        if attribute(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
            raise self.refused(node, "keeps the aspect ratio, which TVM does not; export it with sizes of both axes")
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
        replace(node.attribute, [a for a in node.attribute if a.name != "axes"])
        return [node]
