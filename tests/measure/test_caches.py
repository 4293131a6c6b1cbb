"""Sizes of what is read from memory: from the caches of the cores in use, as far as there is memory for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from op_profiler import control_groups
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.relay.calls import array_address
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.measure.caches import beyond_caches_bytes, caches_in_use_bytes
from op_profiler.measure.in_place import timed_us
from op_profiler.targets.llvm.reference_kernels import Pieces

KIB, MIB = 1 << 10, 1 << 20
L1, L2, L3 = 32 * KIB, 1 * MIB, 96 * MIB


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Eight cores, each with L1 and L2; four of them share an L3."""
    for core in range(8):
        quarter = "0-3" if core < 4 else "4-7"
        found = [("1", "Data", "32K", f"{core}"), ("1", "Instruction", "32K", f"{core}")]
        found += [("2", "Unified", "1M", f"{core}"), ("3", "Unified", "98304K", quarter)]
        for index, values in enumerate(found):
            folder = tmp_path / f"devices/system/cpu/cpu{core}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in zip(("level", "type", "size", "shared_cpu_list"), values):
                (folder / name).write_text(text + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        ((0,), L1 + L2 + L3),
        ((0, 3), 2 * (L1 + L2) + L3),
        ((0, 4), 2 * (L1 + L2 + L3)),
        (range(8), 8 * (L1 + L2) + 2 * L3),
    ],
)
def test_every_cache_of_the_cores_in_use_counts_once(sysfs: Path, cores: Any, expected: int) -> None:
    assert caches_in_use_bytes(cores, sysfs=sysfs) == expected


def test_where_the_kernel_tells_no_caches_there_are_none(tmp_path: Path) -> None:
    assert caches_in_use_bytes([0, 1], sysfs=tmp_path) == 0


@pytest.mark.parametrize(
    ("total", "available", "limit", "expected"),
    [
        (512 << 30, 400 << 30, None, 2 << 30),  # as asked for
        (32 << 30, 30 << 30, "max", 1 << 30),
        (512 << 30, 400 << 30, f"{16 << 30}", 512 << 20),  # a container's limit
        (32 << 30, 1 << 30, None, 512 << 20),  # others have taken it
    ],
)
def test_memory_limits_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, total: int, available: int, limit: str | None, expected: int
) -> None:
    memory = SimpleNamespace(total=total, available=available)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "mountinfo").write_text(f"29 1 0:26 / {tmp_path} rw - cgroup2 cgroup2 rw\n")
    if limit is not None:
        (tmp_path / "memory.max").write_text(limit + "\n")
    monkeypatch.setattr(control_groups, "_PROCESS", tmp_path)
    assert beyond_caches_bytes(2 << 30) == expected


def test_pieces_come_in_turn_and_hold_what_was_asked_for(target: Any) -> None:
    sums = SumOfProducts("sum", ("prl",), "pl", {"p": 4, "r": 64, "l": 4})
    function = compiler_in_use().build_sums(sums, target)
    pieces = Pieces(sums, function, 10_000)
    assert (pieces.piece_bytes, pieces.total_bytes) == (4096, 3 * 4096)
    read = [kernel.arrays[0] for kernel in pieces._kernels]
    assert len({array_address(array) for array in read}) == 3
    called = [next(pieces._next) for _ in range(4)]
    assert called == [*pieces._kernels, pieces._kernels[0]]
    assert all(timed_us(pieces) > 0 for _ in range(4))
    written = pieces._kernels[0].arrays[1].numpy()
    assert written == pytest.approx(64 * read[0].numpy()[0, 0, 0], rel=1e-5) and written.min() > 1.0
    assert Pieces(sums, function, 0).total_bytes == 2 * 4096  # no caches are known
