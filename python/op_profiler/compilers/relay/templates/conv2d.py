"""Convolutions over blocked channels (``NCHW16c``), dense and depthwise.

The block size is that of TVM's default, so that a tuned operator needs no change of layout between its neighbours; the
channels of the register tile are a multiple of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.relay.templates.nest import apply, nest_of
from op_profiler.compilers.relay.templates.strategy import offer, registered
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import windows
from op_profiler.operators.operator import Operator
from op_profiler.schedules.nest import Axis

PADDING = "data_pad"
CONV2D = "conv2d_NCHWc.op_profiler"
DEPTHWISE = "depthwise_conv2d_NCHWc.op_profiler"


def shape(tensor: Any) -> tuple[int, ...]:
    """Return the shape of a TE tensor as plain numbers."""
    return tuple(int(d) for d in tensor.shape)


def static(inputs: Any) -> bool:
    """Return whether all sizes of TE tensors are known."""
    return all(hasattr(d, "value") or isinstance(d, int) for t in inputs for d in t.shape)


def four_sides(padding: Any) -> tuple[int, ...]:
    """Return the padding at the top, left, bottom and right, given these four or (vertical, horizontal)."""
    sides = tuple(int(side) for side in padding)
    return sides if len(sides) == 4 else (*sides, *sides)


def pad_spatial(data: Any, padding: Any) -> Any:
    """Pad height and width of a 5-D tensor with zeros; return the tensor itself if there is nothing to add.

    Args:
        padding: (vertical, horizontal) or (top, left, bottom, right).
    """
    top, left, bottom, right = four_sides(padding)
    if not any((top, left, bottom, right)):
        return data
    return load_tvm().topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name=PADDING)


def _window(
    padded: Any, kernel: Any, strides: Any, dilation: Any
) -> tuple[list[Any], tuple[int, ...], Callable[[Any, Any], list[Any]]]:
    """Return the reduction axes of a window, height and width of the output, and the function from an output position
    to the input position."""
    extents, steps, gaps = shape(kernel)[2:4], [int(v) for v in strides], [int(v) for v in dilation]
    axes = [load_tvm().te.reduce_axis((0, extent), name=name) for name, extent in zip(("kh", "kw"), extents)]
    sizes = windows(shape(padded)[2:4], extents, steps, [0] * 4, gaps)
    return axes, sizes, lambda *at: [o * step + k * gap for o, step, k, gap in zip(at, steps, axes, gaps)]


def _conv2d(cfg: Any, *arguments: Any) -> Any:
    """Compute a blocked convolution; data [n, C, h, w, c], kernel [O, I, kh, kw, i, o] with I*i channels in a group."""
    te = load_tvm().te
    data, kernel, strides, padding, dilation, _, _, dtype = arguments
    padded = pad_spatial(data, padding)
    n, *_, block = shape(padded)
    chunks, group_chunks, *_, kernel_block, lanes = shape(kernel)
    channels = group_chunks * kernel_block
    groups = shape(data)[1] * block // channels
    ic = te.reduce_axis((0, channels), name="ic")
    (kh, kw), sizes, place = _window(padded, kernel, strides, dilation)

    def product(b: Any, oc: Any, oh: Any, ow: Any, lane: Any) -> Any:
        channel = ic if groups == 1 else (oc * lanes + lane) // (chunks * lanes // groups) * channels + ic
        value = padded[(b, channel // block, *place(oh, ow), channel % block)]
        weight = kernel[oc, ic // kernel_block, kh, kw, ic % kernel_block, lane]
        return te.sum(value.astype(dtype) * weight.astype(dtype), axis=[ic, kh, kw])

    return te.compute((n, chunks, *sizes, lanes), product, name="conv2d", tag=CONV2D)


def _depthwise(cfg: Any, *arguments: Any) -> Any:
    """Compute a blocked depthwise convolution; data [n, C, h, w, c], kernel [C, 1, kh, kw, 1, c]."""
    te = load_tvm().te
    data, kernel, strides, padding, dilation, _, _, dtype = arguments
    padded = pad_spatial(data, padding)
    n, chunks, *_, lanes = shape(padded)
    (kh, kw), sizes, place = _window(padded, kernel, strides, dilation)

    def product(b: Any, oc: Any, oh: Any, ow: Any, lane: Any) -> Any:
        value = padded[(b, oc, *place(oh, ow), lane)]
        return te.sum(value.astype(dtype) * kernel[oc, 0, kh, kw, 0, lane].astype(dtype), axis=[kh, kw])

    return te.compute((n, chunks, *sizes, lanes), product, name="depthwise_conv2d", tag=DEPTHWISE)


def _schedule(s: Any, cfg: Any, op: Any, output: Any) -> None:
    padded = [t for t in op.input_tensors if t.op.name == PADDING]
    n, chunks, height, width, lanes = shape(op.output(0))
    spatial = (Axis("n", n, tiled=False), Axis("oc", chunks), Axis("oh", height), Axis("ow", width))
    reduction = tuple((str(axis.var.name), int(axis.dom.extent)) for axis in op.reduce_axis)
    nest = nest_of(spatial, lanes, reduction, "ic" if op.tag == CONV2D else None, producers=bool(padded))
    apply(nest, s, cfg, op.output(0), output, padded)


def register() -> None:
    """Register both templates with AutoTVM and offer them for the blocked convolutions of Relay."""
    strategies = load_tvm().relay.op.strategy
    arm_cpu, generic, x86 = strategies.arm_cpu, strategies.generic, strategies.x86
    wrap = functools.partial(generic.wrap_compute_conv2d, need_data_layout=True, need_out_layout=True)
    for name, compute, strategy, originals in (
        (
            CONV2D,
            _conv2d,
            generic.conv2d_NCHWc_strategy,
            {"cpu": x86.conv2d_NCHWc_strategy_cpu, "arm_cpu": arm_cpu.conv2d_NCHWc_strategy_arm_cpu},
        ),
        (
            DEPTHWISE,
            _depthwise,
            generic.depthwise_conv2d_NCHWc_strategy,
            {
                "cpu": x86.depthwise_conv2d_NCHWc_strategy_cpu,
                "arm_cpu": arm_cpu.depthwise_conv2d_NCHWc_strategy_arm_cpu,
            },
        ),
    ):
        offer(strategy, originals, {name: (registered(name, compute, _schedule, wrap), _is_float)})


def _is_float(attrs: Any, inputs: Any) -> bool:
    """Return whether the tensors are floats; blocks of int8 have another layout, for dot-product instructions."""
    return "float" in str(inputs[0].dtype) and len(inputs[1].shape) == 6


def tasks(anchor: Operator) -> list[Task]:
    """See `Template.tasks`."""
    tensors = two_float_tensors(anchor)
    names = {"nn.contrib_conv2d_NCHWc": CONV2D, "nn.contrib_depthwise_conv2d_NCHWc": DEPTHWISE}
    if tensors is None or anchor.anchor not in names or len(tensors[1][1]) != 6:
        return []
    attrs = anchor.attrs[0]
    window = (tuple(attrs[name]) for name in ("strides", "padding", "dilation"))
    rest = (*window, attrs["data_layout"], attrs["out_layout"], output_dtype(anchor))
    return [(names[anchor.anchor], (*tensors, *rest))]


TEMPLATE = Template(register, tasks)
