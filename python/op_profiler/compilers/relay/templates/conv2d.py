"""Convolutions over blocked channels (``NCHW16c``), dense and depthwise.

The block is the one that TVM's default chose, so that a tuned operator fits between its neighbours without a change of
layout; what the register tile covers in channels is a multiple of it.
"""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relay.templates.nest import Nest
from op_profiler.compilers.relay.templates.strategy import offer
from op_profiler.compilers.relay.templates.template import Task, Template, output_dtype, two_float_tensors
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.operator import Operator

PADDING = "data_pad"
CONV2D = "conv2d_NCHWc.op_profiler"
DEPTHWISE = "depthwise_conv2d_NCHWc.op_profiler"


def shape(tensor: Any) -> tuple[int, ...]:
    """Shape of a TE tensor as plain numbers."""
    return tuple(int(d) for d in tensor.shape)


def pad_spatial(data: Any, padding: Any) -> Any:
    """Zeros around height and width of a 5-D tensor; the tensor itself where there is nothing to add.

    Args:
        padding: (vertical, horizontal) or (top, left, bottom, right).
    """
    top, left, bottom, right = (int(p) for p in (padding if len(padding) == 4 else (*padding, *padding)))
    if not any((top, left, bottom, right)):
        return data
    return load_tvm().topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, bottom, right, 0), name=PADDING)


def output_size(extent: int, kernel: int, stride: int, dilation: int) -> int:
    """Output positions along an axis of `extent` padded elements."""
    return (extent - (kernel - 1) * dilation - 1) // stride + 1


def _conv2d(
    cfg: Any,
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    dtype: str,
) -> Any:
    """Blocked convolution; data [n, C, h, w, c], kernel [O, I, kh, kw, i, o] with I*i channels in a group."""
    tvm = load_tvm()
    te = tvm.te
    padded = pad_spatial(data, padding)
    n, _, height, width, block = shape(padded)
    chunks, group_chunks, kh_size, kw_size, kernel_block, lanes = shape(kernel)
    channels = group_chunks * kernel_block
    groups = shape(data)[1] * block // channels
    stride_h, stride_w = (int(v) for v in strides)
    dilation_h, dilation_w = (int(v) for v in dilation)
    ic = te.reduce_axis((0, channels), name="ic")
    kh = te.reduce_axis((0, kh_size), name="kh")
    kw = te.reduce_axis((0, kw_size), name="kw")

    def product(b: Any, oc: Any, oh: Any, ow: Any, lane: Any) -> Any:
        channel = ic if groups == 1 else (oc * lanes + lane) // (chunks * lanes // groups) * channels + ic
        value = padded[
            b, channel // block, oh * stride_h + kh * dilation_h, ow * stride_w + kw * dilation_w, channel % block
        ]
        weight = kernel[oc, ic // kernel_block, kh, kw, ic % kernel_block, lane]
        return te.sum(value.astype(dtype) * weight.astype(dtype), axis=[ic, kh, kw])

    out_shape = (
        n,
        chunks,
        output_size(height, kh_size, stride_h, dilation_h),
        output_size(width, kw_size, stride_w, dilation_w),
        lanes,
    )
    return te.compute(out_shape, product, name="conv2d", tag=CONV2D)


def _depthwise(
    cfg: Any,
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    dtype: str,
) -> Any:
    """Blocked depthwise convolution; data [n, C, h, w, c], kernel [C, 1, kh, kw, 1, c]."""
    te = load_tvm().te
    padded = pad_spatial(data, padding)
    n, chunks, height, width, lanes = shape(padded)
    _, _, kh_size, kw_size, _, _ = shape(kernel)
    stride_h, stride_w = (int(v) for v in strides)
    dilation_h, dilation_w = (int(v) for v in dilation)
    kh = te.reduce_axis((0, kh_size), name="kh")
    kw = te.reduce_axis((0, kw_size), name="kw")

    def product(b: Any, oc: Any, oh: Any, ow: Any, lane: Any) -> Any:
        value = padded[b, oc, oh * stride_h + kh * dilation_h, ow * stride_w + kw * dilation_w, lane]
        return te.sum(value.astype(dtype) * kernel[oc, 0, kh, kw, 0, lane].astype(dtype), axis=[kh, kw])

    out_shape = (
        n,
        chunks,
        output_size(height, kh_size, stride_h, dilation_h),
        output_size(width, kw_size, stride_w, dilation_w),
        lanes,
    )
    return te.compute(out_shape, product, name="depthwise_conv2d", tag=DEPTHWISE)


def _schedule(cfg: Any, outs: Any) -> Any:
    tvm = load_tvm()
    outs = [outs] if isinstance(outs, tvm.te.Tensor) else outs
    s = tvm.te.create_schedule([t.op for t in outs])

    def visit(op: Any) -> None:
        if op.tag not in (CONV2D, DEPTHWISE):
            return
        padded = [t for t in op.input_tensors if t.op.name == PADDING]
        nest = _nest(op, producers=len(padded))
        nest.define(cfg)
        nest.apply(s, cfg, op.output(0), outs[0], padded)

    tvm.topi.utils.traverse_inline(s, outs[0].op, visit)
    return s


def _nest(op: Any, producers: int) -> Nest:
    n, chunks, height, width, lanes = shape(op.output(0))
    spatial = (("n", n), ("oc", chunks), ("oh", height), ("ow", width))
    reduction = tuple((str(axis.var.name), int(axis.dom.extent)) for axis in op.reduce_axis)
    split = ("ic",) if op.tag == CONV2D else ()
    return Nest(spatial, lanes, reduction, split, untiled=("n",), producers=producers)


def register() -> None:
    """Register both templates with AutoTVM and offer them for the blocked convolutions of Relay."""
    tvm = load_tvm()
    from tvm.relay.op.strategy import arm_cpu, generic, x86

    autotvm = tvm.autotvm
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
        tunable = autotvm.register_topi_compute(name, compute)
        schedule = autotvm.register_topi_schedule(name, _schedule)
        compute_for_relay = generic.wrap_compute_conv2d(tunable, need_data_layout=True, need_out_layout=True)
        offer(strategy, originals, name, (compute_for_relay, generic.wrap_topi_schedule(schedule)), _is_float)


def _is_float(attrs: Any, inputs: Any) -> bool:
    """Blocks of int8 are cut once more for the dot-product instructions; TVM's own templates know those layouts."""
    return "float" in str(inputs[0].dtype) and len(inputs[1].shape) == 6


def tasks(anchor: Operator) -> list[Task]:
    """See `Template`."""
    tensors = two_float_tensors(anchor)
    names = {"nn.contrib_conv2d_NCHWc": CONV2D, "nn.contrib_depthwise_conv2d_NCHWc": DEPTHWISE}
    if tensors is None or anchor.anchor not in names or len(tensors[1][1]) != 6:
        return []
    attrs = anchor.attrs[0]
    window = (tuple(attrs[name]) for name in ("strides", "padding", "dilation"))
    rest = (*window, attrs["data_layout"], attrs["out_layout"], output_dtype(anchor))
    return [(names[anchor.anchor], (*tensors, *rest))]


TEMPLATE = Template(register, tasks)
