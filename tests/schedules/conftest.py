"""Tasks of the project's templates, and a worker in this process."""

from __future__ import annotations

import random
from typing import Any

import pytest

from op_profiler.tuning.candidate import TaskSpec
from op_profiler.tuning.task import Task
from op_profiler.tuning.trials.worker import Worker, WorkerSetup


def tensor(*shape: int, dtype: str = "float32") -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, dtype)


def conv2d(
    *,
    n: int = 1,
    channels: int = 16,
    size: int = 7,
    out: int = 16,
    kernel: int = 3,
    stride: int = 1,
    padding: int = 1,
    dilation: int = 1,
    groups: int = 1,
    block: int = 8,
    lanes: int = 8,
    template: str = "conv2d_NCHWc.op_profiler",
) -> TaskSpec:
    per_group = channels // groups
    inner = min(block, per_group)
    rest = ((stride,) * 2, (padding,) * 4, (dilation,) * 2, f"NCHW{block}c", f"NCHW{lanes}c", "float32")
    data = tensor(n, channels // block, size, size, block)
    if "winograd" in template:
        weight = tensor(6, 6, out // lanes, channels, lanes)
    elif "depthwise" in template:
        weight = tensor(channels // block, 1, kernel, kernel, 1, block)
    else:
        weight = tensor(out // lanes, per_group // inner, kernel, kernel, inner, lanes)
    return TaskSpec(template, (data, weight, *rest))


def dense(m: int, n: int, k: int, lanes: int) -> TaskSpec:
    return TaskSpec("dense_pack.op_profiler", (tensor(m, k), tensor(n // lanes, k, lanes), None, "float32"))


def batch_matmul(batch: int, m: int, n: int, k: int, transpose_a: int = 0, transpose_b: int = 1) -> TaskSpec:
    a = tensor(batch, k, m) if transpose_a else tensor(batch, m, k)
    b = tensor(batch, n, k) if transpose_b else tensor(batch, k, n)
    arguments = (a, b, (batch, m, n), "float32", transpose_a, transpose_b)
    return TaskSpec("batch_matmul.op_profiler", arguments)


@pytest.fixture(scope="session")
def worker(target: Any, tmp_path_factory: pytest.TempPathFactory) -> Worker:
    log = tmp_path_factory.mktemp("trials") / "log"
    orders = WorkerSetup(
        target=str(target), threads=1, modules=(), memory_bytes=None, check=True, cache="hot", log=str(log)
    )
    return Worker(orders)


def points(task: Task, count: int) -> list[int]:
    """Valid points of a space, the same in every run."""
    random.seed(0)
    return [task.random_point() for _ in range(count)]
