"""Tasks of AutoTVM: shapes, types, FLOPs and bytes, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, flat_rows, import_autotvm
from op_profiler.dataset.formats.autotvm_tasks import operator_of
from op_profiler.schedules.records import parse_line


def tensor(*shape: int, dtype: str = "float32") -> list[Any]:
    return ["TENSOR", list(shape), dtype]


def line(template: str, arguments: list[Any], target: str = "llvm") -> str:
    config: dict[str, Any] = {"index": 1, "code_hash": None, "entity": []}
    fields = {"input": [target, template, arguments, {}], "config": config, "result": [[1e-3], 0, 1.0, 1.0]}
    return json.dumps(fields)


def int8(*shape: int) -> list[Any]:
    return tensor(*shape, dtype="int8")


SAME = [[1, 1], [1, 1, 1, 1], [1, 1]]
DATA, WEIGHT = tensor(1, 8, 6, 6), tensor(4, 8, 3, 3)
PLAIN = [*SAME, "float32"]
READY = "conv2d_nchw_winograd_without_weight_transform.cuda"
# template, arguments, shape of the result and its type, multiply-adds
TASKS: list[tuple[str, list[Any], tuple[int, ...], str, int]] = [
    ("conv2d_nchw.cuda", [DATA, WEIGHT, *PLAIN], (1, 4, 6, 6), "float32", 10368),
    ("group_conv2d_nchw.x86", [DATA, tensor(4, 4, 3, 3), *SAME, 2, "float32"], (1, 4, 6, 6), "float32", 5184),
    ("conv2d_nhwc.gpu", [tensor(1, 6, 6, 8), tensor(3, 3, 8, 4), *PLAIN], (1, 6, 6, 4), "float32", 10368),
    ("conv2d_hwcn.cuda", [tensor(6, 6, 8, 1), tensor(3, 3, 8, 4), *PLAIN], (6, 6, 4, 1), "float32", 10368),
    (
        "conv2d_NCHWc_int8.cuda",
        [int8(1, 2, 6, 6, 4), int8(1, 2, 3, 3, 6, 4), *SAME, "NCHW4c", "int32"],
        (1, 1, 6, 6, 6),
        "int32",
        15552,
    ),
    (
        "conv2d_NCHWc_int8.x86",
        [int8(1, 8, 6, 6), int8(4, 8, 3, 3), *SAME, "NCHW", "NCHW", "int32"],
        (1, 4, 6, 6),
        "int32",
        10368,
    ),
    ("conv2d_nchwc.image2d", [tensor(1, 2, 6, 6, 4), tensor(1, 8, 3, 3, 4), *PLAIN], (1, 1, 6, 6, 4), "float32", 10368),
    (
        "conv2d_packed.vta",
        [int8(1, 1, 6, 6, 1, 8), int8(1, 1, 3, 3, 4, 8), *SAME, "NCHW1n8c", "int32"],
        (1, 1, 6, 6, 1, 4),
        "int32",
        10368,
    ),
    ("depthwise_conv2d_nhwc.mali", [tensor(1, 6, 6, 8), tensor(3, 3, 8, 1), *PLAIN], (1, 6, 6, 8), "float32", 2592),
    (
        "depthwise_conv2d_NCHWc.x86",
        [tensor(1, 2, 6, 6, 4), tensor(2, 1, 3, 3, 1, 4), *SAME, "NCHW4c", "NCHW4c", "float32"],
        (1, 2, 6, 6, 4),
        "float32",
        2592,
    ),
    ("conv2d_nchw_winograd.arm_cpu", [DATA, WEIGHT, *PLAIN], (1, 4, 6, 6), "float32", 10368),
    ("conv2d_nchw_winograd.arm_cpu", [DATA, tensor(6, 6, 1, 8, 4), *PLAIN], (1, 4, 6, 6), "float32", 10368),
    (READY, [DATA, tensor(4, 4, 8, 4), *PLAIN], (1, 4, 6, 6), "float32", 10368),
    (READY, [tensor(1, 8, 8, 8), tensor(6, 6, 8, 4), *PLAIN], (1, 4, 8, 8), "float32", 18432),
    (
        "conv2d_transpose_nchw.cuda",
        [DATA, tensor(8, 4, 4, 4), [2, 2], [1, 1, 1, 1], "float32", [0, 0]],
        (1, 4, 12, 12),
        "float32",
        18432,
    ),
    ("conv1d_ncw.cuda", [tensor(1, 8, 6), tensor(4, 8, 3), [1], [1], [1], "float32"], (1, 4, 6), "float32", 576),
    (
        "conv1d_transpose_nchw.cuda",
        [tensor(1, 8, 6), tensor(8, 4, 4), [2], [1], "float32", [0]],
        (1, 4, 12),
        "float32",
        768,
    ),
    (
        "conv3d_ndhwc.x86",
        [tensor(1, 2, 6, 6, 8), tensor(1, 3, 3, 8, 4), [1, 1, 1], [0, 1, 1], [1, 1, 1], 1, "float32"],
        (1, 2, 6, 6, 4),
        "float32",
        20736,
    ),
    (
        "deformable_conv2d_nchw.cuda",
        [DATA, tensor(1, 18, 6, 6), WEIGHT, *SAME, 1, 1, "float32"],
        (1, 4, 6, 6),
        "float32",
        10368,
    ),
    ("dense_int8.x86", [int8(2, 8), int8(1, 2, 16, 4), None, "int32"], (2, 16), "int32", 256),
    ("dense_pack.x86", [tensor(2, 8), tensor(2, 8, 8), None, "float32"], (2, 16), "float32", 256),
    ("matmul.arm_cpu.sme", [tensor(2, 8), tensor(8, 4), None, "float32", False, False], (2, 4), "float32", 64),
    ("batch_matmul.cuda", [tensor(3, 2, 8), tensor(3, 4, 8)], (3, 2, 4), "float32", 192),
]


@pytest.mark.parametrize(("template", "arguments", "shape", "dtype", "products"), TASKS, ids=[t[0] for t in TASKS])
def test_a_task_is_what_its_template_computes(
    template: str, arguments: list[Any], shape: tuple[int, ...], dtype: str, products: int
) -> None:
    record = parse_line(line(template, arguments))
    assert record is not None
    operator = operator_of(record)
    assert (operator.outputs[0].shape, operator.outputs[0].dtype) == (shape, dtype)
    assert operator.flops == 2 * products


def test_a_bias_is_part_of_a_dense_layer() -> None:
    record = parse_line(line("dense.mali", [tensor(2, 8), tensor(4, 8), tensor(4), None]))
    assert record is not None
    operator = operator_of(record)
    assert operator.op_names == ("nn.dense", "nn.bias_add") and operator.flops == 2 * 64 + 8
    assert operator.bytes_read == 4 * (16 + 32 + 4)


def test_what_is_ambiguous_is_rejected_and_one_target_is_one_device(tmp_path: Path, url: str) -> None:
    dense = [tensor(1, 8, dtype="float16"), tensor(4, 8, dtype="float16"), None, "float16"]
    lines = [
        line(READY, [tensor(1, 8, 28, 28), tensor(6, 6, 8, 4), *PLAIN]),
        line("conv2d_nchw.cuda", [DATA, tensor(4, 3, 3, 3), *PLAIN]),
        line("dense_nopack.x86", [tensor(1, 8, dtype="int16"), tensor(4, 8, dtype="int16"), None, "int32"]),
        line("dense.mali", dense, "opencl -model=rk3399 -device=mali"),
        line("dense.mali", dense, "opencl -device=mali  -model=rk3399"),
    ]
    (tmp_path / "x.log").write_text("\n".join(lines))
    with Dataset.open(url) as dataset:
        done = import_autotvm(dataset, tmp_path / "x.log", processor="tasks")
        (row,) = (row for row in flat_rows(dataset) if row["processor"] == "tasks")
    assert (done.rows, done.merged, sum(done.rejected.values())) == (1, 1, 3)
    assert any("ambiguous" in reason for reason in done.rejected)
    assert (row["precision"], row["target"]) == ("float16", "opencl -device=mali -model=rk3399")
