"""Options of torch's operators that TVM's importer reads and ignores, which would silently change the program.

Options that plainer operators can express are rewritten in the graph of the trace; converters handle the rest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.frontends.importers.pool_windows import begins_outside
from op_profiler.frontends.importers.relay_values import dtype_of, shape_of
from op_profiler.frontends.importers.torch_attention import attention_with_options
from op_profiler.frontends.importers.torch_nodes import insert, nodes_of

_SCALED = {"aten::add": 1, "aten::add_": 1, "aten::sub": 1, "aten::sub_": 1, "aten::rsub": 0}
"""Operators with an alpha, and which of their inputs it multiplies."""
_POOLS = {f"aten::{kind}_pool{n}d": -1 if kind == "max" else 4 for kind in ("max", "avg") for n in (1, 2, 3)}
"""Which of their inputs tells whether they count windows that stick out; the first four are alike."""
_ATTENTION = "aten::scaled_dot_product_attention"
_PACKED = ("aten::_pack_padded_sequence", "aten::_pad_packed_sequence")
_FROM_THE_FRONT = ("aten::argmax", "aten::argmin", "aten::argsort", "aten::nonzero")
"""Operators whose results are never negative, by themselves."""

# A graph may hold only operators that torch knows; this one is torch's, and unknown to the importer.
_TRUNCATED = "aten::divide"


def spell_out_options(traced: Any) -> None:
    """Rewrite the graph of a trace, in place, so that no option is left that the importer would overlook."""
    graph = traced.graph
    for node in list(nodes_of(graph)):
        kind = node.kind()
        if kind in _SCALED and node.inputsSize() > 2:
            _multiply_by_alpha(graph, node)
        elif kind in ("aten::div", "aten::div_") and node.inputsSize() > 2:
            _round_quotient(graph, node)
        elif kind in _POOLS:
            _drop_windows_outside(graph, node)
            if node.inputsSize() == 7 and node.inputsAt(6).toIValue() is not None:
                _divide_by_another(graph, node)
        elif kind.removesuffix("_").endswith("dropout") and node.inputsAt(2).toIValue() and node.inputsAt(1).toIValue():
            raise NotImplementedError(f"{kind} drops at random, as in training; switch it off")
        elif kind == _ATTENTION and node.inputsSize() > 7:
            attention_with_options(graph, node)
        elif kind in _PACKED:
            raise NotImplementedError(
                "packed sequences have steps that their lengths decide while running; "
                "give recurrent layers the padded sequences, without pack_padded_sequence"
            )
        elif kind == "aten::index":
            _count_from_the_front(traced, node)
        elif kind == "aten::slice":
            _close_slice(graph, node)


def _multiply_by_alpha(graph: Any, node: Any) -> None:
    """``a + alpha * b`` in two steps."""
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
    """Take indices that may count from behind modulo the size: Relay reads foreign memory at negative ones."""
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
    import torch

    size = graph.insertNode(graph.create("aten::size", [data, axis], 1))
    size.output().setType(torch._C.IntType.get())
    return size.output()


def _is_mask(index: Any) -> bool:
    return index.type().kind() == "TensorType" and str(index.type().dtype()) in ("torch.bool", "torch.uint8")


def _is_from_the_front(traced: Any, index: Any) -> bool:
    """Whether indices are certainly not negative."""
    known = known_tensor(traced, index)
    if known is not None:
        return known.dtype.is_floating_point or not known.numel() or int(known.min()) >= 0
    node = index.node()
    if node.kind() == "aten::arange":
        bounds = [value.toIValue() for value in list(node.inputs())[: max(1, node.inputsSize() - 4)]]
        return None not in bounds and min(bounds) >= 0
    return node.kind() in _FROM_THE_FRONT


def known_tensor(traced: Any, value: Any) -> Any:
    """The tensor that a value is, where it is a constant or is kept in the module."""
    import torch

    path: list[str] = []
    while value.node().kind() in ("aten::lift_fresh_copy", "aten::to", "aten::detach", "aten::clone"):
        value = value.node().inputsAt(0)
    known = value.toIValue()
    while known is None and value.node().kind() == "prim::GetAttr":
        path.append(value.node().s("name"))
        value = value.node().inputsAt(0)
    if path:
        known = functools.reduce(getattr, reversed(path), traced)
    return known if isinstance(known, torch.Tensor) else None


def _close_slice(graph: Any, node: Any) -> None:
    """Scripts leave an end open, of which the importer makes one that is computed while running."""
    with graph.insert_point_guard(node):
        for at, usual in ((2, 0), (3, 2**63 - 1)):
            if node.inputsAt(at).type().kind() == "NoneType":
                node.replaceInput(at, graph.insertConstant(usual))


def _round_quotient(graph: Any, node: Any) -> None:
    mode = node.inputsAt(2).toIValue()
    if mode is None:
        return
    inputs = list(node.inputs())
    with graph.insert_point_guard(node):
        if mode == "floor":
            rounded = insert(graph, "aten::floor_divide", inputs[:2], node.output())
        else:
            rounded = insert(graph, _TRUNCATED, inputs, node.output())
    if node.kind().endswith("_"):  # the write stays, of what is ready now
        with graph.insert_point_guard(node):
            no = graph.insertConstant(False)
            rounded = insert(graph, "aten::copy_", [node.inputsAt(0), rounded, no], node.output())
    node.output().replaceAllUsesWith(rounded)
    node.destroy()


def _numbers(value: Any) -> list[Any]:
    """A list of numbers, None where one is computed while running."""
    known = value.toIValue()
    return list(known) if known is not None else [part.toIValue() for part in value.node().inputs()]


def _drop_windows_outside(graph: Any, node: Any) -> None:
    """Of windows that stick out, torch leaves out those that would begin in the padding. The importer keeps them."""
    at = _POOLS[node.kind()] % node.inputsSize()
    if not node.inputsAt(at).toIValue():
        return
    size, steps, around = (_numbers(node.inputsAt(i)) for i in (1, 2, 3))
    dilation = _numbers(node.inputsAt(4)) if at == 5 else [1]
    rank = int(node.kind()[-2])
    data = (node.inputsAt(0).type().sizes() or [None] * rank)[-rank:]
    wide = [numbers * rank if len(numbers) == 1 else numbers for numbers in (size, steps or size, around, dilation)]
    wide[2] = [(more, more) for more in wide[2]]
    outside = [begins_outside(*given) for given in zip(data, *wide, strict=True)]
    if True not in outside or False in outside:
        return
    with graph.insert_point_guard(node):
        node.replaceInput(at, graph.insertConstant(False))


def _divide_by_another(graph: Any, node: Any) -> None:
    """A pool's mean over its whole windows times their size is their sum, whatever it is divided by then."""
    size, divisor = _numbers(node.inputsAt(1)), node.inputsAt(6).toIValue()
    if len(size) == 1:
        size = size * int(node.kind()[-2])
    with graph.insert_point_guard(node):
        inputs = [*list(node.inputs())[:5], graph.insertConstant(True), graph.insertConstant(None)]
        mean = insert(graph, node.kind(), inputs, node.output())
        scaled = insert(graph, "aten::mul", [mean, graph.insertConstant(math.prod(size) / divisor)], node.output())
    node.output().replaceAllUsesWith(scaled)
    node.destroy()


def _truncated_divide(inputs: Sequence[Any], types: Sequence[str]) -> Any:
    """A quotient without its fraction. Whole numbers are divided as such: as floats, large ones lose digits."""
    import torch

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
    """aten::round(data, decimals). A half goes to the even number beside it, in Relay away from zero."""
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
    """aten::gelu(data, approximate). TVM's own is always the exact one."""
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
    """aten::var and its kin, of (data, unbiased) or of (data, axes, correction, keepdim). TVM's own takes a correction
    that is left open, which means 1, for none."""

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
    than asked for. TVM's own rounds in another way."""
    data, count, axis = inputs
    size = int(shape_of(data)[axis])
    each = -(-size // count)
    return load_tvm().relay.split(data, list(range(each, size, each)), axis)


OPTION_CONVERTERS = {
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
    "aten::lift_fresh_copy": lambda inputs, _: inputs[0],
}
"""By the name of the operator."""
