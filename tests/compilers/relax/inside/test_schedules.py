"""Default schedules compute what TVM's own pipeline does, on odd shapes too."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from networks import Body, constant, module, quickly_built, small_network

from op_profiler.compilers.relax.describe import occurrences_of
from op_profiler.compilers.relax.pipeline import finish, lower, scheduled
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.targets.target import resolve_target


def _outputs(executable: Any, data: np.ndarray) -> list[np.ndarray]:
    tvm = load_tvm()
    machine = tvm.relax.VirtualMachine(executable, tvm.cpu())
    made = machine["main"](tvm.runtime.tensor(data))
    return [np.asarray(one.numpy()) for one in ([made] if hasattr(made, "numpy") else made)]


def check(module: Any, shape: tuple[int, ...], *rules: str, shapes: Sequence[tuple[int, ...]] = ()) -> None:
    """The outputs of both pipelines, and which rules were taken for kernels that are not element-wise. Sizes are chosen
    for vectors of 16 values: with shorter ones other rules take some kernels.

    Args:
        shapes: of further inputs.
    """
    tvm, target = load_tvm(), resolve_target("llvm")
    kernels, schedules = scheduled(lower(module, target).kernels, target)
    taken = {schedule.template.removesuffix(".relax") for schedule in schedules.values()} - {"elementwise"}
    if vectors_of(target).lanes == 16:
        assert taken == set(rules)
    quick = quickly_built(target)
    stock = tvm.relax.build(module, quick, relax_pipeline=tvm.relax.get_default_pipeline(quick))
    ours = finish(kernels, quick)
    for size in (shape, *shapes):
        data = np.random.default_rng(2).standard_normal(size).astype("float32")
        for found, expected in zip(_outputs(ours, data), _outputs(stock, data), strict=True):
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-5)


BLOCKED, PLAIN = "conv2d_NCHWc", "conv"


@pytest.mark.parametrize(
    ("rule", "shape", "weight", "options"),
    [
        (BLOCKED, (1, 16, 14, 14), (32, 16, 3, 3), {"padding": 1}),
        (BLOCKED, (2, 3, 15, 17), (13, 3, 5, 3), {"padding": (2, 1), "strides": 2}),
        (BLOCKED, (1, 24, 17, 13), (40, 24, 3, 3), {"padding": 2, "dilation": 2}),
        (BLOCKED, (1, 7, 11, 11), (14, 7, 1, 1), {"strides": (2, 3)}),
        (BLOCKED, (1, 48, 9, 9), (48, 1, 3, 3), {"padding": 1, "groups": 48}),
        (BLOCKED, (1, 64, 8, 8), (64, 16, 3, 3), {"padding": (0, 1, 2, 1), "groups": 4}),
        (BLOCKED, (1, 8, 4, 33), (96, 8, 3, 3), {}),
        (BLOCKED, (1, 16, 3, 39), (32, 16, 3, 3), {"padding": (0, 0, 1, 0)}),
        (BLOCKED, (1, 32, 5, 73), (32, 16, 3, 3), {"groups": 2, "padding": 1, "strides": 2}),
        (PLAIN, (1, 12, 10, 10), (8, 6, 3, 3), {"groups": 2}),
        (PLAIN, (1, 3, 11, 23), (3, 3, 3, 3), {"padding": 1}),
        (PLAIN, (1, 16, 9, 11), (32, 1, 3, 3), {"padding": 1, "groups": 16}),
    ],
)
def test_convolutions(rule: str, shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.nn.conv2d(data, constant(*weight), **options)
        return relax.op.clip(relax.op.add(made, constant(1, weight[0], 1, 1)), -0.5, 0.5)

    check(module(shape, body), shape, rule)


LAST = {"data_layout": "NHWC", "kernel_layout": "HWIO"}
"""As TFLite has convolutions."""


@pytest.mark.parametrize(
    ("rule", "shape", "weight", "options"),
    [
        (BLOCKED, (2, 15, 17, 3), (5, 3, 3, 13), {"padding": (2, 1), "strides": 2}),
        (BLOCKED, (1, 17, 13, 24), (3, 3, 24, 40), {"padding": 2, "dilation": 2}),
        (BLOCKED, (1, 9, 11, 48), (3, 3, 1, 48), {"padding": (0, 1, 2, 1), "groups": 48, "strides": (2, 1)}),
        (BLOCKED, (1, 8, 7, 64), (3, 3, 16, 64), {"padding": (0, 1, 2, 1), "groups": 4}),
        (PLAIN, (1, 11, 23, 3), (3, 3, 3, 3), {"padding": 1}),
        (PLAIN, (1, 9, 11, 16), (3, 3, 1, 32), {"padding": 1, "groups": 16}),
    ],
)
def test_convolutions_with_the_channels_last(
    rule: str, shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.nn.conv2d(data, constant(*weight), **LAST, **options)
        return relax.op.clip(relax.op.add(made, constant(1, 1, 1, weight[3])), -0.5, 0.5)

    check(module(shape, body), shape, rule)


def test_a_network_with_the_channels_last_stays_in_blocks_between_its_convolutions() -> None:
    shape, target = (1, 13, 11, 16), resolve_target("llvm")

    def body(builder: Any, relax: Any, data: Any) -> Any:
        op, emit = relax.op, builder.emit
        made = emit(op.nn.relu(op.add(op.nn.conv2d(data, constant(3, 3, 16, 32), padding=1, **LAST), constant(32))))
        pooled = emit(op.nn.max_pool2d(made, pool_size=3, strides=2, padding=1, layout="NHWC"))
        both = emit(op.concat([pooled, op.nn.conv2d(pooled, constant(1, 1, 32, 16), **LAST)], axis=3))
        deep = emit(op.nn.conv2d(both, constant(3, 3, 1, 48), groups=48, padding=1, **LAST))
        return op.nn.softmax(op.mean(op.add(deep, both), axis=[1, 2]), axis=-1)

    model = module(shape, body)
    check(model, shape, BLOCKED, "reduction", "rows")
    moved = [
        one for one in occurrences_of(lower(model, target)) if one.operator.anchor in ("transpose", "layout_transform")
    ]
    lanes = vectors_of(target).lanes
    ends_only = [(1, 16, 13, 11), (1, 16 // lanes, 13, 11, lanes), (1, 48)]
    assert [one.operator.outputs[0].shape for one in moved] == ends_only


def test_a_minimum_of_a_maximum_is_a_clip_only_where_its_bounds_are_in_order() -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        low, high = (relax.const(np.float32(bound)) for bound in (0.5, -0.5))
        return [relax.op.minimum(relax.op.maximum(data, low), high), relax.op.clip(data, 0.5, -0.5)]

    check(module((3, 5), body), (3, 5))


def test_a_convolution_that_nothing_follows() -> None:
    shape = (1, 32, 7, 7)
    check(module(shape, lambda b, relax, x: relax.op.nn.conv2d(x, constant(32, 32, 3, 3))), shape, BLOCKED)


def test_convolutions_of_one_and_of_three_dimensions() -> None:
    def one(builder: Any, relax: Any, data: Any) -> Any:
        made = builder.emit(relax.op.nn.conv1d(data, constant(6, 5, 3), strides=2, padding=1, dilation=2))
        return relax.op.nn.relu(relax.op.nn.conv1d_transpose(made, constant(6, 3, 4), strides=2))

    def three(builder: Any, relax: Any, data: Any) -> Any:
        return relax.op.nn.relu(relax.op.nn.conv3d(data, constant(4, 3, 2, 3, 3), strides=(1, 2, 1), padding=1))

    check(module((2, 5, 19), one), (2, 5, 19), PLAIN)
    check(module((1, 3, 4, 7, 9), three), (1, 3, 4, 7, 9), PLAIN)


def test_axes_of_a_convolution_have_the_names_of_its_layout() -> None:
    shape, target = (1, 7, 8), resolve_target("llvm")

    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.nn.conv1d(data, constant(3, 8, 16), data_layout="NWC", kernel_layout="WIO")
        return relax.op.nn.relu(made)

    check(module(shape, body), shape, PLAIN)
    (schedule,) = scheduled(lower(module(shape, body), target).kernels, target)[1].values()
    factors = schedule.factors
    assert factors.reorder == "n ow oc | ry.o ry.i rc" and factors.parallel == "n ow"
    assert factors.tile == {"ow": 5, "oc": factors.vectorize}


PHASES = "conv2d_transpose"


@pytest.mark.parametrize(
    ("rule", "shape", "weight", "options"),
    [
        (PHASES, (1, 6, 5, 7), (6, 4, 4, 4), {"strides": 1, "padding": 1}),
        (PHASES, (1, 6, 5, 7), (6, 4, 4, 4), {"strides": 2, "padding": 1}),
        (PHASES, (2, 5, 4, 3), (5, 24, 3, 3), {"strides": 2, "padding": 1, "output_padding": 1}),
        (PHASES, (1, 3, 5, 4), (3, 7, 5, 2), {"strides": (3, 2), "padding": (0, 1, 2, 1)}),
        (PLAIN, (1, 6, 5, 7), (6, 4, 3, 3), {"strides": 2, "padding": 1}),
        (PLAIN, (1, 8, 5, 7), (8, 2, 4, 4), {"strides": 2, "padding": 1, "groups": 2}),
        (PLAIN, (1, 6, 5, 7), (6, 4, 3, 2), {"strides": (1, 2), "padding": (1, 0), "dilation": (2, 1)}),
    ],
)
def test_transposed_convolutions(
    rule: str, shape: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]
) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = builder.emit(relax.op.nn.conv2d_transpose(data, constant(*weight), **options))
        return relax.op.nn.relu(relax.op.multiply(made, relax.const(np.float32(0.5))))

    check(module(shape, body), shape, rule)


@pytest.mark.parametrize("shape", [(2, 5, 17, 19), (1, 32, 6, 48)])
def test_transpositions(shape: tuple[int, ...]) -> None:
    orders = ([0, 2, 3, 1], [0, 3, 1, 2], [3, 2, 1, 0], [0, 2, 1, 3])
    check(module(shape, lambda b, relax, x: [relax.op.permute_dims(x, axes) for axes in orders]), shape)


@pytest.mark.parametrize("channels", [(16, 16), (12, 40)])
def test_ways_into_blocks_of_channels_and_out_of_them(channels: tuple[int, int]) -> None:
    shape = (1, channels[0], 7, 18)
    check(module(shape, lambda b, relax, x: relax.op.nn.conv2d(x, constant(*reversed(channels), 1, 1))), shape, BLOCKED)


@pytest.mark.parametrize(("rows", "depth", "columns"), [(1, 17, 10), (7, 33, 48), (64, 64, 13), (5, 8, 1)])
def test_products(rows: int, depth: int, columns: int) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        return relax.op.nn.relu(relax.op.add(relax.op.matmul(data, constant(depth, columns)), constant(columns)))

    check(module((rows, depth), body), (rows, depth), "matmul")


def test_a_layer_of_attention() -> None:
    shape = (2, 9, 24)

    def body(builder: Any, relax: Any, data: Any) -> Any:
        op, emit = relax.op, builder.emit
        query, key, value = (emit(op.matmul(data, constant(24, 24))) for _ in range(3))
        heads = [emit(op.permute_dims(op.reshape(x, [2, 9, 3, 8]), [0, 2, 1, 3])) for x in (query, key, value)]
        scores = emit(op.multiply(op.matmul(heads[0], op.permute_dims(heads[1], [0, 1, 3, 2])), constant()))
        mixed = emit(op.matmul(op.nn.softmax(scores, axis=-1), heads[2]))
        mixed = emit(op.add(op.reshape(op.permute_dims(mixed, [0, 2, 1, 3]), [2, 9, 24]), data))
        return op.nn.gelu(op.nn.layer_norm(mixed, constant(24), constant(24), axes=[-1]))

    check(module(shape, body), shape, "matmul", "rows")


def test_batched_products_of_rows_that_only_run_time_tells() -> None:
    load_tvm()
    from tvm import tirx

    def body(builder: Any, relax: Any, data: Any) -> Any:
        return relax.op.matmul(data, relax.op.reshape(constant(3 * 20, 12), [3, 20, 12]))

    few, more = (3, 1, 20), [(3, 5, 20), (3, 8, 20)]
    check(module((3, tirx.Var("n", "int64"), 20), body), few, "matmul", shapes=more)


def test_rows_of_products_are_parallel_where_columns_are_few() -> None:
    target = resolve_target("llvm")
    kernels = lower(module((64, 24), lambda b, relax, x: relax.op.matmul(x, constant(24, 48))), target).kernels
    (schedule,) = scheduled(kernels, target)[1].values()
    assert schedule.factors.parallel == "x y"


@pytest.mark.parametrize("swapped", [(False, False), (False, True), (True, False), (True, True)])
def test_batched_products_of_which_no_side_is_transposed_before(swapped: tuple[bool, bool]) -> None:
    shape, target = (3, 14, 20), resolve_target("llvm")

    def body(builder: Any, relax: Any, data: Any) -> Any:
        op, other = relax.op, builder.emit(relax.op.multiply(data, constant(14, 20)))
        if swapped[0] == swapped[1]:
            other = builder.emit(op.reshape(other, [3, 20, 14]))
        sides = [op.permute_dims(x, [0, -1, 1]) if swap else x for x, swap in zip((data, other), swapped)]
        return op.nn.relu(op.add(op.matmul(*map(builder.emit, sides)), relax.const(np.float32(0.25))))

    model = module(shape, body)
    check(model, shape, "matmul")
    (product,) = (one for one in occurrences_of(lower(model, target)) if one.operator.anchor == "nn.batch_matmul")
    assert product.operator.attrs[0] == {"transpose_a": int(swapped[0]), "transpose_b": int(swapped[1])}
    assert not any("transpose" in str(name.name_hint) for name, _ in lower(model, target).kernels.functions_items())


def test_products_of_rows_that_only_run_time_tells() -> None:
    load_tvm()
    from tvm import tirx

    def body(builder: Any, relax: Any, data: Any) -> Any:
        return relax.op.nn.relu(relax.op.matmul(data, constant(24, 32)))

    check(module((tirx.Var("n", "int64"), 24), body), (1, 24), "matmul", shapes=[(3, 24), (4, 24), (33, 24)])


@pytest.mark.parametrize("shape", [(4, 48), (2, 3, 17), (1, 5, 1000)])
def test_rows(shape: tuple[int, ...]) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        op = relax.op.nn
        normed = op.layer_norm(data, constant(shape[-1]), constant(shape[-1]), axes=[-1])
        return [op.softmax(data, axis=-1), op.log_softmax(data, axis=-1), normed]

    check(module(shape, body), shape, "rows")


@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 5, 8)])
def test_norms_of_rows(shape: tuple[int, ...]) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = [relax.op.nn.rms_norm(data, constant(shape[-1]), axes=[-1])]
        if len(shape) == 4:
            made.append(relax.op.nn.layer_norm(data, constant(*shape[2:]), constant(*shape[2:]), axes=[-2, -1]))
            made.append(relax.op.nn.instance_norm(data, constant(3), constant(3), channel_axis=1, axes=[2, 3]))
        return made

    check(module(shape, body), shape, "rows")


@pytest.mark.parametrize("shape", [(2, 6, 5, 7), (2, 6, 6, 6)])
def test_softmax_and_norms_over_channels_and_norms_of_groups_have_no_rows(shape: tuple[int, ...]) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        groups = relax.op.nn.group_norm(data, constant(6), constant(6), num_groups=3, channel_axis=1, axes=[2, 3])
        return [
            relax.op.nn.softmax(data, axis=1),
            groups,
            relax.op.nn.layer_norm(data, constant(6), constant(6), axes=[1]),
        ]

    check(module(shape, body), shape)


@pytest.mark.parametrize("shape", [(2, 5, 6, 16), (3, 2, 7, 13)])
def test_reductions(shape: tuple[int, ...]) -> None:
    """Those over the last axes go row by row; those over others vectorize the last axis."""
    kinds = ("sum", "mean", "max", "min", "prod")

    def body(axes: Sequence[list[int]], keepdims: bool) -> Body:
        made = list(itertools.product(kinds, axes))
        return lambda b, relax, x: [getattr(relax.op, kind)(x, axis=axis, keepdims=keepdims) for kind, axis in made]

    check(module(shape, body([[2, 3], [-1], [0, 1, 2, 3]], keepdims=True)), shape, "rows")
    check(module(shape, body([[1], [0, 2]], keepdims=False)), shape, "reduction")
    check(module(shape, body([[1, 3], [0, 1, 2, 3]], keepdims=False)), shape)


def test_reductions_of_few_rows_are_parallel_over_columns_too() -> None:
    target = resolve_target("llvm")
    kernels = lower(module((2, 30, 768), lambda b, relax, x: relax.op.sum(x, axis=[1])), target).kernels
    (schedule,) = scheduled(kernels, target)[1].values()
    assert schedule.template == "reduction.relax" and schedule.factors.parallel == "ax0 ax1"


def test_reductions_of_a_whole_tensor_are_parallel() -> None:
    shape, target = (3, 40, 256), resolve_target("llvm")

    def body(builder: Any, relax: Any, data: Any) -> Any:
        kinds = itertools.product(("sum", "mean", "max", "min"), (True, False))
        squares = [relax.op.multiply(data, data) for _ in range(8)]
        made = [getattr(relax.op, kind)(x, keepdims=kept) for (kind, kept), x in zip(kinds, squares, strict=True)]
        return [relax.op.sqrt(one) for one in made]

    check(module(shape, body), shape, "whole")
    schedules = scheduled(lower(module(shape, body), target).kernels, target)[1].values()
    assert {one.factors.parallel for one in schedules if one.template == "whole.relax"} == {"k"}


@pytest.mark.parametrize("shape", [(3, 5, 17), (3, 5, 64)])
def test_where_the_largest_value_is(shape: tuple[int, ...]) -> None:
    check(module(shape, lambda b, relax, x: [relax.op.argmax(x, axis=axis) for axis in (1, 2)]), shape, "rows")


def test_pooling_of_rows() -> None:
    shape = (2, 5, 11, 13)
    options: list[dict[str, Any]] = [
        {"strides": 2, "padding": (1, 0, 2, 1)},
        {"strides": (1, 3), "dilation": (1, 2)},
        {"strides": 2, "ceil_mode": True},
    ]

    def body(builder: Any, relax: Any, data: Any) -> Any:
        op = relax.op.nn
        made = [kind(data, pool_size=(3, 2), **one) for kind in (op.max_pool2d, op.avg_pool2d) for one in options]
        return [*made, op.avg_pool2d(data, pool_size=3, padding=1, count_include_pad=True)]

    check(module(shape, body), shape, "reduction")


def test_pooling_of_one_and_of_three_dimensions() -> None:
    one, three = (2, 5, 21), (1, 3, 5, 7, 12)
    check(module(one, lambda b, relax, x: relax.op.nn.max_pool1d(x, 3, strides=2, padding=1)), one, "reduction")
    check(module(three, lambda b, relax, x: relax.op.nn.avg_pool3d(x, 2, strides=(1, 2, 1))), three, "reduction")


def test_adaptive_pooling() -> None:
    shape = (2, 5, 11, 13)
    check(module(shape, lambda b, relax, x: [relax.op.nn.adaptive_avg_pool2d(x, size) for size in (1, (3, 4))]), shape)


@pytest.mark.parametrize("kind", ["max_pool2d", "avg_pool2d"])
def test_pooling(kind: str) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.nn.conv2d(data, constant(16, 16, 1, 1))
        return getattr(relax.op.nn, kind)(made, pool_size=3, strides=2, padding=1)

    check(module((1, 16, 13, 9), body), (1, 16, 13, 9), BLOCKED, "reduction")


def test_a_batch_norm_that_no_convolution_takes_in() -> None:
    shape = (1, 5, 4, 4)

    def body(builder: Any, relax: Any, data: Any) -> Any:
        values = [relax.const(np.full(5, v, dtype="float32")) for v in (1.5, 0.5, 0.2, 2.0)]
        normed = relax.op.nn.batch_norm(data, *values, axis=1, training=False)
        return relax.op.nn.relu(relax.TupleGetItem(builder.emit(normed), 0))

    check(module(shape, body), shape)


def test_a_convolution_that_a_batch_norm_and_another_op_read_is_computed_once() -> None:
    shape = (1, 16, 6, 6)

    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = builder.emit(relax.op.nn.conv2d(data, constant(16, 16, 3, 3), padding=1))
        values = [relax.const(np.full(16, v, dtype="float32")) for v in (1.5, 0.5, 0.2, 2.0)]
        normed = builder.emit(relax.op.nn.batch_norm(made, *values, axis=1, training=False))
        return relax.op.concat([made, relax.op.nn.relu(relax.TupleGetItem(normed, 0))], axis=1)

    model, target = module(shape, body), resolve_target("llvm")
    labels = [str(name.name_hint) for name, _ in lower(model, target).kernels.functions_items()]
    assert sum("conv2d" in label for label in labels) == 1
    check(model, shape, BLOCKED)


def test_a_network() -> None:
    check(small_network(), (1, 16, 12, 12), BLOCKED, "reduction", "matmul", "rows")


@pytest.mark.parametrize(
    ("processor", "lanes"), [("sapphirerapids", 16), ("znver4", 16), ("znver3", 8), ("haswell", 8), ("nehalem", 4)]
)
def test_schedules_reckon_with_the_vectors_of_the_processor(processor: str, lanes: int) -> None:
    target = load_tvm().target.Target({"kind": "llvm", "mcpu": processor})
    assert vectors_of(target).lanes == lanes
