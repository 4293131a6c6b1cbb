"""Rewrites operators of com.microsoft that TVM's converters mistake for others, or reject."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.frontends.importers.onnx_attention import as_heads, causal, merge_heads, scaled_scores
from op_profiler.frontends.importers.onnx_graph import attribute, replace, set_attributes
from op_profiler.frontends.importers.onnx_nodes import NodeWriter, trimmed
from op_profiler.frontends.importers.onnx_rewriting import Rewriting, with_defaults

_FILTER = -10000.0
"""Value that Attention adds where its mask is 0, unless `mask_filter_value` has another one."""
_CHANNELS_LAST = ("QLinearAveragePool", "QLinearConv", "QLinearGlobalAveragePool")
_MASK, _PAST, _PAST_LENGTH = 3, 4, 6  # places of inputs of Attention


class ContribRepairs(Rewriting):
    """Rewrites the operators of com.microsoft in one model."""

    def for_all(self) -> None:
        """Rewrite all operators of com.microsoft.

        Raises:
            ModelError: a node cannot be rewritten.
        """
        rewrites = {
            "Attention": self._attention,
            "QAttention": self._quantized_attention,
            "QLinearLeakyRelu": with_defaults(alpha=0.01),  # TVM's converter has another default
            "QLinearSoftmax": self._softmax,
            "SkipLayerNormalization": self._skip_normalization,
        }
        rewrites |= dict.fromkeys(_CHANNELS_LAST, self._channels_last)
        self.rewrite(rewrites, domains=("com.microsoft",))

    def for_relay(self) -> None:
        """Write attributes and zero points for which Relay's converters have no default."""
        rewrites = dict.fromkeys(("Attention", "QAttention"), with_defaults(unidirectional=0))
        self.rewrite(rewrites | {"QGemm": self._with_zero_point}, domains=("com.microsoft",))

    def _with_zero_point(self, graph: Any, node: Any) -> list[Any]:
        """Add a zero point of the output if there is no scale of the output: Relay's converter looks it up first."""
        if len(node.input) < 8 or not node.input[7]:
            node.input.extend([""] * (9 - len(node.input)))
            node.input[8] = node.input[2]
        return [node]

    def _skip_normalization(self, graph: Any, node: Any) -> list[Any]:
        """Write a sum and a LayerNormalization if a bias is missing or the sum is an output: TVM's converter supports
        neither."""
        node.input.extend([""] * (5 - len(node.input)))
        data, skip, gamma, beta, bias = node.input
        more = [name for name in node.output[1:] if name]
        if beta and bias and not more:
            return [node]
        if more and list(node.output[1:]) != ["", "", more[-1]]:
            raise self.refused(
                node, "has a mean or a deviation among its outputs; only the sum can be one beside the first"
            )
        nodes = NodeWriter(graph, node, self.opset)
        total = nodes.add("Add", data, skip, output=more[0] if more and not bias else "")
        total = nodes.add("Add", total, bias, output=more[0] if more else "") if bias else total
        scales = [gamma, *([beta] if beta else [])]
        epsilon = attribute(node, "epsilon", 1e-12)
        nodes.add("LayerNormalization", total, *scales, output=node.output[0], axis=-1, epsilon=epsilon)
        return nodes.nodes

    def _channels_last(self, graph: Any, node: Any) -> list[Any]:
        """Transpose before and after: TVM's converters expect the channels first."""
        last = attribute(node, "channels_last", 0)
        set_attributes(node, channels_last=None)
        if not last:
            return [node]
        rank = len(attribute(node, "kernel_shape", [])) + 2
        rank = rank if rank > 2 else self.rank(node)
        nodes, output = NodeWriter(graph, node, self.opset), node.output[0]
        node.input[0] = nodes.add("Transpose", node.input[0], perm=[0, rank - 1, *range(1, rank - 1)])
        node.output[0] = f"{output}__channels_first"
        nodes.nodes.append(node)
        nodes.add("Transpose", node.output[0], perm=[0, *range(2, rank), 1], output=output)
        return nodes.nodes

    def _softmax(self, graph: Any, node: Any) -> list[Any]:
        """Write the axis of a softmax, because TVM's converter ignores the opset; reject several axes (opset 12)."""
        flattens = attribute(node, "opset", 13) < 13
        axis = attribute(node, "axis", 1 if flattens else -1)
        if flattens and axis != -1 and axis != self.rank(node) - 1:
            raise self.refused(node, "is one of opset 12 over several dimensions; export it with opset 13 or later")
        set_attributes(node, axis=axis, opset=None)
        return [node]

    def _quantized_attention(self, graph: Any, node: Any) -> list[Any]:
        """Remove attributes with the values that TVM's converter assumes without reading them; reject other values."""
        width = self.sizes.get(node.input[1], (None, None))[1]
        usual = {"mask_filter_value": _FILTER, "scale": 0.0}
        if width is not None and _is_default(attribute(node, "scale", 0.0), width // 3, node):
            usual["scale"] = attribute(node, "scale", 0.0)
        kept = [one for one in node.attribute if attribute(node, one.name, None) != usual.get(one.name, "")]
        replace(node.attribute, kept)
        node.input.extend([""] * (9 - len(node.input)))
        batch, length = self.sizes.get(node.input[0], (None, None))[:2]
        if not node.input[5] and not node.input[8] and batch is not None and length is not None:
            node.input[5] = NodeWriter(graph, node, self.opset).constant(np.ones((batch, length)), "int32")
        return [trimmed(node)]

    def _attention(self, graph: Any, node: Any) -> list[Any]:
        """Rewrite an Attention that projects its input, unless its mask and scale are those of TVM's converter: a mask
        of two dimensions and the default scale."""
        for name in ("do_rotary", "past_present_share_buffer"):
            if attribute(node, name, 0):
                raise self.refused(node, f"has {name}=1, which TVM cannot compute; export the model without it")
        node.input.extend([""] * (7 - len(node.input)))
        if node.input[_PAST_LENGTH]:
            raise self.refused(
                node, "has a past_sequence_length, which TVM cannot compute; export the model without it"
            )
        width = self.sizes.get(node.input[1], (None, None))[1]
        if width is None:
            raise self.refused(node, "has weights whose sizes are only known at run time; export it with fixed ones")
        sizes = attribute(node, "qkv_hidden_sizes", []) or [width // 3] * 3
        scale = attribute(node, "scale", 0.0)
        if _is_default(scale, sizes[0], node) and len(set(sizes)) == 1 and self._has_converter(node):
            kept = ("num_heads", *(["unidirectional"] if attribute(node, "unidirectional", 0) else []))
            replace(node.attribute, [one for one in node.attribute if one.name in kept])
            return [trimmed(node)]
        return self._written(graph, node, sizes)

    def _has_converter(self, node: Any) -> bool:
        """Return whether TVM's converter supports the inputs of a node."""
        bias, mask, _, added = node.input[2:6]
        usual = attribute(node, "mask_filter_value", _FILTER) == _FILTER
        return bool(usual and bias and mask and not added) and len(self.sizes.get(mask, ())) == 2

    def _written(self, graph: Any, node: Any, sizes: list[int]) -> list[Any]:
        """Return the projection and the attention as operators of ONNX."""
        nodes = NodeWriter(graph, node, self.opset, self.kind_of(node.input[1]))
        data, weights, bias, _, past, added = node.input[:6]
        projected = nodes.add("MatMul", data, weights)
        projected = nodes.add("Add", projected, bias) if bias else projected
        query, key, value = (
            as_heads(nodes, nodes.take(projected, range(end - size, end), axis=2), attribute(node, "num_heads", 1))
            for size, end in zip(sizes, (sizes[0], sizes[0] + sizes[1], sum(sizes)), strict=True)
        )
        if past:
            key, value = (nodes.add("Concat", nodes.take(past, at), one, axis=2) for at, one in enumerate((key, value)))
        if len(node.output) > 1 and node.output[1]:
            both = [nodes.unsqueeze(one, [0]) for one in (key, value)]
            nodes.add("Concat", *both, axis=0, output=node.output[1])
        scores = scaled_scores(nodes, query, key, attribute(node, "scale", 0.0) or _default_scale(sizes[0], node))
        for one in (self._mask(node, nodes), self._causal(node, nodes), added):
            scores = nodes.add("Add", scores, one) if one else scores
        merge_heads(nodes, nodes.add("MatMul", nodes.add("Softmax", scores, axis=-1), value), node.output[0])
        return nodes.nodes

    def _mask(self, node: Any, nodes: NodeWriter) -> str:
        """Return the name of the tensor that is added to the scores to exclude keys; empty without a mask.

        The mask has the shape (batch, keys) or (batch, queries, keys).
        """
        mask = node.input[_MASK]
        rank = len(self.sizes.get(mask, ())) if mask else 0
        if not mask:
            return ""
        if rank not in (2, 3):
            raise self.refused(node, "has a mask of other than two or three dimensions; export it with one of these")
        shown = nodes.add("Cast", nodes.unsqueeze(mask, [1, 2] if rank == 2 else [1]), to=9)
        filtered = attribute(node, "mask_filter_value", _FILTER)
        return nodes.add("Where", shown, nodes.constant(0.0), nodes.constant(filtered))

    def _causal(self, node: Any, nodes: NodeWriter) -> str:
        """Return the name of the tensor that is added to the scores to exclude keys after the query; empty if attention
        is not causal."""
        if not attribute(node, "unidirectional", 0):
            return ""
        length = self.sizes.get(node.input[0], (None, None))[1]
        past = self.sizes.get(node.input[_PAST], (None,) * 4)[3] if node.input[_PAST] else 0
        if length is None or past is None:
            raise self.refused(node, "is unidirectional, and its length is only known at run time; export a fixed one")
        return nodes.constant(np.where(causal(length, length, past), 0.0, np.finfo(nodes.kind).min))


def _default_scale(width: int, node: Any) -> float:
    """Return the default scale of attention scores, from the size of all heads."""
    return float((width // attribute(node, "num_heads", 1)) ** -0.5)


def _is_default(scale: float, width: int, node: Any) -> bool:
    return not scale or abs(scale / _default_scale(width, node) - 1) < 1e-6
