"""Winograd's minimal filtering F(4x4, 3x3) over blocked channels, for 3x3 convolutions of stride 1.

A tile of 6x6 inputs gives 4x4 outputs with 36 instead of 144 multiplications a channel (Lavin and Gray, Fast Algorithms
for Convolutional Neural Networks, 2015). Both transforms are separable, so each is done along one axis after the other.
The weights are transformed once, while the model is compiled.

Knobs besides those of `Nest`: ``tile_rows``, rows of tiles that pass through all stages together, and ``compute_at``,
whether the stages are computed block by block (1: padding too, 2: padding at the root) or one after the other (0).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from op_profiler.compilers.relay.templates.conv2d import CONV2D, PADDING, four_sides, shape, static
from op_profiler.compilers.relay.templates.conv2d import tasks as direct_tasks
from op_profiler.compilers.relay.templates.nest import output_of, restrict, tile_sizes, value
from op_profiler.compilers.relay.templates.strategy import registered
from op_profiler.compilers.relay.templates.template import Task, Template
from op_profiler.compilers.tvm_build import load_tvm, replaced
from op_profiler.compilers.tvm_types import Target
from op_profiler.operators.operator import Operator
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.nest import MOST_REGISTERS, MOST_UNROLLED, UNROLLED

WINOGRAD = "conv2d_NCHWc_winograd.op_profiler"
TILE = 4
KERNEL = 3
ALPHA = TILE + KERNEL - 1
BY_STAGE, BY_BLOCK, _PADDING_FIRST = 0, 1, 2


def _winograd(cfg: Any, *arguments: Any) -> Any:
    """Compute a convolution [n, O, h', w', o] of data [n, C, h, w, c] and transformed weight [6, 6, O, C*c, o]."""
    tvm = load_tvm()
    te = tvm.te
    data, weight, _, padding, _, _, _, dtype = arguments
    n, chunks, *_, block = shape(data)
    _, _, out_chunks, channels, lanes = shape(weight)
    padded, out_height, out_width = _padded(data, padding)
    rows, columns = tiles_of(out_height, out_width)
    a_matrix, b_matrix, _ = tvm.topi.nn.winograd_util.winograd_transform_matrices(TILE, KERNEL, dtype)

    i, j = te.reduce_axis((0, ALPHA), name="i"), te.reduce_axis((0, ALPHA), name="j")
    half = te.compute(
        (n, rows, columns, chunks, ALPHA, ALPHA, block),
        lambda b, th, tw, c, u, x, lane: te.sum(
            padded[b, c, th * TILE + i, tw * TILE + x, lane].astype(dtype) * b_matrix[i, u], axis=i
        ),
        name="input_half",
    )
    transformed = te.compute(
        (ALPHA, ALPHA, n, rows, columns, chunks, block),
        lambda u, v, b, th, tw, c, lane: te.sum(half[b, th, tw, c, u, j, lane] * b_matrix[j, v], axis=j),
        name="input_transform",
    )
    ic = te.reduce_axis((0, channels), name="ic")
    products = te.compute(
        (ALPHA, ALPHA, n, out_chunks, rows, columns, lanes),
        lambda u, v, b, oc, th, tw, lane: te.sum(
            transformed[u, v, b, th, tw, ic // block, ic % block] * weight[u, v, oc, ic, lane].astype(dtype), axis=ic
        ),
        name="products",
    )
    k, m = te.reduce_axis((0, ALPHA), name="k"), te.reduce_axis((0, ALPHA), name="m")
    half_out = te.compute(
        (n, out_chunks, rows, columns, TILE, ALPHA, lanes),
        lambda b, oc, th, tw, y, v, lane: te.sum(products[k, v, b, oc, th, tw, lane] * a_matrix[k, y], axis=k),
        name="output_half",
    )
    tiles = te.compute(
        (n, out_chunks, rows, columns, TILE, TILE, lanes),
        lambda b, oc, th, tw, y, x, lane: te.sum(half_out[b, oc, th, tw, y, m, lane] * a_matrix[m, x], axis=m),
        name="output_transform",
    )
    return te.compute(
        (n, out_chunks, out_height, out_width, lanes),
        lambda b, oc, oh, ow, lane: tiles[b, oc, oh // TILE, ow // TILE, oh % TILE, ow % TILE, lane],
        name="winograd",
        tag=WINOGRAD,
        attrs={"nominal_flop": 2 * n * out_chunks * lanes * out_height * out_width * channels * KERNEL * KERNEL},
    )


def tiles_of(out_height: int, out_width: int) -> tuple[int, int]:
    """Return the number of rows and columns of tiles that cover an output."""
    return -(-out_height // TILE), -(-out_width // TILE)


def output_size(height: int, width: int, padding: Any) -> tuple[int, int]:
    """Return height and width of the output for an input and its padding, as in `four_sides`."""
    top, left, bottom, right = four_sides(padding)
    return height + top + bottom - KERNEL + 1, width + left + right - KERNEL + 1


def _padded(data: Any, padding: Any) -> tuple[Any, int, int]:
    """Return the input, padded with zeros to full tiles, and height and width of the output."""
    _, _, height, width, _ = shape(data)
    top, left, *_ = four_sides(padding)
    out_height, out_width = output_size(height, width, padding)
    rows, columns = tiles_of(out_height, out_width)
    below = rows * TILE + KERNEL - 1 - height - top
    beside = columns * TILE + KERNEL - 1 - width - left
    padded = load_tvm().topi.nn.pad(data, (0, 0, top, left, 0), (0, 0, below, beside, 0), name=PADDING)
    return padded, out_height, out_width


def _define(cfg: Any, rows: int, columns: int, out_chunks: int, channels: int) -> None:
    steps = tile_sizes(channels)
    cfg.define_knob("tile_rows", tile_sizes(rows))
    cfg.define_knob("tile_oc", tile_sizes(out_chunks))
    cfg.define_knob("tile_oh", [size for size in tile_sizes(rows) if size <= 8])
    cfg.define_knob("tile_ow", tile_sizes(columns))
    cfg.define_knob("split_ic", [size for size in steps if size >= 4] or steps)
    cfg.define_knob("compute_at", [BY_STAGE, BY_BLOCK, _PADDING_FIRST])
    cfg.define_knob("unroll", [0, 1, 2])
    cfg.nest = _Stages()
    restrict(
        cfg,
        lambda v: v["tile_oc"] * v["tile_oh"] * v["tile_ow"] <= MOST_REGISTERS and v["tile_rows"] % v["tile_oh"] == 0,
    )


class _Stages:
    """Converts the knobs to the schedule factors of the dataset."""

    def factors(self, knobs: Mapping[str, int]) -> Factors:
        """Return the schedule factors of a point; the order is that of the loops of the product stage."""
        by_block = knobs["compute_at"] != BY_STAGE
        where = {BY_STAGE: "root", BY_BLOCK: "oh", _PADDING_FIRST: "oh, padding at the root"}
        return Factors(
            tile={axis: knobs[f"tile_{axis}"] for axis in ("rows", "oc", "oh", "ow")},
            split={"ic": knobs["split_ic"]},
            fuse=2 if by_block else 3,
            reorder="u v n oc oh ow | ic.o ic.i",
            compute_at=where[knobs["compute_at"]],
            unroll=UNROLLED[knobs["unroll"]],
            parallel="n oh" if by_block else "n oh oc, u v",
        )


def _schedule_stages(s: Any, cfg: Any, op: Any, output: Any) -> None:
    tiles = op.input_tensors[0]
    half_out, a_matrix = tiles.op.input_tensors
    products = half_out.op.input_tensors[0]
    transformed = products.op.input_tensors[0]
    half, b_matrix = transformed.op.input_tensors
    padded = half.op.input_tensors[0]
    _, out_chunks, rows, columns, *_ = shape(tiles)
    _define(cfg, rows, columns, out_chunks, int(products.op.reduce_axis[0].dom.extent))
    for matrix in (a_matrix, b_matrix):
        s[matrix].compute_inline()
    output = output_of(s, op.output(0), output)
    if op != output.op:
        s[op].compute_inline()
    where = value(cfg, "compute_at")

    b, oc, oh, ow, lane = s[output].op.axis
    block, oh = s[output].split(oh, factor=value(cfg, "tile_rows") * TILE)
    s[output].reorder(b, block, oc, oh, ow, lane)
    s[output].vectorize(lane)
    if where == BY_STAGE:
        outer = s[output].fuse(b, block, oc)
        s[output].parallel(outer)
        s[tiles].compute_at(s[output], outer)
    else:
        outer = s[output].fuse(b, block)
        s[output].parallel(outer)
        s[products].compute_at(s[output], outer)
        s[transformed].compute_at(s[output], outer)
        s[tiles].compute_at(s[output], oc)
    _schedule_output_transform(s, tiles, half_out)
    _schedule_products(s, cfg, products, alone=where == BY_STAGE)
    _schedule_input_transform(s, transformed, half, alone=where == BY_STAGE)
    s[padded].vectorize(s[padded].op.axis[-1])
    if where == BY_BLOCK:
        s[padded].compute_at(s[output], outer)
    else:
        s[padded].parallel(s[padded].fuse(*s[padded].op.axis[:3]))


def _schedule_output_transform(s: Any, tiles: Any, half_out: Any) -> None:
    b, oc, th, tw, y, x, lane = s[tiles].op.axis
    (m,) = s[tiles].op.reduce_axis
    s[half_out].compute_at(s[tiles], tw)
    _transform(s, tiles, [b, oc, th, tw], [y, x, m], lane)
    b, oc, th, tw, y, v, lane = s[half_out].op.axis
    (k,) = s[half_out].op.reduce_axis
    _transform(s, half_out, [b, oc, th, tw], [v, y, k], lane)


def _schedule_input_transform(s: Any, transformed: Any, half: Any, alone: bool) -> None:
    u, v, b, th, tw, c, lane = s[transformed].op.axis
    (j,) = s[transformed].op.reduce_axis
    _transform(s, transformed, [b, th, tw, c], [u, v, j], lane)
    s[half].compute_at(s[transformed], c)
    if alone:
        s[transformed].parallel(s[transformed].fuse(b, th))
    b, th, tw, c, u, x, lane = s[half].op.axis
    (i,) = s[half].op.reduce_axis
    _transform(s, half, [b, th, tw, c], [x, u, i], lane)


def _transform(s: Any, tensor: Any, outer: list[Any], unrolled: list[Any], lane: Any) -> None:
    """Schedule a transform: outer loops over tiles, and the small matrix product unrolled, so that its constants (many
    are 0 or 1) fold."""
    s[tensor].reorder(*outer, *unrolled, lane)
    for axis in unrolled:
        s[tensor].unroll(axis)
    s[tensor].vectorize(lane)


def _schedule_products(s: Any, cfg: Any, products: Any, alone: bool) -> None:
    accumulators = s.cache_write(products, "global")
    u, v, b, oc, th, tw, lane = s[products].op.axis
    oc, oc_tile = s[products].split(oc, factor=value(cfg, "tile_oc"))
    th, th_tile = s[products].split(th, factor=value(cfg, "tile_oh"))
    tw, tw_tile = s[products].split(tw, factor=value(cfg, "tile_ow"))
    s[products].reorder(u, v, b, oc, th, tw, oc_tile, th_tile, tw_tile, lane)
    s[products].vectorize(lane)
    if alone:
        s[products].parallel(s[products].fuse(u, v))
    s[accumulators].compute_at(s[products], tw)
    u, v, b, oc, th, tw, lane = s[accumulators].op.axis
    outer, inner = s[accumulators].split(s[accumulators].op.reduce_axis[0], factor=value(cfg, "split_ic"))
    s[accumulators].reorder(u, v, b, outer, inner, oc, th, tw, lane)
    s[accumulators].vectorize(lane)
    unroll = value(cfg, "unroll")
    if unroll >= 1:
        for axis in (oc, th, tw):
            s[accumulators].unroll(axis)
    tile = value(cfg, "tile_oc") * value(cfg, "tile_oh") * value(cfg, "tile_ow")
    if unroll >= 2 and tile * value(cfg, "split_ic") <= MOST_UNROLLED:
        s[accumulators].unroll(inner)


def register() -> None:
    """Register the template with AutoTVM and Relay, and make Relay replace convolutions by it where it is faster."""
    tvm = load_tvm()
    arm_cpu, generic = tvm.relay.op.strategy.arm_cpu, tvm.relay.op.strategy.generic
    wrap = functools.partial(generic.wrap_compute_conv2d, need_data_layout=True, need_out_layout=True)
    implementation = registered(WINOGRAD, _winograd, _schedule_stages, wrap)
    strategy = generic.conv2d_winograd_without_weight_transform_strategy
    of_arm = arm_cpu.conv2d_winograd_without_weight_transform_strategy_arm_cpu

    def choose(attrs: Any, inputs: Any, out_type: Any, target: Target) -> Any:
        if len(inputs[0].shape) != 5:
            if "arm_cpu" in target.keys:
                return of_arm(attrs, inputs, out_type, target)
            raise ValueError(f"no implementation of Winograd for layout {attrs.data_layout}")
        chosen = tvm.relay.op.OpStrategy()
        chosen.add_implementation(*implementation, name=WINOGRAD)
        return chosen

    strategy.register(["cpu", "arm_cpu"], choose, True)
    alter = tvm.topi.nn.conv2d_alter_layout
    for key in ("cpu", "arm_cpu"):
        original = alter.dispatch_dict[key]

        def altered(attrs: Any, inputs: Any, tinfos: Any, out_type: Any, original: Any = original) -> Any:
            return _alter(attrs, inputs, tinfos, original(attrs, inputs, tinfos, out_type))

        alter.register(key, altered, True)


def applies(kernel_size: Any, strides: Any, dilation: Any, groups: int, dtype: str) -> bool:
    """Return whether a convolution can be computed by this template of Winograd's algorithm."""
    plain = [tuple(int(v) for v in values) for values in (kernel_size, strides, dilation)]
    return plain == [(KERNEL, KERNEL), (1, 1), (1, 1)] and groups == 1 and dtype == "float32"


def _alter(attrs: Any, inputs: Any, tinfos: Any, blocked: Any) -> Any:
    """Return Winograd's convolution if a record has a shorter time for it, or the rule a lower cost; otherwise
    `blocked`."""
    tvm = load_tvm()
    relay, autotvm = tvm.relay, tvm.autotvm
    if not isinstance(blocked, relay.Call) or str(blocked.op.name) != "nn.contrib_conv2d_NCHWc":
        return blocked
    new = blocked.attrs
    dtype = str(tinfos[0].dtype)
    if not static(tinfos) or not applies(tinfos[1].shape[2:], new.strides, new.dilation, int(new.groups), dtype):
        return blocked
    n, channels, height, width = (int(d) for d in tinfos[0].shape)
    out_channels = int(tinfos[1].shape[0])
    block, lanes = (int(str(layout)[4:-1]) for layout in (new.data_layout, new.out_layout))
    data = tvm.te.placeholder((n, channels // block, height, width, block), dtype)
    chunks = out_channels // lanes
    weight = tvm.te.placeholder((chunks, channels // block, KERNEL, KERNEL, block, lanes), dtype)
    transformed = tvm.te.placeholder((ALPHA, ALPHA, chunks, channels, lanes), dtype)
    layouts = (str(new.data_layout), str(new.out_layout))
    padding = tuple(int(p) for p in new.padding)
    rest = ((1, 1), padding, (1, 1), *layouts, dtype)
    mine = _cost(autotvm, (data, transformed, *rest), WINOGRAD)
    others = [_cost(autotvm, (data, weight, *rest), name) for name in (CONV2D, "conv2d_NCHWc.x86")]
    if mine is None or any(cost is not None and cost <= mine for cost in others):
        return blocked
    weight = relay.nn.contrib_conv2d_winograd_weight_transform(inputs[1], TILE)
    parts = relay.reshape(weight, (ALPHA, ALPHA, out_channels // lanes, lanes, channels))
    return relay.nn.contrib_conv2d_winograd_without_weight_transform(
        inputs[0],
        relay.transpose(parts, (0, 1, 2, 4, 3)),
        TILE,
        padding=padding,
        channels=out_channels,
        kernel_size=(KERNEL, KERNEL),
        data_layout=layouts[0],
        kernel_layout="OIHW",
        out_layout=layouts[1],
        out_dtype=str(new.out_dtype),
    )


def _cost(autotvm: Any, arguments: Any, name: str) -> float | None:
    """Return the time (seconds) of a workload in the records in use, or the cost by the rule (`BY_RULE` and more); None
    if neither has the workload."""
    workload = autotvm.task.args_to_workload(list(arguments), name)
    with replaced(autotvm.GLOBAL_SCOPE, "silent", True):
        found = autotvm.task.DispatchContext.current.query(load_tvm().target.Target.current(), workload)
    return None if found.is_fallback else float(found.cost)


def tasks(anchor: Operator) -> list[Task]:
    """See `Template.tasks`; fits those anchors of the direct convolution template that this algorithm can compute."""
    found = []
    for name, arguments in direct_tasks(anchor):
        data, weight, strides, padding, dilation, data_layout, out_layout, dtype = arguments
        chunks, in_chunks, kh, kw, block, lanes = weight[1]
        groups = data[1][1] * data[1][4] // (in_chunks * block)
        if name == CONV2D and applies((kh, kw), strides, dilation, groups, dtype):
            transformed = ("TENSOR", (ALPHA, ALPHA, chunks, in_chunks * block, lanes), weight[2])
            found.append((WINOGRAD, (data, transformed, (1, 1), padding, (1, 1), data_layout, out_layout, dtype)))
    return found


TEMPLATE = Template(register, tasks)
