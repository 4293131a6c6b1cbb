"""Kernels that are slow for one known reason: those of the benchmark, built once."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from op_profiler.analysis.explain.machine_code import KernelCode, kernels_of

READ = (
    *("tile of 1", "no vectorize", "no parallel axis", "power-of-two stride", "weights larger than the cache"),
    "spilling tile",
)
BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="session")
def planted() -> ModuleType:
    """``benchmarks/explain.py``."""
    spec = importlib.util.spec_from_file_location("benchmarks_explain", BENCHMARKS / "explain.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


@pytest.fixture(scope="session")
def codes(planted: ModuleType, tvm: Any, target: Any) -> dict[str, KernelCode]:
    """Machine code of the planted kernels, by what is wrong with them."""
    from op_profiler.compilers.compiler import compiler_in_use

    found = {}
    for one in (one for one in planted.CAUSES if one.name in READ):
        kernel = one.kernels(tvm.te, compiler_in_use().vector_lanes(target), 2)[0]
        assembly = planted.built_of([kernel], target)[0].compiled.library.get_lib().get_source("asm")
        found[one.name] = kernels_of(assembly, ["kernel0"])["kernel0"]
    return found
