"""What kernels execute, counted in the code of real builds and compared with counts by hand."""

from __future__ import annotations

import math

import pytest

from op_profiler.collection.sampling.batches import operators_of_points
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.executed import FUNCTION_COSTS, Executed, executed
from op_profiler.compilers.llvm_ir import functions_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.convolutions import Conv2d
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.elementwise import Broadcast, Elementwise
from op_profiler.operators.kinds.functions import AppliedFunction
from op_profiler.operators.kinds.point import Point
from op_profiler.operators.kinds.pooling import Pool2d
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.operators.kinds.rearrangements import Concatenate, Transpose
from op_profiler.operators.operator import Operator
from op_profiler.targets.target import resolve_target

TARGET, LANES = "llvm -mcpu=skylake-avx512", 16


def of(operator: Operator) -> Executed:
    load_tvm()
    found = compiler_in_use().read_kernel(operator, resolve_target(TARGET)).executed
    assert found is not None and not found.guessed
    return found


def of_point(point: Point) -> Executed:
    load_tvm()
    (first, *_) = operators_of_points([point], resolve_target(TARGET), 0)
    return of(first.operator)


@pytest.mark.parametrize(
    "point",
    [
        Conv2d(1, 32, 14, 14, 48, 3, 1, epilogue="bias_relu"),
        Conv2d(1, 32, 14, 14, 32, 3, 1, 32, "bias"),
        Conv2d(1, 16, 9, 9, 32, 1, 2, epilogue="bias"),
        Dense(8, 64, 128, "bias"),
        Dense(1, 100, 256, "bias"),
    ],
    ids=str,
)
def test_each_multiply_add_is_counted_once(point: Point) -> None:
    operator = described(point)
    found = of(operator)
    # Biases, and the sums of lanes, come on top.
    assert found.parallel["arithmetic"] == pytest.approx(operator.flops / 2 / LANES, rel=0.06)
    assert found.serial["arithmetic"] == 0


@pytest.mark.parametrize(("name", "exponentials"), [("exp", 256), ("tanh", 512), ("add", 0)])
def test_functions_are_counted_by_element(name: str, exponentials: int) -> None:
    found = of(described(Elementwise(name, (4, 64)))).parallel
    assert found["exponentials"] == exponentials
    assert found["stores"] == 256 / LANES and found["scalar_stores"] == 0
    assert found["loads"] == (2 if name == "add" else 1) * 256 / LANES


@pytest.mark.parametrize(
    ("point", "evaluations"),
    [
        (AppliedFunction("sin", (32, 16, 16)), FUNCTION_COSTS["sin"]),
        (AppliedFunction("tan", (32, 16, 16)), FUNCTION_COSTS["sin"]),
        (AppliedFunction("power", (32, 16, 16), second="constant", exponent=3.0), FUNCTION_COSTS["pow"]),
        (AppliedFunction("power", (32, 16, 16), second="constant", exponent=2.0), 0),
        (AppliedFunction("mod", (32, 16, 16), second="tensor"), FUNCTION_COSTS["fmod"]),
        (AppliedFunction("asinh", (32, 16, 16)), FUNCTION_COSTS["asinh"]),
        (AppliedFunction("round", (32, 16, 16)), 0),
        (AppliedFunction("floor", (32, 16, 16)), 0),
    ],
    ids=str,
)
def test_functions_count_by_what_they_take(point: Point, evaluations: float) -> None:
    found = of_point(point).parallel
    assert found["functions"] == pytest.approx(32 * 16 * 16 * evaluations, rel=0.05)
    assert found["runtime_calls"] == 0 and (evaluations > 0 or found["arithmetic"] >= 32 * 16 * 16 / LANES)


def test_what_is_no_vector_is_counted_by_element() -> None:
    gelu = of(described(Elementwise("gelu", (4, 64)))).parallel
    assert gelu["functions"] == gelu["scalar_stores"] == 256  # calls of the C library
    guarded = of(described(BatchMatmul(2, 64, 64, 197))).parallel
    whole = of(described(BatchMatmul(2, 64, 64, 192))).parallel
    sums = 2 * 64 * 64 * LANES  # the lanes of each are added up one by one at the end
    assert whole["extracted"] == sums and whole["scalar_loads"] < sums / 100
    assert guarded["scalar_loads"] > 5 * 2 * 64 * 64  # the last five of 197 values


def test_a_transposed_matrix_is_read_value_by_value() -> None:
    found = of_point(Transpose((64, 64), (1, 0))).parallel
    assert found["scalar_loads"] + found["gathered"] == pytest.approx(64 * 64, rel=0.01)
    assert found["stores"] == 64 * 64 / LANES
    kept = of_point(Transpose((4, 8, 64), (1, 0, 2))).parallel
    assert kept["loads"] == kept["stores"] == pytest.approx(4 * 8 * 64 / LANES, rel=0.02) and kept["inserted"] == 0


def test_vectors_of_an_odd_number_of_values_are_told_apart() -> None:
    odd = {
        width: sum(of(described(Conv2d(1, 32, 8, 8, width, 1, 1, epilogue="bias"))).parallel[name] for name in names)
        for names in [("odd_registers", "odd_lanes")]
        for width in (8, 12, 16, 24, 32)
    }
    assert [width for width, count in odd.items() if count] == [12, 24]
    assert odd[12] >= 2 * 8 * 8 * 32  # a load or a product, and a sum


@pytest.mark.parametrize("rows", [1, 8])
def test_sums_in_odd_vectors_are_passed_on_lane_by_lane(rows: int) -> None:
    """Each sum of 24 values is passed to the next iteration: a row at a time four times unrolled, or eight rows."""
    depth, columns = 64, 48
    found = of(described(Dense(rows, depth, columns))).parallel
    iterations = depth / 4 if rows == 1 else depth
    assert found["odd_lanes"] == pytest.approx(rows * iterations * columns, rel=0.1)
    assert of(described(Dense(rows, depth, 64))).parallel["odd_lanes"] == 0


def test_what_vectors_leave_over_of_a_thread_s_part_is_little() -> None:
    """Each input is copied by a loop over threads, whose bounds are no numbers; LLVM makes vectors of eight of it."""
    found = of_point(Concatenate((1, 2, 5, 5, 16), 3)).parallel
    assert 8 * found["stores"] + found["scalar_stores"] == pytest.approx(3 * 2 * 5 * 5 * 16, rel=0.02)
    assert found["scalar_stores"] < 10


@pytest.mark.parametrize(
    "point",
    [
        Broadcast("sum_relu", (1, 128, 8, 28, 28), (1, 128, 1, 1, 1)),  # vectors inside of the loop over threads
        Pool2d(1, 64, 28, 28, 3, 1, "max"),  # the last iteration is peeled off
    ],
    ids=str,
)
def test_every_element_is_stored(point: Point) -> None:
    load_tvm()
    operator = operators_of_points([point], resolve_target(TARGET), 0)[0].operator
    found = compiler_in_use().read_kernel(operator, resolve_target(TARGET)).executed
    assert found is not None
    stored = {name: found.parallel[name] + found.serial[name] for name in found.parallel}
    elements = LANES * stored["stores"] + stored["scalar_stores"] + stored["gathered"]
    assert elements >= 0.95 * math.prod(operator.outputs[0].shape)


_CODE = """
define internal fastcc void @kernel_compute_(ptr %out, ptr %in) {{
entry:
  br label %outer

outer:                                            ; preds = %inner_done, %entry
  %i = phi i64 [ 0, %entry ], [ %i_next, %inner_done ]
  br label %inner

inner:                                            ; preds = %inner, %outer
  %j = phi i64 [ {start}, %outer ], [ %j_next, %inner ]
  %a = getelementptr inbounds float, ptr %in, i64 %j
  %x = load <16 x float>, ptr %a, align 4
  %y = fmul <16 x float> %x, %x
  store <16 x float> %y, ptr %a, align 4
  %j_next = add nuw nsw i64 %j, {step}
  %inner_left = icmp {relation} i64 {compared}, {bound}
  br i1 %inner_left, label %inner_done, label %inner

inner_done:                                       ; preds = %inner
  %i_next = add nuw nsw i64 %i, 1
  %left = icmp eq i64 %i_next, 5
  br i1 %left, label %done, label %outer

done:                                             ; preds = %inner_done
  ret void
}}
"""


@pytest.mark.parametrize(
    ("start", "step", "relation", "compared", "bound", "trips"),
    [
        (0, 1, "eq", "%j_next", 7, 7),
        (0, 16, "eq", "%j_next", 128, 8),
        (0, 1, "eq", "%j", 7, 8),
        (3, 2, "ugt", "%j", 8, 4),  # 3, 5, 7, 9
        (3, 2, "ugt", "%j", 9, 5),
        (3, 2, "uge", "%j", 9, 4),
        (10, -1, "eq", "%j_next", 0, 10),
    ],
)
def test_trips_of_loops_are_those_of_their_comparisons(
    start: int, step: int, relation: str, compared: str, bound: int, trips: int
) -> None:
    code = _CODE.format(start=start, step=step, relation=relation, compared=compared, bound=bound)
    found = executed(code, LANES)
    assert not found.guessed
    assert found.serial["arithmetic"] == found.serial["loads"] == found.serial["stores"] == 5 * trips


def test_a_loop_without_a_number_is_told_as_guessed() -> None:
    code = _CODE.format(start=0, step=1, relation="eq", compared="%j_next", bound="%unknown")
    assert executed(code, LANES).guessed
    (function,) = functions_of(code)
    assert function.guessed and not function.parallel


_SWITCH = """
  switch i64 %which, label %done [
    i64 0, label %outer
    i64 1, label %done
  ]
"""


def test_what_is_behind_a_switch_of_several_lines_is_counted() -> None:
    code = _CODE.format(start=0, step=1, relation="eq", compared="%j_next", bound=7)
    found = executed(code.replace("\n  br label %outer\n", _SWITCH, 1), LANES)
    assert found.serial["stores"] == 5 * 7
