"""A run measures copies of a model in other memory, in turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import psutil
import pytest

from op_profiler.compilers.relay.graph_executor import load_in_turns


def addresses(graph: Any) -> set[int]:
    return {int(array.handle.contents.data) for kernel in graph.kernels for array in kernel.arrays}


def outputs(graph: Any) -> np.ndarray:
    graph.run_model()
    (array,) = graph.output_arrays()
    return np.asarray(array)


def test_copies_share_no_memory_and_compute_the_same(tvm: Any, compiled_small: Any) -> None:
    inputs = {"data": np.random.default_rng(0).random((1, 16, 32, 32), dtype="float32")}
    first = load_in_turns(compiled_small, tvm.cpu(), inputs)
    copies = [first.moved() for _ in range(8)]
    assert copies[-1].whole is first.whole and first.moved() is copies[0]  # round they go
    kept = [addresses(copy) for copy in copies]
    assert sum(map(len, kept)) == len(set.union(*kept))
    assert all(np.array_equal(outputs(copy), outputs(first)) for copy in copies)


def test_a_model_that_fills_the_memory_has_no_copies(
    tvm: Any, compiled_small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {"data": np.zeros((1, 16, 32, 32), dtype="float32")}
    needed = load_in_turns(compiled_small, tvm.cpu(), inputs).memory_bytes()
    free = psutil.virtual_memory()._replace(available=8 * 2 * needed)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    first = load_in_turns(compiled_small, tvm.cpu(), inputs)
    assert len({id(first.moved().whole) for _ in range(6)}) == 3
