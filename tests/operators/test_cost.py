"""Operations and bytes of single ops, counted by hand."""

from __future__ import annotations

from typing import Any

import pytest

from op_profiler.operators.cost import flops, least_flops, size_bytes
from op_profiler.operators.kinds.sizes import largest_divisor
from op_profiler.operators.operator import Operator, TensorSpec

Shape = tuple[int, ...]
COUNTS: list[tuple[str, dict[str, Any], list[Shape], Shape, int]] = [
    # op, attributes, shapes that it reads, shape that it writes, operations
    ("nn.conv2d", {"kernel_size": [3, 3]}, [(1, 16, 8, 8), (32, 16, 3, 3)], (1, 32, 6, 6), 2 * 32 * 6 * 6 * 3 * 3 * 16),
    ("nn.conv2d", {}, [(1, 16, 8, 8), (32, 16, 1, 1)], (1, 32, 8, 8), 2 * 32 * 8 * 8 * 16),
    (
        "nn.conv2d",
        {"kernel_size": [3, 3], "groups": 16},
        [(1, 16, 8, 8), (16, 1, 3, 3)],
        (1, 16, 8, 8),
        2 * 16 * 8 * 8 * 3 * 3,
    ),
    (
        "nn.contrib_conv2d_NCHWc",
        {"kernel_size": [1, 1], "data_layout": "NCHW8c"},
        [(1, 2, 8, 8, 8), (4, 2, 1, 1, 8, 8)],
        (1, 4, 8, 8, 8),
        2 * 32 * 8 * 8 * 16,
    ),
    (
        "nn.conv2d_transpose",
        {"kernel_size": [4, 4]},
        [(1, 16, 8, 8), (16, 32, 4, 4)],
        (1, 32, 16, 16),
        2 * 16 * 8 * 8 * 4 * 4 * 32,
    ),
    ("nn.dense", {}, [(4, 64), (10, 64)], (4, 10), 2 * 4 * 10 * 64),
    ("nn.batch_matmul", {}, [(12, 5, 64), (12, 7, 64)], (12, 5, 7), 2 * 12 * 5 * 7 * 64),
    ("attention.prefill", {"sequences": 2}, [(6, 4, 8), (6, 2, 8), (6, 2, 8)], (6, 4, 8), 2 * (1 + 2 + 3) * 4 * 8 * 4),
    ("attention.decode", {"sequences": 2}, [(2, 4, 8), (2, 17, 2, 2, 8)], (2, 4, 8), 2 * 17 * 4 * 8 * 4),
    ("attention.prefill_past", {"sequences": 1}, [(3, 4, 8), (1, 16, 2, 2, 8)], (3, 4, 8), 3 * 16 * 4 * 8 * 4),
    ("nn.max_pool2d", {"pool_size": [3, 3]}, [(1, 8, 9, 9)], (1, 8, 3, 3), 8 * 9 * 9),
    ("mean", {}, [(1, 8, 9, 9)], (1, 8), 8 * 9 * 9),
    ("nn.softmax", {}, [(2, 10)], (2, 10), 5 * 20),
    ("add", {}, [(2, 10), (10,)], (2, 10), 20),
    ("reshape", {}, [(2, 10)], (20,), 0),
    ("image.resize2d", {"method": "nearest_neighbor", "layout": "NCHW"}, [(1, 8, 9, 9)], (1, 8, 18, 18), 0),
    ("image.resize2d", {"method": "linear", "layout": "NCHW"}, [(1, 8, 9, 9)], (1, 8, 18, 18), 8 * 18 * 18 * 4 * 2),
    ("image.resize2d", {"method": "cubic", "layout": "NHWC"}, [(1, 9, 9, 8)], (1, 18, 18, 8), 8 * 18 * 18 * 16 * 2),
    ("image.resize1d", {"method": "linear", "layout": "NCW"}, [(1, 8, 9)], (1, 8, 18), 8 * 18 * 2 * 2),
    ("nn.upsampling", {"method": "bilinear", "layout": "NCHW4c"}, [(1, 2, 9, 9, 4)], (1, 2, 18, 18, 4), 8 * 18**2 * 8),
    ("nn.upsampling3d", {"method": "trilinear", "layout": "NCDHW"}, [(1, 1, 2, 2, 2)], (1, 1, 4, 4, 4), 4**3 * 8 * 2),
]


@pytest.mark.parametrize(
    ("op", "attrs", "read", "written", "count"), COUNTS, ids=[f"{n} {c[0]}" for n, c in enumerate(COUNTS)]
)
def test_operations(op: str, attrs: dict[str, Any], read: list[Shape], written: Shape, count: int) -> None:
    inputs = [TensorSpec(shape, "float32") for shape in read]
    assert flops(op, attrs, inputs, [TensorSpec(written, "float32")]) == count


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 60), ("float16", 30), ("bfloat16", 30), ("int8", 15), ("int4", 8), ("bool", 15)]
)
def test_bytes(dtype: str, size: int) -> None:
    assert size_bytes(TensorSpec((3, 5), dtype)) == size


@pytest.mark.parametrize(("extent", "limit", "found"), [(56, 16, 14), (17, 16, 1), (8, 100, 8), (1, 5, 1)])
def test_divisors(extent: int, limit: int, found: int) -> None:
    assert largest_divisor(extent, limit) == found


@pytest.mark.parametrize(
    ("anchor", "attrs", "share"),
    [
        ("nn.contrib_conv2d_winograd_without_weight_transform", {"tile_size": 4, "kernel_size": [3, 3]}, 36 / 144),
        ("nn.contrib_conv2d_winograd_weight_transform", {"tile_size": 4}, 1.0),
        ("nn.contrib_conv2d_NCHWc", {"kernel_size": [3, 3]}, 1.0),
    ],
)
def test_winograds_convolutions_compute_a_quarter_of_the_counted_flops(
    anchor: str, attrs: dict[str, Any], share: float
) -> None:
    operator = Operator("x", anchor, (anchor,), (), (), (), (attrs,), {}, "", 1000, 1, 1)
    assert least_flops(operator) == pytest.approx(1000 * share)
