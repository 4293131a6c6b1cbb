"""Rewrites ONNX's Attention with operators that every importer supports.

ONNX 1.18 defines Attention as a function that loses dimensions, confuses heads with positions, and limits scores only
after the mask. The rewritten form computes the same as onnxruntime.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from op_profiler.frontends.importers.onnx_graph import Dims, attribute
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_rewriting import Rewriting


class AttentionRepairs(Rewriting):
    """Rewrites the Attention nodes of one model, for every importer."""

    def for_all(self) -> None:
        """Rewrite all Attention nodes.

        Raises:
            ModelError: a node cannot be rewritten.
        """
        self.rewrite({"Attention": self._attention})

    def _attention(self, graph: Any, node: Any) -> list[Any]:
        node.input.extend([""] * (7 - len(node.input)))
        node.output.extend([""] * (4 - len(node.output)))
        if node.input[6]:
            raise self.refused(node, "has lengths of keys (nonpad_kv_seqlen); export it with a mask")
        nodes = NodeWriter(graph, node, self.opset, self.kind_of(node.input[0]))
        dims = [self.sizes.get(name, ()) for name in node.input[:3]]
        if any(len(one) not in (3, 4) or None in one[-2:] for one in dims):
            raise self.refused(node, "has inputs whose sizes are only known at run time; export it with fixed ones")
        flat = len(dims[0]) == 3
        heads = list(node.input[:3])
        counts = [one[1] for one in dims]
        if flat:
            counts = [attribute(node, "q_num_heads", 0), *[attribute(node, "kv_num_heads", 0)] * 2]
            heads = [as_heads(nodes, *one) for one in zip(heads, counts, strict=True)]
        query, key, value = self._with_past(node, nodes, heads, counts)
        added = self._added(node, nodes, dims)
        size = dims[0][-1] // counts[0] if flat else dims[0][-1]
        scores = scaled_scores(nodes, query, key, attribute(node, "scale", 0.0) or size**-0.5)
        capped = _capped(nodes, scores, attribute(node, "softcap", 0.0))
        masked = nodes.add("Add", capped, added) if added else capped
        weights = _softmax(nodes, masked, attribute(node, "softmax_precision", 0))
        if node.output[3]:
            stages = (scores, capped, masked, weights)
            nodes.add("Identity", stages[attribute(node, "qk_matmul_output_mode", 0)], output=node.output[3])
        attended = nodes.add("MatMul", weights, value, output="" if flat else node.output[0])
        if flat:
            merge_heads(nodes, attended, node.output[0])
        return nodes.nodes

    def _with_past(self, node: Any, nodes: NodeWriter, heads: list[str], counts: list[int]) -> list[str]:
        """Return query, keys and values with equally many heads; keys and values of the past are in front."""
        query, *kept = heads
        for at, past in enumerate(node.input[4:6]):
            kept[at] = nodes.add("Concat", past, kept[at], axis=2) if past else kept[at]
        for at, present in enumerate(node.output[1:3]):
            if present:
                nodes.add("Identity", kept[at], output=present)
        if counts[0] == counts[1]:
            return [query, *kept]
        sharing = counts[0] // counts[1]  # neighbouring heads of the query
        return [query, *(nodes.take(one, [at // sharing for at in range(counts[0])], axis=1) for one in kept)]

    def _added(self, node: Any, nodes: NodeWriter, dims: list[Dims]) -> str:
        """Return the name of the tensor that is added to the scores: the mask, with the least number for keys that
        causal attention excludes; empty if nothing is added."""
        mask, least = node.input[3], float(np.finfo(nodes.kind).min)
        seen = None
        if attribute(node, "is_causal", 0):
            past = self.sizes.get(node.input[4], (None,) * 4)[2] if node.input[4] else 0
            if past is None:
                raise self.refused(node, "is causal, and the length of its past is only known at run time")
            seen = causal(dims[0][-2], dims[1][-2], past)
        if not mask:
            return "" if seen is None else nodes.constant(np.where(seen, 0.0, least))
        if self.kind_of(mask) == "bool":
            shown = mask if seen is None else nodes.add("And", mask, nodes.constant(seen, "bool"))
            return nodes.add("Where", shown, nodes.constant(0.0), nodes.constant(least))
        return mask if seen is None else nodes.add("Where", nodes.constant(seen, "bool"), mask, nodes.constant(least))


def causal(length: int, keys: int, past: int) -> Any:
    """Return a Boolean mask, shape (length, keys + past). It is True for each key to which a query attends: the keys of
    the past, and the keys up to the position of the query."""
    return np.tri(length, keys + past, past, dtype=bool)


def as_heads(nodes: NodeWriter, data: str, count: int) -> str:
    """Write the division of (batch, length, count * size) into heads, (batch, count, length, size); return the name of
    the result."""
    return nodes.add("Transpose", nodes.reshape(data, [0, 0, count, -1]), perm=[0, 2, 1, 3])


def merge_heads(nodes: NodeWriter, data: str, output: str) -> str:
    """Write the merge of heads, from (batch, count, length, size) to (batch, length, count * size); return `output`."""
    return nodes.reshape(nodes.add("Transpose", data, perm=[0, 2, 1, 3]), [0, 0, -1], output=output)


def scaled_scores(nodes: NodeWriter, query: str, key: str, scale: float) -> str:
    """Write the products of all queries with all keys, times `scale`; return the name of the result."""
    scaled = nodes.add("Mul", query, nodes.constant(scale))
    return nodes.add("MatMul", scaled, nodes.add("Transpose", key, perm=[0, 1, 3, 2]))


def _capped(nodes: NodeWriter, scores: str, cap: float) -> str:
    if not cap:
        return scores
    bound = nodes.constant(cap)
    return nodes.add("Mul", nodes.add("Tanh", nodes.add("Div", scores, bound)), bound)


def _softmax(nodes: NodeWriter, scores: str, precision: int) -> str:
    """Return the softmax over the keys, computed in the type with this number in ONNX."""
    own = helper.np_dtype_to_tensor_dtype(np.dtype(nodes.kind))
    if precision in (0, own):
        return nodes.add("Softmax", scores, axis=-1)
    return nodes.add("Cast", nodes.add("Softmax", nodes.add("Cast", scores, to=precision), axis=-1), to=own)
