"""What the launches of a kernel do, of schedules whose work can be counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from op_profiler.compilers.loop_nest import LaunchedWork
from op_profiler.compilers.relay.launch_reader import LaunchReader
from op_profiler.compilers.relay.read_kernel import language_in_use
from op_profiler.compilers.tvm_build import load_tvm

load_tvm()
from tvm import lower, te, tir, transform  # noqa: E402


def launches_of(schedule: Any, arguments: Sequence[Any]) -> tuple[LaunchedWork, ...]:
    """Lowered as far as `read_kernel` has it; needs no GPU."""
    found: list[Any] = []

    def note(body: Any, _module: Any, _context: Any) -> Any:
        found.append(body)
        return body

    noting = tir.transform.prim_func_pass(note, opt_level=0, name="note_loops")
    with transform.PassContext(config={"tir.add_lower_pass": [(1, noting)]}):
        lower(schedule, arguments)
    return LaunchReader(language_in_use(), found[0]).launches()


def per_element(compute: Callable[..., Any], shape: tuple[int, ...], source: Any, threads: int) -> LaunchedWork:
    """Of a kernel in which each thread computes one element."""
    out = te.compute(shape, compute)
    schedule = te.create_schedule(out.op)
    block, thread = schedule[out].split(schedule[out].fuse(*schedule[out].op.axis), threads)
    schedule[out].bind(block, te.thread_axis("blockIdx.x"))
    schedule[out].bind(thread, te.thread_axis("threadIdx.x"))
    (found,) = launches_of(schedule, [source, out])
    assert found.blocks == math.prod(shape) // threads and found.threads == threads
    return found


@pytest.fixture
def data() -> Any:
    return te.placeholder((64, 64), name="data")


class TestOneElementAThread:
    def test_neighbours_read_the_same_sectors(self, data: Any) -> None:
        found = per_element(lambda y, x: data[y, x] * 2.0 + 1.0, (64, 64), data, threads=256)
        assert found.work == {
            **dict.fromkeys(found.work, 0.0),
            "arithmetic": 1.0,  # a multiply-add
            "accesses": 2.0,
            "sectors": 4.0 + 4.0,  # 32 values of 4 bytes
        }

    def test_a_transposed_read_takes_a_sector_a_thread(self, data: Any) -> None:
        found = per_element(lambda y, x: data[x, y], (64, 64), data, threads=64)
        assert found.work["sectors"] == 32.0 + 4.0 and found.work["arithmetic"] == 0.0

    def test_one_value_for_all_is_one_sector(self, data: Any) -> None:
        found = per_element(lambda y, x: te.exp(data[y, 0]) / (data[y, 1] + 3.0), (64, 64), data, threads=64)
        assert found.work["sectors"] == 1.0 + 1.0 + 4.0
        assert found.work["functions"] == found.work["divisions"] == found.work["arithmetic"] == 1.0

    def test_what_conditions_take_is_apart(self, data: Any) -> None:
        padded = per_element(
            lambda y, x: tir.if_then_else(tir.all(x >= 1, x < 63), data[y, x - 1], 0.0), (64, 64), data, threads=64
        )
        assert padded.work["integers"] >= 3 and padded.work["arithmetic"] == 1.0


def reduced(data: Any, columns: int) -> LaunchedWork:
    """Sums of rows: 64 threads fetch so many columns at a time into the memory that they share."""
    k = te.reduce_axis((0, 64), name="k")
    out = te.compute((64,), lambda x: te.sum(data[x, k], axis=k), name="out")
    schedule = te.create_schedule(out.op)
    shared = schedule.cache_read(data, "shared", [out])
    local = schedule.cache_write(out, "local")
    schedule[out].bind(schedule[out].op.axis[0], te.thread_axis("threadIdx.x"))
    schedule[local].compute_at(schedule[out], schedule[out].op.axis[0])
    outer, _ = schedule[local].split(schedule[local].op.reduce_axis[0], columns)
    schedule[shared].compute_at(schedule[local], outer)
    schedule[shared].bind(schedule[shared].op.axis[0], te.thread_axis("threadIdx.x"))
    (found,) = launches_of(schedule, [data, out])
    return found


class TestSharedMemory:
    def test_threads_that_need_one_bank_take_turns(self, data: Any) -> None:
        """A thread reads row x of 32 columns: all 32 of a warp the same bank."""
        found = reduced(data, 32)
        assert found.threads == 64 and found.shared_bytes == 64 * 32 * 4
        assert found.work["shared"] == 64 * 32 + 64 * 32  # written and read once, 32 passes each
        assert found.work["arithmetic"] == 64

    def test_what_is_fetched_is_waited_for_once(self, data: Any) -> None:
        """Two halves of the rows; not once for each of the 32 values of a half."""
        assert reduced(data, 32).work["fetches"] == 2
        assert reduced(data, 8).work["fetches"] == 8


class TestSeveralLaunches:
    def test_each_is_counted_apart_and_a_sum_waits_for_each_term(self, data: Any) -> None:
        k = te.reduce_axis((0, 64), name="k")
        sums = te.compute((64,), lambda x: te.sum(data[k, x], axis=k), name="sums")
        out = te.compute((64, 64), lambda y, x: data[y, x] / sums[x], name="out")
        schedule = te.create_schedule(out.op)
        schedule[sums].bind(schedule[sums].op.axis[0], te.thread_axis("threadIdx.x"))
        schedule[out].bind(schedule[out].op.axis[0], te.thread_axis("blockIdx.x"))
        schedule[out].bind(schedule[out].op.axis[1], te.thread_axis("threadIdx.x"))
        first, second = launches_of(schedule, [data, out])
        assert (first.blocks, second.blocks) == (1, 64) and first.threads == second.threads == 64
        assert first.work["accesses"] >= 64 and second.work["accesses"] == 3
        assert second.work["divisions"] == 1 and first.work["divisions"] == 0

    def test_virtual_threads_are_work_of_a_thread(self, data: Any) -> None:
        out = te.compute((64, 64), lambda y, x: data[y, x] + 1.0)
        schedule = te.create_schedule(out.op)
        rows, columns = schedule[out].op.axis
        schedule[out].bind(rows, te.thread_axis("vthread"))
        schedule[out].bind(columns, te.thread_axis("threadIdx.x"))
        (found,) = launches_of(schedule, [data, out])
        assert found.work["arithmetic"] == 64 and found.blocks == 1


def test_a_loop_that_is_bound_to_nothing_launches_nothing(data: Any) -> None:
    out = te.compute((64, 64), lambda y, x: data[y, x] + 1.0)
    assert launches_of(te.create_schedule(out.op), [data, out]) == ()
