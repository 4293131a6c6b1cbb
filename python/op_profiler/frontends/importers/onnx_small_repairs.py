"""Rewrites of ONNX operators that Relay's importer rejects in one of their forms: defaults, broadcasts, shorter
indices."""

from __future__ import annotations

from typing import Any

from onnx import helper

from op_profiler.frontends.importers.onnx_graph import attribute, graphs_in, replace
from op_profiler.frontends.importers.onnx_rewriting import Rewriting, add_constant, with_defaults


class SmallRepairs(Rewriting):
    """Rewrites the nodes of one model whose form Relay's importer rejects."""

    def for_relay(self) -> None:
        """Rewrite all nodes whose form Relay's importer rejects."""
        self.rewrite(
            {
                "CastLike": with_defaults(saturate=None),  # concerns casts to fewer than eight bits only
                "GatherElements": self._gather_elements,
                "Identity": self._identity,
                "Mean": self._mean,
                "ReverseSequence": with_defaults(batch_axis=1, time_axis=0),  # the importer requires them
                "SplitToSequence": self._split,
            }
        )

    def _identity(self, graph: Any, node: Any) -> list[Any]:
        """Replace an identity of a sequence by the sequence: the importer would copy its parts as one tensor."""
        known, copy = self.types.get(node.input[0]), node.output[0]
        if known is None or not known.HasField("sequence_type") or copy in {one.name for one in graph.output}:
            return [node]
        for reader in (reader for inner in graphs_in(graph) for reader in inner.node):
            replace(reader.input, [node.input[0] if name == copy else name for name in reader.input])
        return []

    def _mean(self, graph: Any, node: Any) -> list[Any]:
        """Write a mean as a sum, which broadcasts: the importer stacks tensors of one shape."""
        if len(node.input) == 1:
            return [helper.make_node("Identity", node.input, node.output, name=node.name)]
        total, like = f"{node.output[0]}__sum", f"{node.output[0]}__count"
        count = add_constant(graph, node, "number", float(len(node.input)), "float32")
        return [
            helper.make_node("Sum", node.input, [total], name=node.name),
            helper.make_node("CastLike", [count, total], [like], name=node.name),
            helper.make_node("Div", [total, like], node.output, name=node.name),
        ]

    def _gather_elements(self, graph: Any, node: Any) -> list[Any]:
        """Cut the data to the size of the indices along other axes, as the importer requires."""
        data, indices = (self.sizes.get(name, ()) for name in node.input)
        axis = attribute(node, "axis", 0)
        if not data or len(data) != len(indices) or None in (*data, *indices):
            return [node]
        ends = [size if place == axis % len(data) else indices[place] for place, size in enumerate(data)]
        if ends == [*data]:
            return [node]
        cut = f"{node.output[0]}__cut"
        bounds = [
            add_constant(graph, node, what, v, "int64") for what, v in (("starts", [0] * len(ends)), ("ends", ends))
        ]
        part = helper.make_node("Slice", [node.input[0], *bounds], [cut], name=node.name)
        node.input[0] = cut
        return [part, node]

    def _split(self, graph: Any, node: Any) -> list[Any]:
        """Write a split into parts of known sizes as Split, because the importer cannot read the sizes."""
        if len(node.input) < 2 or not node.input[1]:
            return [node]
        sizes = self.known(node, 1, "sizes of parts")
        axis = attribute(node, "axis", 0)
        if not sizes.shape:
            whole = self.sizes.get(node.input[0], ())
            if not whole or whole[axis] is None:
                raise self.refused(node, "divides a size that is only known at run time")
            full, rest = divmod(whole[axis], int(sizes))
            sizes = [int(sizes)] * full + ([rest] if rest else [])
        parts = [f"{node.output[0]}__part_{place}" for place in range(len(sizes))]
        length = add_constant(graph, node, "sizes", [int(one) for one in sizes], "int64")
        if self.opset < 13:
            split = helper.make_node("Split", node.input[:1], parts, axis=axis, split=[int(one) for one in sizes])
        else:
            split = helper.make_node("Split", [node.input[0], length], parts, axis=axis)
        return [split, helper.make_node("SequenceConstruct", parts, node.output, name=node.name)]
