"""Adds channels to convolutions whose number of output channels no vector divides, for builds by the rule.

TVM packs channels in blocks that divide their number: 58 channels in blocks of 2, so that a vector of 16 values
computes 2, which takes up to 3.5 times as long (`benchmarks/rule.py`). The weights therefore get channels of zeros, and
the result is cut. Operations that treat channels alike compute the added ones too, up to the next convolution, which
multiplies them by zeros; only what reads them otherwise is cut.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from op_profiler.compilers.relay_rewriting import fixed_shape, with_location_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, Node

_CONVOLUTION, _DTYPE = "nn.conv2d", "float32"
_HALF_VECTOR, _VECTOR = 8, 16
_MOST_ADDED = 0.25
"""Largest share of added channels for which whole vectors are filled; otherwise half vectors are."""
_LEAST_FLOPS = 1_000_000
"""Smaller convolutions are not worth the copy of their result."""
_ALIKE = {"nn.relu", "nn.leaky_relu", "clip", "sigmoid", "tanh", "negative"}
_POOLS = {"nn.max_pool2d", "nn.avg_pool2d", "nn.global_avg_pool2d", "nn.global_max_pool2d", "nn.adaptive_avg_pool2d"}
_PAIRS = {"add", "subtract", "multiply", "maximum", "minimum"}
"""Operations on two tensors. All of these have finite results for finite values: zero times infinity would reach the
other channels."""
_BY_CHANNEL = {"nn.bias_add", "nn.batch_norm"}
"""Operations whose other arguments have one value for each channel."""


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A tensor in the layout NCHW whose added channels are cut off.

    Attributes:
        whole: the tensor with the added channels.
        channels: number of channels after the cut.
        added: number of added channels.
    """

    whole: Node
    channels: int
    added: int


class WithMoreChannels:
    """Replaces the calls of one module, in the order of computation (`relay_rewriting.Replace`)."""

    def __init__(self) -> None:
        self._cuts: dict[int, tuple[Node, _Cut]] = {}

    def __call__(self, call: Call, arguments: list[Node]) -> Node | None:
        """Return the replacement of a float32 convolution or of an operation that reads added channels; None for other
        calls."""
        name = getattr(call.op, "name", "")
        cuts = [self._cut_of(argument) for argument in arguments]
        if name == _CONVOLUTION:
            return self._convolution(call, arguments, cuts[0])
        cut = next(filter(None, cuts), None)
        if cut is None:
            return None
        if name in _ALIKE or (name in _POOLS and call.attrs.layout == "NCHW"):
            return self._alike(call, [cut.whole], cut)
        if name == "nn.batch_norm" and not float(call.attrs.epsilon):
            return None  # the added channels have no variance
        if name in _PAIRS or (name in _BY_CHANNEL and int(call.attrs.axis) == 1):
            behind = 2 if name in _PAIRS else 0
            more = [self._with_more(*pair, cut, behind) for pair in zip(call.args, arguments)]
            return None if None in more else self._alike(call, more, cut)
        return None

    def _convolution(self, call: Call, arguments: list[Node], cut: _Cut | None) -> Node | None:
        attrs, sizes = call.attrs, [fixed_shape(tensor) for tensor in (*call.args, call)]
        plain = attrs.data_layout == "NCHW" and attrs.kernel_layout == "OIHW" and attrs.out_layout in ("", "NCHW")
        if not plain or not all(sizes) or any(str(tensor.checked_type.dtype) != _DTYPE for tensor in call.args):
            return None
        (_, read, *_), (channels, of_group, *kernel), result = sizes
        groups, added_inputs = int(attrs.groups), cut.added if cut is not None else 0
        if groups == 1:
            flops = 2 * math.prod(result) * of_group * math.prod(kernel)
            added = _added(channels) if flops >= _LEAST_FLOPS else 0
        elif groups == read == channels and cut is not None:  # depthwise
            groups, added, added_inputs = groups + cut.added, cut.added, 0
        else:
            return None
        if not added and cut is None:
            return None
        relay = load_tvm().relay
        convolution = relay.nn.conv2d(
            cut.whole if cut is not None else arguments[0],
            relay.nn.pad(arguments[1], ((0, added), (0, added_inputs), (0, 0), (0, 0))),
            strides=attrs.strides,
            padding=attrs.padding,
            dilation=attrs.dilation,
            groups=groups,
            channels=channels + added,
            kernel_size=kernel,
            out_dtype=str(attrs.out_dtype),
        )
        made = with_location_of(call, convolution)
        return self._made(_Cut(made, channels, added)) if added else made

    def _with_more(self, before: Node, argument: Node, cut: _Cut, behind: int) -> Node | None:
        """Return an argument with as many channels as `cut.whole`: it is cut itself, has one value for each channel or
        a single one; None for other arguments.

        Args:
            behind: number of axes behind that of the channels.
        """
        own = self._cut_of(argument)
        if own is not None:
            return own.whole if own.added == cut.added else None
        shape = fixed_shape(before)
        if math.prod(shape) == 1:
            return argument
        axis = len(shape) - 1 - behind
        if axis < 0 or math.prod(shape) != cut.channels or shape[axis] != cut.channels:
            return None
        found: Node = load_tvm().relay.nn.pad(argument, [(0, cut.added * (i == axis)) for i in range(len(shape))])
        return found

    def _alike(self, call: Call, arguments: list[Any], cut: _Cut) -> Node:
        relay = load_tvm().relay
        made = relay.Call(call.op, arguments, call.attrs, None, call.span)
        if call.op.name != "nn.batch_norm":
            return self._made(dataclasses.replace(cut, whole=made))
        normalized = self._made(dataclasses.replace(cut, whole=relay.TupleGetItem(made, 0)))
        found: Node = relay.Tuple([normalized, *call.args[3:]])
        return found

    def _made(self, cut: _Cut) -> Node:
        slice_of = load_tvm().relay.strided_slice
        found: Node = slice_of(cut.whole, begin=[0], end=[cut.channels], strides=[1], axes=[1])
        self._cuts[found.handle.value] = found, cut  # keeps the node, whose address is the key
        return found

    def _cut_of(self, node: Node) -> _Cut | None:
        return self._cuts.get(node.handle.value, (None, None))[1]


def _added(channels: int) -> int:
    """Return how many channels fill the last vector; 0 if half vectors divide the channels, and if one vector has room
    for all, because nothing is gained then."""
    if channels % _HALF_VECTOR == 0 or channels <= _VECTOR:
        return 0
    whole = -channels % _VECTOR
    return whole if whole <= _MOST_ADDED * channels else -channels % _HALF_VECTOR
