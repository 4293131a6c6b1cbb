"""Rewrites ONNX graphs where only Relay's importer is wrong. Afterwards, only Relay's importer can read the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from op_profiler.frontends.importers.onnx_graph import attribute, replace, set_attributes
from op_profiler.frontends.importers.onnx_rewriting import Rewriting, add_constant

_OF_ONE_ELEMENT = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp")  # identities
_OF_SEVERAL = ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceSumSquare")


class RelayRepairs(Rewriting):
    """Rewrites the nodes of one model that only Relay's importer gets wrong."""

    def for_relay(self) -> None:
        """Rewrite all nodes that only Relay's importer gets wrong.

        Raises:
            ModelError: a node cannot be rewritten.
        """
        self.rewrite(
            {
                "Clip": self._clip,
                "GridSample": self._grid_sample,
                "RoiAlign": self._roi_align,
                "Trilu": self._trilu,
                "Upsample": self._upsample,
                **dict.fromkeys((*_OF_ONE_ELEMENT, *_OF_SEVERAL), self._reduce),
            }
        )

    def _clip(self, graph: Any, node: Any) -> list[Any]:
        """Write a single bound, or one that is computed, as a minimum or maximum: Relay's importer ignores it."""
        bounds = [(kind, name) for kind, name in zip(("Max", "Min"), node.input[1:], strict=False) if name]
        if not bounds or len(bounds) == 2 and all(self.constants.value(name) is not None for _, name in bounds):
            return [node]
        nodes: list[Any] = []
        data = node.input[0]
        for kind, bound in bounds:
            made = node.output[0] if (kind, bound) == bounds[-1] else f"{node.output[0]}__{kind}"
            nodes.append(helper.make_node(kind, [data, bound], [made], name=node.name))
            data = made
        return nodes

    def _reduce(self, graph: Any, node: Any) -> list[Any]:
        """Turn axes that are an input into an attribute: Relay's importer uses only the first axis of the input."""
        if len(node.input) < 2 and not attribute(node, "noop_with_empty_axes", 0):
            return [node]
        axes = [] if len(node.input) < 2 or not node.input[1] else self.known(node, 1, "axes").reshape(-1).tolist()
        nothing = not axes and attribute(node, "noop_with_empty_axes", 0)
        if nothing and node.op_type in _OF_ONE_ELEMENT:
            return [helper.make_node("Identity", node.input[:1], node.output, name=node.name)]
        if nothing:
            raise self.refused(node, "reduces no axis; leave it out of the model")
        set_attributes(node, noop_with_empty_axes=None, axes=axes or None)
        replace(node.input, node.input[:1])
        return [node]

    def _grid_sample(self, graph: Any, node: Any) -> list[Any]:
        """Write the names of modes before opset 20, and positions in float32, the only type with kernels in TVM."""
        mode = attribute(node, "mode", b"linear")
        set_attributes(node, mode={b"linear": b"bilinear", b"cubic": b"bicubic"}.get(mode, mode))
        if self.kind_of(node.input[1]) == "float32":
            return [node]
        places = f"{node.output[0]}__places"
        earlier = helper.make_node("Cast", [node.input[1]], [places], name=node.name, to=TensorProto.FLOAT)
        node.input[1] = places
        return [earlier, node]

    def _roi_align(self, graph: Any, node: Any) -> list[Any]:
        """Shift regions by half a pixel if required (by default from opset 16 on); Relay's importer does not."""
        if attribute(node, "mode", b"avg") != b"avg":
            raise self.refused(node, "takes the largest of weighted corners, and TVM that of their sums; use mode=avg")
        usual = b"half_pixel" if self.opset >= 16 else b"output_half_pixel"
        mode = attribute(node, "coordinate_transformation_mode", usual)
        set_attributes(node, coordinate_transformation_mode=None)
        if mode == b"output_half_pixel":
            return [node]
        half = add_constant(graph, node, "half", np.array(0.5 / attribute(node, "spatial_scale", 1.0)), "float32")
        moved = f"{node.output[0]}__moved"
        earlier = helper.make_node("Sub", [node.input[1], half], [moved], name=node.name)
        node.input[1] = moved
        return [earlier, node]

    def _upsample(self, graph: Any, node: Any) -> list[Any]:
        """Write the scales of an upsampling as constants: Relay's importer reads computed scales beyond their end."""
        if len(node.input) > 1:
            node.input[1] = add_constant(graph, node, "scales", self.known(node, 1, "scales"), "float32")
        return [node]

    def _trilu(self, graph: Any, node: Any) -> list[Any]:
        """Write the diagonal without a dimension, as Relay's importer requires."""
        if len(node.input) > 1 and node.input[1]:
            diagonal = self.constants.value(node.input[1])
            if diagonal is not None and diagonal.shape:
                node.input[1] = add_constant(graph, node, "diagonal", diagonal.reshape(()), "int64")
        return [node]
