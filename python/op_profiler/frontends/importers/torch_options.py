"""Options of torch's operators that TVM's importer reads and ignores, which would silently change the program.

Options that plainer operators can express are rewritten in the graph of the trace; converters handle the rest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.relay_values import dtype_of, shape_of
from op_profiler.frontends.importers.torch_attention import attention_with_options
from op_profiler.frontends.importers.torch_library import torch
from op_profiler.frontends.importers.torch_nodes import insert, known_tensor, nodes_of, replace, substitute

_SCALED = {"aten::add": 1, "aten::add_": 1, "aten::sub": 1, "aten::sub_": 1, "aten::rsub": 0}
"""Operators with an alpha, and the index of the input that it multiplies."""
_ATTENTION = "aten::scaled_dot_product_attention"
_PACKED = ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence")
_FROM_THE_FRONT = ("aten::argmax", "aten::argmin", "aten::argsort", "aten::nonzero")
"""Operators whose results are never negative."""

# A graph may hold only operators that torch knows; this one is torch's, and unknown to the importer.
_TRUNCATED = "aten::divide"


def spell_out_options(traced: Any) -> None:
    """Rewrite the graph of a trace in place, so that it has no option that the importer would ignore."""
    graph = traced.graph
    for node in list(nodes_of(graph)):
        kind = node.kind()
        if kind in _SCALED and node.inputsSize() > 2:
            _multiply_by_alpha(graph, node)
        elif kind in ("aten::div", "aten::div_") and node.inputsSize() > 2:
            _round_quotient(graph, node)
        elif kind.removesuffix("_").endswith("dropout") and node.inputsAt(2).toIValue() and node.inputsAt(1).toIValue():
            raise NotImplementedError(f"{kind} drops at random, as in training; switch it off")
        elif kind == _ATTENTION and node.inputsSize() > 7:
            attention_with_options(graph, node)
        elif kind.startswith("aten::upsample_"):
            _refuse_fractions(node)
        elif kind in _PACKED:
            raise NotImplementedError(
                "packed sequences have steps that their lengths decide while running; "
                "give recurrent layers the padded sequences, without pack_padded_sequence"
            )
        elif kind == "aten::index":
            _count_from_the_front(traced, node)
        elif kind == "aten::slice":
            _close_slice(graph, node)
        elif kind == "aten::topk":
            _sort(graph, node)
        elif kind in ("aten::index_put", "aten::index_put_"):
            _scatter_by_mask(graph, node)
        elif kind == "aten::cat":
            _leave_out_empty(graph, node)


def _multiply_by_alpha(graph: Any, node: Any) -> None:
    """Write ``a + alpha * b`` in two steps."""
    alpha, at = node.inputsAt(2), _SCALED[node.kind()]
    if alpha.toIValue() == 1:
        return
    other = node.inputsAt(at)
    number = other.toIValue()
    with graph.insert_point_guard(node):
        if isinstance(number, (int, float)) and alpha.toIValue() is not None:
            product = graph.insertConstant(number * alpha.toIValue())
        else:
            product = insert(graph, "aten::mul", [other, alpha], node.output())
            product.setType(other.type())
        node.replaceInput(at, product)
        node.replaceInput(2, graph.insertConstant(1))


def _count_from_the_front(traced: Any, node: Any) -> None:
    """Take indices that may be negative modulo the size: Relay reads foreign memory at negative indices."""
    graph, places = traced.graph, node.inputsAt(1).node()
    data, axis = node.inputsAt(0), 0
    for at, index in enumerate(places.inputs()):
        if _is_mask(index):
            axis += index.type().dim() or 1
            continue
        if index.type().kind() == "TensorType" and not _is_from_the_front(traced, index):
            sizes = data.type().sizes()
            with graph.insert_point_guard(places):
                along = graph.insertConstant(sizes[axis] if sizes else axis)
                size = along if sizes else _size_along(graph, data, along)
                remainder = insert(graph, "aten::remainder", [index, size], node.output())
                remainder.setType(index.type())
                places.replaceInput(at, remainder)
        axis += 1


def _size_along(graph: Any, data: Any, axis: Any) -> Any:
    size = graph.insertNode(graph.create("aten::size", [data, axis], 1))
    size.output().setType(torch._C.IntType.get())
    return size.output()


def _is_mask(index: Any) -> bool:
    return index.type().kind() == "TensorType" and str(index.type().dtype()) in ("torch.bool", "torch.uint8")


def _is_from_the_front(traced: Any, index: Any) -> bool:
    """Return whether indices are certainly not negative."""
    known = known_tensor(traced, index)
    if known is not None:
        return known.dtype.is_floating_point or not known.numel() or int(known.min()) >= 0
    node = index.node()
    if node.kind() == "aten::arange":
        bounds = [value.toIValue() for value in list(node.inputs())[: max(1, node.inputsSize() - 4)]]
        return None not in bounds and min(bounds) >= 0
    return node.kind() in _FROM_THE_FRONT


def _sort(graph: Any, node: Any) -> None:
    """Ask for the largest values in order, where a model takes them in any."""
    with graph.insert_point_guard(node):
        node.replaceInput(4, graph.insertConstant(True))


def _scatter_by_mask(graph: Any, node: Any) -> None:
    """Write one value, or row, to each place of a mask by masked_scatter, which takes them in order."""
    data, indices, values, accumulate = node.inputs()
    masks, sizes, rank = list(indices.node().inputs()), values.type().sizes(), data.type().dim()
    if len(masks) != 1 or not _is_mask(masks[0]) or not masks[0].type().sizes() or not sizes or rank is None:
        return
    if accumulate.toIValue() or math.prod(sizes) == 1:
        return
    inner = rank - masks[0].type().dim()
    with graph.insert_point_guard(node):
        if len(sizes) <= inner or sizes[-inner - 1] == 1:  # the same for all places
            wanted = [graph.insertConstant(size) for size in data.type().sizes()]
            shape = insert(graph, "prim::ListConstruct", wanted, node.output())
            shape.setType(torch._C.ListType.ofInts())
            values = insert(graph, "aten::expand", [values, shape, graph.insertConstant(False)], node.output())
        mask = masks[0]
        for _ in range(inner):
            like = torch.zeros([*mask.type().sizes(), 1], dtype=mask.type().dtype())
            mask = insert(graph, "aten::unsqueeze", [mask, graph.insertConstant(-1)], node.output())
            mask.setType(torch._C.TensorType.create_from_tensor(like))
    replace(graph, node, node.kind().replace("index_put", "masked_scatter"), [data, mask, values])


def _leave_out_empty(graph: Any, node: Any) -> None:
    """Leave out tensors of shape (0,), which torch joins with tensors of any shape."""
    parts = list(node.inputsAt(0).node().inputs())
    kept = [part for part in parts if part.type().kind() == "TensorType" and part.type().sizes() != [0]]
    if node.inputsAt(0).node().kind() == "prim::ListConstruct" and 0 < len(kept) < len(parts):
        with graph.insert_point_guard(node):
            made = graph.insertNode(graph.create("prim::ListConstruct", kept, 1)).output()
        made.setType(node.inputsAt(0).type())
        node.replaceInput(0, made)


def _close_slice(graph: Any, node: Any) -> None:
    """Write the end of a slice that a script leaves open, which the importer would compute at run time."""
    with graph.insert_point_guard(node):
        for at, usual in ((2, 0), (3, 2**63 - 1)):
            if node.inputsAt(at).type().kind() == "NoneType":
                node.replaceInput(at, graph.insertConstant(usual))


def _round_quotient(graph: Any, node: Any) -> None:
    mode = node.inputsAt(2).toIValue()
    if mode is None:
        return
    inputs = list(node.inputs())
    kind, inputs = ("aten::floor_divide", inputs[:2]) if mode == "floor" else (_TRUNCATED, inputs)
    with graph.insert_point_guard(node):
        rounded = insert(graph, kind, inputs, node.output())
        if node.kind().endswith("_"):  # the write stays, of what is ready now
            no = graph.insertConstant(False)
            rounded = insert(graph, "aten::copy_", [node.inputsAt(0), rounded, no], node.output())
    substitute(node, rounded)


def _numbers(value: Any) -> list[Any]:
    """Return a list of numbers, with None for a number that is computed at run time."""
    known = value.toIValue()
    return list(known or []) if known is not None else [part.toIValue() for part in value.node().inputs()]


def _refuse_fractions(node: Any) -> None:
    """Reject fractional scales: torch interpolates by the given scale, TVM by the ratio of the sizes."""
    kind, options = node.kind(), [value.toIValue() for value in node.inputs()][2:]
    last = node.inputsAt(node.inputsSize() - 1)
    scales = _numbers(last) if last.type().kind() == "ListType" else [one for one in options if isinstance(one, float)]
    sizes = [(value.type().sizes() or [])[2:] for value in (node.inputsAt(0), node.output())]
    if None in scales or True in options[:1] or not len(scales) == len(sizes[0]) == len(sizes[1]):
        return  # of corners that are aligned it takes no scale
    nearest = "nearest" in kind
    for size, made, scale in zip(*sizes, scales, strict=True):
        at = np.arange(made, dtype="float32")
        by_scale, by_size = at / np.float32(scale), at * np.float32(size / made)
        if not (np.floor(by_scale) == np.floor(by_size)).all() if nearest else abs(size * scale - made) > 1e-6 * made:
            raise NotImplementedError(
                f"{kind} by {scale:g}, which leaves a fraction of an element; give interpolate a size, or "
                "recompute_scale_factor=True"
            )


def _truncated_divide(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """Return a truncated quotient; integers are divided as integers, because large ones lose digits as floats."""
    relay = load_tvm().relay
    kinds = [dtype_of(value) if isinstance(value, relay.Expr) else None for value in inputs[:2]]
    samples = [
        torch.ones(1, dtype=getattr(torch, k)) if k else value for k, value in zip(kinds, inputs[:2], strict=True)
    ]
    wanted = str(torch.result_type(*samples)).removeprefix("torch.")
    parts = [relay.cast(v, wanted) if k else relay.const(v, wanted) for k, v in zip(kinds, inputs[:2], strict=True)]
    quotient = relay.divide(*parts)
    return relay.trunc(quotient) if "float" in wanted else quotient


def _meshgrid(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::meshgrid(tensors, indexing)"""
    return load_tvm().relay.meshgrid(inputs[0], indexing=inputs[1] if len(inputs) > 1 else "ij")


def _round(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::round(data, decimals). A half is rounded to the even number, in Relay away from zero."""
    relay = load_tvm().relay
    data = inputs[0]
    if len(inputs) > 1 and inputs[1]:
        raise NotImplementedError("aten::round to decimals; multiply, round and divide instead")
    dtype = dtype_of(data)
    if "float" not in dtype:
        return data
    half = relay.equal(relay.abs(relay.subtract(data, relay.trunc(data))), relay.const(0.5, dtype))
    even = relay.multiply(relay.round(relay.multiply(data, relay.const(0.5, dtype))), relay.const(2.0, dtype))
    return relay.where(half, even, relay.round(data))


def _gelu(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::gelu(data, approximate). TVM's own converter is always exact."""
    relay = load_tvm().relay
    data, kind = inputs[0], dtype_of(inputs[0])

    def number(value: float) -> Any:
        return relay.const(value, kind)

    if len(inputs) > 1 and inputs[1] == "tanh":
        cube = data * data * data
        share = relay.tanh(number(math.sqrt(2 / math.pi)) * (data + number(0.044715) * cube))
    else:
        share = relay.erf(data * number(math.sqrt(0.5)))
    return data * (number(0.5) + share * number(0.5))


def _spread(root: bool, mean: bool) -> Any:
    """Return a converter of aten::var and similar operators, of (data, unbiased) or of (data, axes, correction,
    keepdim). TVM's own converter treats a missing correction, which means 1, as 0."""

    def measure(inputs: Sequence[Any], _: Sequence[str]) -> Any:
        relay = load_tvm().relay
        data, *rest = inputs
        axes, correction, keep = rest if len(rest) > 1 else (None, rest[0] if rest else None, False)
        correction = 1 if correction is None else correction
        if correction not in (0, 1):
            raise NotImplementedError(f"a variance with a correction of {correction}; use 0 or 1")
        axes = None if axes == [] else axes
        given = {"axis": axes, "keepdims": bool(keep), "unbiased": bool(correction)}
        if not mean:
            return relay.std(data, **given) if root else relay.variance(data, **given)
        average, variance = relay.mean_variance(data, **given)
        return relay.sqrt(variance) if root else variance, average

    return measure


def _chunk(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::chunk(data, count, axis): parts of one size, rounded up; the last one is smaller, and there may be fewer
    than `count`. TVM's own converter rounds differently."""
    data, count, axis = inputs
    size = int(shape_of(data)[axis])
    each = -(-size // count)
    return load_tvm().relay.split(data, list(range(each, size, each)), axis)


def _bincount(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    raise NotImplementedError(
        "aten::bincount, whose result has a size that depends on values; scatter into a known size"
    )


def _cross_entropy(inputs: Sequence[Any], _: Sequence[str]) -> Any:
    """aten::cross_entropy_loss(data, target, weight, reduction, ignored class, label smoothing). TVM's own converter
    normalizes along the last axis, which is the axis of classes only without further dimensions, and ignores the
    smoothing."""
    relay = load_tvm().relay
    data, target, weight, reduction, ignored, smoothing = inputs
    if smoothing:
        raise NotImplementedError("aten::cross_entropy_loss with label smoothing; smooth the targets instead")
    if len(shape_of(data)) == 1:
        data, target = relay.expand_dims(data, 0), relay.expand_dims(target, 0)
    shares = relay.nn.log_softmax(data, axis=1)
    classes, kind = int(shape_of(data)[1]), dtype_of(data)
    if "int" in dtype_of(target):
        weight = relay.ones((classes,), kind) if weight is None else weight
        loss = relay.nn.nll_loss(shares, target, weight, ("none", "mean", "sum")[reduction], ignored)
        return relay.squeeze(loss) if reduction == 0 and len(shape_of(inputs[0])) == 1 else loss
    if weight is not None:
        shares = relay.multiply(shares, relay.reshape(weight, (1, classes, *[1] * (len(shape_of(data)) - 2))))
    losses = relay.negative(relay.sum(relay.multiply(shares, target), axis=1))
    if reduction == 0:
        return relay.squeeze(losses) if len(shape_of(inputs[0])) == 1 else losses
    return relay.mean(losses) if reduction == 1 else relay.sum(losses)


OPTION_CONVERTERS = {
    "aten::bincount": _bincount,
    "aten::cross_entropy_loss": _cross_entropy,
    _TRUNCATED: _truncated_divide,
    "aten::gelu": _gelu,
    "aten::chunk": _chunk,
    "aten::unsafe_chunk": _chunk,
    "aten::var": _spread(root=False, mean=False),
    "aten::std": _spread(root=True, mean=False),
    "aten::var_mean": _spread(root=False, mean=True),
    "aten::std_mean": _spread(root=True, mean=True),
    "aten::meshgrid": _meshgrid,
    "aten::round": _round,
    **dict.fromkeys(("aten::alias", "aten::lift_fresh_copy"), lambda inputs, _: inputs[0]),
}
"""Converters by the name of the operator."""
