"""Kernels on a board. This machine's runtime stands in for the board's, which has the same time evaluator."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from op_profiler.collection.session import Session
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MeasureError
from op_profiler.targets.remote.board import BoardKernels
from op_profiler.targets.target import resolve_target


def _kernels(library: Any, kernels: list[Any], target: str = "pynq") -> BoardKernels:
    made = BoardKernels.__new__(BoardKernels)
    made._kernels, made._library = kernels, library
    board: Any = SimpleNamespace(
        runtime=load_tvm().cpu(),
        address="board:9090",
        target=resolve_target(target),
        running=lambda _: contextlib.nullcontext(),
    )
    made._board = board
    return made


@pytest.mark.parametrize("kernel_us", [30_000.0, 8_000.0, 100.0])
def test_energy_is_divided_by_all_calls(kernel_us: float) -> None:
    tvm = load_tvm()
    counter = tvm.tir.decl_buffer((1,), "int64", "counter")
    handle = tvm.tir.Var("handle", "handle")
    one_more = counter.vstore([0], counter.vload([0]) + tvm.tir.const(1, "int64"))
    function = tvm.tir.PrimFunc([handle], one_more, buffer_map={handle: counter})
    function = function.with_attr("global_symbol", "count").with_attr("tir.noalias", True)
    library = tvm.build(tvm.IRModule({"count": function}), target="llvm")
    called = tvm.nd.array(np.zeros(1, "int64"))
    session: Any = SimpleNamespace(model=_kernels(library, [("count", "", [called])]))
    samples: Any = SimpleNamespace(matrix=lambda: np.array([[kernel_us]]))
    assert Session._run_for_a_while(session, 0, samples) == called.numpy()[0]


def test_cold_is_refused_where_nothing_is_flushed_and_says_what_is_left() -> None:
    with pytest.raises(MeasureError, match="armv7l.*--cache model or hot"):
        _kernels(None, []).cache_mechanism("cold")
    larger = _kernels(None, [], "arm_cpu -mtriple=aarch64-linux-gnu -mcpu=cortex-a53")
    assert larger.cache_mechanism("cold") == "clflush of all tensors but the first"
