"""`Convolution`: the sizes of a convolution of any kind, and what follows from them."""

from __future__ import annotations

import dataclasses
import math
from types import ModuleType
from typing import TYPE_CHECKING, Any

from op_profiler.operators.kinds import sizes
from op_profiler.operators.kinds.point import Scope

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Node


@dataclasses.dataclass(frozen=True, kw_only=True)
class Convolution:
    """A convolution of any number of axes with all of its sizes; every kind of convolution is expressed by this class.

    Attributes:
        sizes: spatial sizes of the input; `kernel`, `stride` and `dilation` also have one value per spatial axis.
        padding: number of zeros before each axis, followed by the number of zeros after each axis.
        channels_last: whether data is NHWC and the weight HWIO (HWOI in groups), otherwise NCHW and OIHW.
        transposed: whether the convolution is transposed: it upsamples the input by `stride`, and the weight is IOHW.
    """

    batch: int
    in_channels: int
    sizes: tuple[int, ...]
    out_channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    channels_last: bool = False
    transposed: bool = False

    @property
    def out_sizes(self) -> tuple[int, ...]:
        """Sizes of the output, one per axis."""
        if not self.transposed:
            return sizes.windows(self.sizes, self.kernel, self.stride, self.padding, self.dilation)
        margins = sizes.margins(self.padding)
        every = zip(self.sizes, self.kernel, self.stride, margins, self.dilation)
        return tuple((n - 1) * stride - margin + d * (k - 1) + 1 for n, k, stride, margin, d in every)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the output, with channels first or last."""
        return self._shape(self.out_channels, self.out_sizes)

    @property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of the input, with channels first or last."""
        return self._shape(self.in_channels, self.sizes)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """Shape of the weight in the layout that `transposed` and `channels_last` select."""
        if self.transposed:
            return (self.in_channels, self.out_channels // self.groups, *self.kernel)
        outer, inner = self.out_channels, self.in_channels // self.groups
        if not self.channels_last:
            return (outer, inner, *self.kernel)
        return (*self.kernel, *((outer, inner) if self.groups > 1 else (inner, outer)))

    def _shape(self, channels: int, lengths: tuple[int, ...]) -> tuple[int, ...]:
        return (self.batch, *lengths, channels) if self.channels_last else (self.batch, channels, *lengths)

    def call(self, relay: ModuleType, data: Node, weight: Node, **attrs: Any) -> Node:
        """Return the Relay call that convolves `data` with `weight`.

        Args:
            attrs: further attributes, such as ``out_dtype``.
        """
        axes = "DHW"[-len(self.sizes) :]
        if self.channels_last:
            kernel_layout = f"{axes}{'OI' if self.groups > 1 else 'IO'}"
            attrs |= {"data_layout": f"N{axes}C", "kernel_layout": kernel_layout}
        op = getattr(relay.nn, f"conv{len(axes)}d{'_transpose' if self.transposed else ''}")
        return op(
            data,
            weight,
            strides=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.groups,
            channels=self.out_channels,
            kernel_size=self.kernel,
            **attrs,
        )

    def expression(self, scope: Scope) -> Node:
        """Return the Relay expression of the convolution of a new input with a new weight."""
        data, weight = scope.input(*self.data_shape), scope.weight(*self.weight_shape)
        return self.call(scope.relay, data, weight, out_dtype=scope.out_dtype)

    def work(self) -> tuple[float, float]:
        """See `Point.work`."""
        data, weight, out = (math.prod(shape) for shape in (self.data_shape, self.weight_shape, self.out_shape))
        # each weight is used once at each place of the output, or of the input that is spread
        places = self.batch * math.prod(self.sizes if self.transposed else self.out_sizes)
        return 2.0 * places * weight, float(data + weight + out)
