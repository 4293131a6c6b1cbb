"""Builds the operators of Relay expressions without a compiler, in the layouts that TVM chooses for common layers or in
plain layouts.

An architecture search predicts thousands of networks that differ in widths and depths. Lowering each takes a second;
this module takes microseconds per layer. A test compares every rule with the result of TVM.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from op_profiler.errors import UsageError
from op_profiler.operators.cost import HEAVY, MOVES_DATA, REDUCES
from op_profiler.operators.describe import Description, constant
from op_profiler.operators.kinds import described_kinds
from op_profiler.operators.kinds.point import Point, Scope
from op_profiler.operators.kinds.sizes import LARGEST_BLOCK, largest_divisor, windows
from op_profiler.operators.operator import Operator, TensorSpec

_NOT_ELEMENTWISE = HEAVY | REDUCES | MOVES_DATA
_LARGEST_DENSE_BLOCKS = 2
"""Largest number of vectors in a block of a dense layer's columns."""


@functools.lru_cache(maxsize=1 << 17)
def described(point: Point, lanes: int = LARGEST_BLOCK) -> Operator:
    """Return the operator that a point becomes as a layer of a network, between layers with blocked channels.

    Args:
        lanes: number of 32-bit values in a vector register: 16 with AVX-512, 8 with AVX2.

    Raises:
        UsageError: the kind of the point, or its epilogue, becomes several operators or is not supported here.
    """
    if not point.described:
        raise UsageError(
            f"{type(point).__name__} is not described without a compiler; there are: {', '.join(described_kinds())}"
        )
    return operator_of_expression(point.expression, lanes)


def operator_of_expression(expression: Callable[[Scope], Any], lanes: int = 0) -> Operator:
    """Return one operator with all ops of an expression.

    Args:
        expression: as returned by `Point.expression`.
        lanes: as for `described`; 0: nothing is blocked or packed.
    """
    result = expression(Scope(_RELAY, lanes=lanes))
    calls = _Calls(lanes)
    calls.read(result)
    return calls.description.operator((result.spec,))


@dataclasses.dataclass(eq=False, slots=True)
class _Node:
    """A variable, a constant, or a call of an op; some attributes are set when the node is read.

    Attributes:
        spec: its tensor, in the layout in which it is read.
        name: its name in the structure of the operator; empty before it is read.
        block: number of channels in the innermost dimension; 0: channels are not blocked.
    """

    spec: TensorSpec
    op: str = ""
    inputs: tuple[_Node, ...] = ()
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_weight: bool = False
    name: str = ""
    block: int = 0


class _Relay(ModuleType):
    """Replaces the module ``tvm.relay``, or a function of it by its name; a call returns a `_Node`."""

    def __getattr__(self, name: str) -> _Relay:
        found = _Relay(f"{self.__name__}.{name}".lstrip("."))
        setattr(self, name, found)  # is found there from now on
        return found

    def __call__(self, *inputs: _Node, **attrs: Any) -> _Node:
        """Return the call of an op, with the attributes that remain after TVM's passes."""
        plain = {
            name: list(value) if isinstance(value, tuple) else int(value) if isinstance(value, bool) else value
            for name, value in attrs.items()
            if value != ""
        }
        return _Node(inputs[0].spec, self.__name__, inputs, plain)

    def var(self, name: str, *, shape: tuple[int, ...], dtype: str) -> _Node:
        return _Node(TensorSpec(shape, dtype), is_weight=name.startswith("w"))

    def const(self, value: float, dtype: str) -> _Node:
        spec = TensorSpec((), dtype)
        return _Node(spec, name=constant(spec, value))


_RELAY = _Relay("")


class _Calls:
    """Reads calls in the order of a compiler: inputs of an op are read before the op."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.description = Description([], [])

    def read(self, node: _Node, block: int = 0) -> None:
        """Name a node and everything that it reads.

        Args:
            block: number of channels in a block, if the node is a variable.
        """
        if node.name:
            return
        if node.op:
            _READ.get(node.op, _elementwise)(self, node)
        else:
            self.variable(node, _in_blocks(node.spec.shape, block) if block else node.spec.shape)

    def variable(self, node: _Node, shape: Sequence[int]) -> None:
        """Name a variable with this shape as its layout."""
        node.spec = TensorSpec(tuple(shape), node.spec.dtype)
        node.name = self.description.parameter((node.spec,), node.is_weight)

    def call(self, node: _Node, attrs: dict[str, Any], shape: Sequence[int], op: str = "", block: int = 0) -> None:
        """Name a call whose inputs were read.

        Args:
            shape: shape of its result.
            op: name that replaces the node's op.
        """
        first = node.inputs[0].spec
        node.spec = first if shape == first.shape else TensorSpec(tuple(shape), first.dtype)
        node.block = block
        names, specs = [one.name for one in node.inputs], [one.spec for one in node.inputs]
        node.name = self.description.op(op or node.op, attrs, names, specs, (node.spec,))


def _in_blocks(shape: Sequence[int], block: int) -> tuple[int, ...]:
    """Return a shape that broadcasts to NCHW, with its channels in blocks."""
    batch, channels, *sizes = (*[1] * (4 - len(shape)), *shape)
    return (batch, channels // block, *sizes, block)


def _elementwise(calls: _Calls, node: _Node) -> None:
    """Read a call whose result has the shape of its first input; the other inputs get the layout of that input."""
    if node.op in _NOT_ELEMENTWISE:
        raise UsageError(f"{node.op} is not described without a compiler")
    first = node.inputs[0]
    for one in node.inputs:
        calls.read(one, first.block)
    calls.call(node, node.attrs, first.spec.shape, block=first.block)


def _conv2d(calls: _Calls, node: _Node) -> None:
    """Read a convolution: TVM blocks channels unless there are several groups of several channels."""
    data, weight = node.inputs
    batch, in_channels, *sizes = data.spec.shape
    kernel, out, groups = (node.attrs[name] for name in ("kernel_size", "channels", "groups"))
    window = (node.attrs[name] for name in ("strides", "padding", "dilation"))
    shape = (batch, out, *windows(sizes, kernel, *window))
    depthwise = groups == in_channels == out
    if not calls.lanes or (groups > 1 and not depthwise):
        calls.read(data)
        calls.read(weight)
        calls.call(node, node.attrs | {"data_layout": "NCHW", "kernel_layout": "OIHW"}, shape)
        return
    block = largest_divisor(out, calls.lanes)
    block_in = largest_divisor(in_channels, block)
    inner = 1 if depthwise else block_in
    calls.read(data, block_in)
    calls.variable(weight, (out // block, in_channels // groups // inner, *kernel, inner, block))
    layouts = {
        "data_layout": f"NCHW{block_in}c",
        "kernel_layout": f"OIHW{inner}i{block}o",
        "out_layout": f"NCHW{block}c",
    }
    op = "nn.contrib_depthwise_conv2d_NCHWc" if depthwise else "nn.contrib_conv2d_NCHWc"
    calls.call(node, node.attrs | layouts, _in_blocks(shape, block), op, block)


def _dense(calls: _Calls, node: _Node) -> None:
    """Read a dense layer: TVM packs the weight in blocks of columns."""
    data, weight = node.inputs
    columns, inner = weight.spec.shape
    calls.read(data)
    shape = (*data.spec.shape[:-1], columns)
    if not calls.lanes:
        calls.read(weight)
        calls.call(node, node.attrs, shape)
        return
    block = largest_divisor(columns, _LARGEST_DENSE_BLOCKS * calls.lanes)
    calls.variable(weight, (columns // block, inner, block))
    attrs = {"out_dtype": "float32", "weight_layout": f"NC{block}n"}
    calls.call(node, node.attrs | attrs, shape, "nn.contrib_dense_pack")


def _batch_matmul(calls: _Calls, node: _Node) -> None:
    left, right = node.inputs
    calls.read(left)
    calls.read(right)
    columns = right.spec.shape[1 if node.attrs["transpose_b"] else 2]
    calls.call(node, node.attrs, (*left.spec.shape[:2], columns))


def _pool2d(calls: _Calls, node: _Node) -> None:
    """Read a pooling of data whose first axes are NCHW."""
    data = node.inputs[0]
    calls.read(data)
    padding = node.attrs["padding"]
    attrs = node.attrs | {"padding": padding * 2 if len(padding) == 2 else padding}
    defaults = {"dilation": [1, 1], "ceil_mode": 0} | ({"count_include_pad": 0} if node.op == "nn.avg_pool2d" else {})
    attrs |= {name: value for name, value in defaults.items() if name not in attrs}
    batch, channels, height, width, *block = data.spec.shape
    sizes = windows((height, width), attrs["pool_size"], attrs["strides"], attrs["padding"])
    calls.call(node, attrs, (batch, channels, *sizes, *block))


def _global_pool2d(calls: _Calls, node: _Node) -> None:
    data = node.inputs[0]
    calls.read(data)
    batch, channels, _, _, *block = data.spec.shape
    calls.call(node, node.attrs, (batch, channels, 1, 1, *block))


_READ: dict[str, Callable[[_Calls, _Node], None]] = {
    "nn.conv2d": _conv2d,
    "nn.dense": _dense,
    "nn.batch_matmul": _batch_matmul,
    "nn.max_pool2d": _pool2d,
    "nn.avg_pool2d": _pool2d,
    "nn.global_avg_pool2d": _global_pool2d,
}
"""Functions that read calls, by op; calls of all other ops are element-wise."""
