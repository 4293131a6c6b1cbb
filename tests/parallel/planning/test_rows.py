"""Operators that are cut by rows: which, how, and that every part is run once, by the lane that has its row."""

from __future__ import annotations

import ctypes
import dataclasses
import itertools
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.loop_reader import parallel_loops_of
from op_profiler.compilers.relay.calls import PackedCall
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.cores import available_cores
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.parallel.corun.comparison import compare
from op_profiler.parallel.corun.models import Models, in_order
from op_profiler.parallel.planning.plan import ROWS
from op_profiler.parallel.planning.rows import cut_by_rows, for_team
from op_profiler.parallel.runtime.lanes import Lanes, LaneStep, native_library


def _operator(*, weights: int = 1) -> Operator:
    """A convolution from 8 x 14 x 14 to 4 x 14 x 14 packed channels."""
    data, out = TensorSpec((1, 8, 14, 14, 16), "float32"), TensorSpec((1, 4, 14, 14, 16), "float32")
    params = (TensorSpec((4, 8, 1, 1, 16, 16 * weights), "float32"),)
    return Operator("conv", "nn.conv2d", ("nn.conv2d",), (data,), params, (out,), ({},), {}, "", 1, 1, 1)


@pytest.mark.parametrize(
    ("loops", "cut"),
    [
        ([56], ((56, 14),)),  # channels and rows
        ([128, 56], ((128, 16), (56, 14))),  # with a padding, which lies on the input
        ([28], ((28, 7),)),  # two rows at once
        ([56 * 14], ((56, 14),)),  # channels, rows, and columns
        ([7], ()),  # rows alone: in order they are neighbours anyway
        ([4], ()),  # channels alone
        ([128, 4], ((128, 16), (0, 0))),
        ([0], ()),  # not static
        ([], ()),
    ],
)
def test_loops_over_channels_and_rows_are_cut_by_rows(loops: list[int], cut: tuple[tuple[int, int], ...]) -> None:
    assert cut_by_rows(_operator(), loops) == cut


def test_a_team_gets_few_parts_of_whole_rows_where_they_can_be_shared_evenly() -> None:
    assert for_team([(56, 14), (0, 0)], 2) == ((8, 2), (0, 0))
    assert for_team([(4 * 13, 13), (4 * 9, 9)], 2) == ((4 * 13, 13), (4 * 9, 9))
    assert for_team([(4 * 9, 9), (4 * 12, 12)], 3) == ((4 * 3, 3), (4 * 3, 3))
    assert for_team([(8, 2)], 4) == ((8, 2),)


def test_blocks_of_one_channel_are_rows_anyway() -> None:
    operator = dataclasses.replace(_operator(), outputs=(TensorSpec((1, 1, 299, 299, 3), "float32"),))
    assert cut_by_rows(operator, [299]) == ()


def test_an_operator_of_many_weights_is_not_cut_by_rows() -> None:
    """Each lane would read all of them."""
    assert cut_by_rows(_operator(weights=100), [56]) == ()


def test_the_loops_of_a_model_are_those_of_its_kernels(branching: Models) -> None:
    loops = branching.compiled[0].loops
    assert loops and set(loops) <= set(branching.labels)
    assert all(all(count > 0 for count in counts) for counts in loops.values())
    assert any(node.rows for node in branching.graph.nodes)
    for node in branching.graph.nodes:
        for parts, rows in node.rows:
            assert rows == 0 or parts % rows == 0


def test_loops_whose_parts_wait_for_each_other_are_left_as_they_are(tvm: Any) -> None:
    tir = tvm.tir
    body = tir.Evaluate(0)
    variables = [tir.Var(name, "int32") for name in ("i", "j", "k")]
    inner = tir.For(variables[1], 0, 4, tir.ForKind.PARALLEL, body)
    outer = tir.For(variables[0], 0, 8, tir.ForKind.PARALLEL, inner)
    behind = tir.For(variables[2], 0, tir.Var("n", "int32"), tir.ForKind.PARALLEL, body)
    both = tir.SeqStmt([outer, tir.For(variables[1], 0, 3, tir.ForKind.SERIAL, behind)])
    assert parallel_loops_of(both, tir) == [8, 0]
    waiting = tir.AttrStmt(variables[0], "pragma_parallel_barrier_when_finish", tir.IntImm("int32", 1), outer)
    assert parallel_loops_of(waiting, tir) == []


def test_a_kernel_with_a_barrier_is_never_cut_by_rows(
    tvm: Any, target: Any, load: Callable[[Any, Any], Models]
) -> None:
    """TVM's bit-serial convolution, whose threads wait for each other between packing and multiplying."""
    relay = tvm.relay
    data, weight = relay.var("data", shape=(1, 32, 14, 14)), relay.var("w", shape=(32, 32, 3, 3))
    bits = {"activation_bits": 1, "weight_bits": 1, "out_dtype": "int16", "pack_dtype": "uint32"}
    whole = [relay.cast(relay.abs(one), "int16") for one in (data, weight)]
    out = relay.nn.bitserial_conv2d(*whole, channels=32, kernel_size=(3, 3), padding=(1, 1), **bits)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, weight], out)))
    weights = np.random.default_rng(0).integers(0, 2, (32, 32, 3, 3)).astype("float32")
    network = ImportedModel("bits", "test", module, {"w": tvm.nd.array(weights)}, (InputSpec("data", (1, 32, 14, 14)),))
    compiled = compile_model(network, target)
    (label,) = (label for label, one in compiled.by_label.items() if one.operator.anchor == "nn.bitserial_conv2d")
    assert "TVMBackendParallelBarrier" in compiled.library.get_lib().get_source("ll")
    assert label not in compiled.loops, "so there is nothing that could be cut by rows"
    models = dataclasses.replace(load(network, compiled), split=ROWS)
    timed, run = compare(models, in_order(models, len(models.cores)), models, 3)
    assert run.outputs_equal and (timed.samples_us > 0).all()
    assert run.threads_used[models.labels.index(label)] == len(models.cores)


@pytest.mark.parametrize("team", [2, 3])
@pytest.mark.parametrize(
    ("parts", "rows"), [(56, 14), (15, 5), (9, 3), (6, 1), (7, 7), (1200, 300), (300, 300), (0, 0)]
)
def test_every_part_is_run_once_and_rows_stay_together(tvm: Any, parts: int, rows: int, team: int) -> None:
    """The second loop of a step; the first is cut into blocks. A third lane has the first one's core."""
    cores = available_cores()
    if len(cores) < 2:
        pytest.skip("one core only")
    seen: list[list[tuple[int, int, int]]] = [[], []]  # of each loop: thread, part, how many parts

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(_Group), ctypes.c_void_p)
    def part(number: int, group: Any, data: int | None) -> int:
        seen[0 if data is None else 1].append((threading.get_native_id(), number, group.contents.num_task))
        return 0

    def kernel() -> None:
        launch = native_library().lanes_launch
        assert launch(part, ctypes.c_void_p(None), 0) == 0
        assert launch(part, ctypes.c_void_p(1), 0) == 0

    call = PackedCall("kernel", "", tvm.runtime.convert(kernel), [])
    step = LaneStep(call, mates=tuple(range(1, team)), loops=((0, 0), (parts, rows)))
    with Lanes([*cores[:2], cores[0]][:team], [[step], *([] for _ in range(1, team))], 0) as lanes:
        lanes.run()
        assert lanes.threads()[0].tolist() == [team]
    blocks, by_rows = seen
    assert sorted((number, count) for _, number, count in blocks) == [(number, team) for number in range(team)]
    assert len({thread for thread, *_ in blocks}) == team
    if not parts:
        assert sorted(number for _, number, _ in by_rows) == list(range(team))
        return
    assert sorted(number for _, number, _ in by_rows) == list(range(parts))
    mine = [{number for thread, number, _ in by_rows if thread == one} for one in {thread for thread, *_ in by_rows}]
    assert max(map(len, mine)) - min(map(len, mine)) <= 1
    for upper, lower in itertools.pairwise(sorted(mine, key=lambda numbers: sorted(n % rows for n in numbers))):
        assert max(number % rows for number in upper) <= min(number % rows for number in lower)


class _Group(ctypes.Structure):
    _fields_ = (("sync_handle", ctypes.c_void_p), ("num_task", ctypes.c_int32))
