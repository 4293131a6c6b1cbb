"""Rewrites of ONNX graphs for what TVM's importers refuse though it is valid, or silently take for something else."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from op_profiler.errors import ModelError
from op_profiler.frontends.importers.finish import said
from op_profiler.frontends.importers.onnx_graph import (
    Constants,
    Dims,
    attribute,
    graphs_in,
    replace,
    sizes_in,
    tensors_in,
    types_in,
)
from op_profiler.frontends.importers.pool_windows import WINDOWS_DIFFER, begins_outside

Rewrite = Callable[[Any, Any], list[Any]]  # of a graph and one of its nodes: what takes its place

_SMALL_FLOATS = ("FLOAT8", "FLOAT4")
_SMALL = (*_SMALL_FLOATS, "INT4", "UINT4", "INT2", "UINT2")  # what names of types begin with
_MAKERS = ("Cast", "CastLike", "QuantizeLinear")  # of other numbers, which importers do not cut off
_VALUES = {"value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"}
_OF_ONE_ELEMENT = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp")  # are itself
_OF_SEVERAL = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


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


class Repairs:
    """Of one model.

    Args:
        shapes: of its inputs.
        name: of the model, for errors.
    """

    def __init__(self, model: Any, shapes: Mapping[str, Dims], name: str) -> None:
        self._model, self._shapes, self._name = model, dict(shapes), name
        self._constants = Constants(model, lambda: self._sizes)

    def fold_whole_numbers(self) -> None:
        """Put known sizes, and what is calculated from them, into the graph: functions of ONNX fit any size, and
        importers do not know all that they calculate from shapes."""
        from onnx import TensorProto, numpy_helper

        types = types_in(self._model, self._shapes)
        whole = {name for name, one in types.items() if one.tensor_type.elem_type == TensorProto.INT64}
        for graph in graphs_in(self._model.graph):
            nodes = []
            for node in graph.node:
                is_whole = len(node.output) == 1 and node.output[0] in whole
                known = self._constants.value(node.output[0]) if is_whole else None
                if known is None:
                    nodes.append(node)
                else:
                    graph.initializer.append(numpy_helper.from_array(known, node.output[0]))
            replace(graph.node, nodes)

    def for_all(self) -> None:
        """What no importer gets right.

        Raises:
            ModelError: a node cannot be written in another way.
        """
        self._rewrite(
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

    def for_relay(self) -> None:
        """What Relay's importer alone gets wrong. The graph is then one that only this importer reads.

        Raises:
            ModelError: a node cannot be written in another way.
        """
        self._rewrite(
            {
                "Clip": self._clip,
                "GridSample": self._grid_sample,
                "RoiAlign": self._roi_align,
                "Trilu": self._trilu,
                "Upsample": self._upsample,
                **dict.fromkeys((*_OF_ONE_ELEMENT, *_OF_SEVERAL), self._reduce),
            }
        )

    def _rewrite(self, rewrites: Mapping[str, Rewrite]) -> None:
        for graph in graphs_in(self._model.graph):
            nodes: list[Any] = []
            for node in graph.node:
                own = node.domain in ("", "ai.onnx") and node.op_type in rewrites
                try:
                    nodes += rewrites[node.op_type](graph, node) if own else [node]
                except (ValueError, TypeError, IndexError) as error:  # what the node was given does not fit together
                    raise self._refused(node, f"is not valid: {said(error)}") from error
            replace(graph.node, nodes)

    @property
    def _opset(self) -> int:
        return next((one.version for one in self._model.opset_import if one.domain in ("", "ai.onnx")), 1)

    @functools.cached_property
    def _sizes(self) -> dict[str, Dims]:
        return sizes_in(self._model, self._shapes)

    def _clip(self, graph: Any, node: Any) -> list[Any]:
        """A bound without the other, or that is computed: Relay's importer leaves it out."""
        from onnx import helper

        bounds = [(kind, name) for kind, name in zip(("Max", "Min"), node.input[1:], strict=False) if name]
        if not bounds or len(bounds) == 2 and all(self._constants.value(name) is not None for _, name in bounds):
            return [node]
        nodes: list[Any] = []
        data = node.input[0]
        for kind, bound in bounds:
            made = node.output[0] if (kind, bound) == bounds[-1] else f"{node.output[0]}__{kind}"
            nodes.append(helper.make_node(kind, [data, bound], [made], name=node.name))
            data = made
        return nodes

    def _reduce(self, graph: Any, node: Any) -> list[Any]:
        """Axes that are an input become an attribute: of the input Relay's importer takes the first one alone."""
        from onnx import helper

        if len(node.input) < 2 and not attribute(node, "noop_with_empty_axes", 0):
            return [node]
        axes = [] if len(node.input) < 2 or not node.input[1] else self._known(node, 1, "axes").reshape(-1).tolist()
        nothing = not axes and attribute(node, "noop_with_empty_axes", 0)
        if nothing and node.op_type in _OF_ONE_ELEMENT:
            return [helper.make_node("Identity", node.input[:1], node.output, name=node.name)]
        if nothing:
            raise self._refused(node, "reduces no axis; leave it out of the model")
        kept = [a for a in node.attribute if a.name != "noop_with_empty_axes"]
        replace(node.attribute, kept + ([helper.make_attribute("axes", axes)] if axes else []))
        replace(node.input, node.input[:1])
        return [node]

    def _norm(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "training_mode", 0):  # importers would take the statistics that were learned
            raise self._refused(node, "norms by the statistics of the batch, as in training; export the model for use")
        return [node]

    def _cast(self, graph: Any, node: Any) -> list[Any]:
        """How a cast to fewer than eight bits rounds, which says nothing of other types."""
        replace(node.attribute, [a for a in node.attribute if a.name not in ("saturate", "round_mode")])
        return [node]

    def _dropout(self, graph: Any, node: Any) -> list[Any]:
        training = self._known(node, 2, "a training mode") if len(node.input) > 2 and node.input[2] else False
        if training:
            raise self._refused(node, "drops at random, as in training; export the model for use")
        replace(node.attribute, [a for a in node.attribute if a.name != "seed"])
        return [node]

    def _dft(self, graph: Any, node: Any) -> list[Any]:
        """An axis as an input becomes an attribute, of which importers know no other form."""
        from onnx import helper

        if self._opset < 20:
            return [node]
        axis = int(self._known(node, 2, "an axis").reshape(-1)[0]) if len(node.input) > 2 and node.input[2] else -2
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
            raise self._refused(node, "names the size of its output, which TVM does not; leave it out")
        return [node]

    def _pool(self, graph: Any, node: Any) -> list[Any]:
        """Of windows that stick out, ONNX leaves out those that would begin in the padding. Importers keep them."""
        from onnx import helper

        if not attribute(node, "ceil_mode", 0) or attribute(node, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
            return [node]
        kernel = attribute(node, "kernel_shape", [])
        ones, rank = [1] * len(kernel), len(kernel)
        pads = attribute(node, "pads", [0] * 2 * rank)
        dims = self._sizes.get(node.input[0], (None,) * (rank + 2))[2:]
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
            raise self._refused(node, f"{WINDOWS_DIFFER}; export it without ceil_mode")
        kept = [a for a in node.attribute if a.name != "ceil_mode"]
        replace(node.attribute, [*kept, helper.make_attribute("ceil_mode", 0)])
        return [node]

    def _range(self, graph: Any, node: Any) -> list[Any]:
        """One that is known: ONNX's own functions make it of tensors, of which importers know no form."""
        from onnx import numpy_helper

        known = self._constants.value(node.output[0])
        if known is None:
            return [node]
        graph.initializer.append(numpy_helper.from_array(known, node.output[0]))
        return []

    def _grid_sample(self, graph: Any, node: Any) -> list[Any]:
        """Modes have other names since opset 20."""
        from onnx import helper

        mode = attribute(node, "mode", b"linear")
        names = {b"linear": b"bilinear", b"cubic": b"bicubic"}
        kept = [a for a in node.attribute if a.name != "mode"]
        replace(node.attribute, [*kept, helper.make_attribute("mode", names.get(mode, mode))])
        return [node]

    def _roi(self, graph: Any, node: Any) -> list[Any]:
        if attribute(node, "mode", b"avg") == b"max":
            raise self._refused(
                node, "takes the largest of weighted values, which TVM does not; export it with averages"
            )
        return [node]

    def _roi_align(self, graph: Any, node: Any) -> list[Any]:
        """Pixels are half a pixel before where they were until opset 16, unless it is said otherwise."""
        import numpy as np
        from onnx import helper

        usual = b"half_pixel" if self._opset >= 16 else b"output_half_pixel"
        if attribute(node, "coordinate_transformation_mode", usual) == b"output_half_pixel":
            return [node]
        half = _constant(graph, node, "half", np.array(0.5 / attribute(node, "spatial_scale", 1.0)), "float32")
        moved = f"{node.output[0]}__moved"
        earlier = helper.make_node("Sub", [node.input[1], half], [moved], name=node.name)
        node.input[1] = moved
        return [earlier, node]

    def _upsample(self, graph: Any, node: Any) -> list[Any]:
        """Relay's importer reads scales that are computed from behind the end of them."""
        if len(node.input) > 1:
            node.input[1] = _constant(graph, node, "scales", self._known(node, 1, "scales"), "float32")
        return [node]

    def _trilu(self, graph: Any, node: Any) -> list[Any]:
        """Relay's importer wants the diagonal without a dimension."""
        if len(node.input) > 1 and node.input[1]:
            diagonal = self._constants.value(node.input[1])
            if diagonal is not None and diagonal.shape:
                node.input[1] = _constant(graph, node, "diagonal", diagonal.reshape(()), "int64")
        return [node]

    def _split(self, graph: Any, node: Any) -> list[Any]:
        """Parts of which the last one is smaller: importers divide into equal ones."""
        parts, axis = attribute(node, "num_outputs", None), attribute(node, "axis", 0)
        dims = self._sizes.get(node.input[0], ()) if parts else ()
        size = dims[axis] if -len(dims) <= axis < len(dims) else None
        if not size or size % parts == 0:
            return [node]
        each = -(-size // parts)
        last = size - each * (parts - 1)
        if last < 1:
            raise self._refused(node, f"cannot divide {size} elements into {parts} parts")
        replace(node.attribute, [a for a in node.attribute if a.name != "num_outputs"])
        replace(node.input, [node.input[0], _constant(graph, node, "sizes", [each] * (parts - 1) + [last], "int64")])
        return [node]

    def _pad(self, graph: Any, node: Any) -> list[Any]:
        """Axes as an input: Relay's importer takes what is given for that of all axes, in their order."""
        import numpy as np

        if len(node.input) < 4:
            return [node]
        inputs = list(node.input[:3])
        if node.input[3]:
            full = np.zeros((2, self._rank(node)), "int64")
            full[:, self._known(node, 3, "axes")] = self._known(node, 1, "pads").reshape(2, -1)
            inputs[1] = _constant(graph, node, "pads", full.reshape(-1), "int64")
        replace(node.input, inputs if inputs[2] else inputs[:2])
        return [node]

    def _resize(self, graph: Any, node: Any) -> list[Any]:
        """Axes become all axes: importers take what is given for that of all, and never resize the first two."""
        import numpy as np

        if attribute(node, "antialias", 0):
            raise self._refused(node, "smooths what it makes smaller, which TVM does not; export it without antialias")
        if attribute(node, "keep_aspect_ratio_policy", b"stretch") != b"stretch":
            raise self._refused(node, "keeps the aspect ratio, which TVM does not; export it with sizes of both axes")
        axes = attribute(node, "axes", None)
        if axes is None:
            return [node]
        rank = self._rank(node)
        dims = np.array([size or 0 for size in self._sizes[node.input[0]]])
        inputs = [*node.input, "", "", ""][:4]
        for place, what, kind in ((1, "roi", "float32"), (2, "scales", "float32"), (3, "sizes", "int64")):
            given = self._known(node, place, what) if inputs[place] else np.zeros(0)
            if not given.size:
                continue
            full = np.stack([np.zeros(rank), np.ones(rank)]) if what == "roi" else np.ones(rank)
            full = dims.copy() if what == "sizes" else full
            full[..., axes] = given.reshape(2, -1) if what == "roi" else given
            if what != "roi" and (full[:2] != (dims if what == "sizes" else np.ones(rank))[:2]).any():
                raise self._refused(node, "resizes one of the first two axes, which TVM does not; transpose around it")
            if (full == 0).any() and what == "sizes":
                raise self._refused(node, "leaves an axis as it is whose size is only known at run time")
            inputs[place] = _constant(graph, node, what, full.reshape(-1), kind)
        while not inputs[-1]:
            inputs.pop()
        replace(node.input, inputs)
        replace(node.attribute, [a for a in node.attribute if a.name != "axes"])
        return [node]

    def _known(self, node: Any, place: int, what: str) -> Any:
        value = self._constants.value(node.input[place])
        if value is None:
            raise self._refused(node, f"has {what} that are only known at run time; export it with constant ones")
        return value

    def _rank(self, node: Any) -> int:
        if node.input[0] not in self._sizes:
            raise self._refused(node, "has axes, and the rank of its input is only known at run time")
        return len(self._sizes[node.input[0]])

    def _refused(self, node: Any, why: str) -> ModelError:
        named = f" {node.name}" if node.name else ""
        return ModelError(f"{self._name} does not lower: {node.op_type}{named} {why}")


def _constant(graph: Any, node: Any, what: str, values: Any, kind: str) -> str:
    """The name of a new constant of a node's."""
    import numpy as np
    from onnx import numpy_helper

    name = f"{node.output[0]}__{what}"
    graph.initializer.append(numpy_helper.from_array(np.asarray(values, kind), name))
    return name
