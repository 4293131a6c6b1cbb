"""The code of scheduled kernels as text, and the iterations of their parallel loops."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.compilers.loop_reader import parallel_loops_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule, Target

_MOST_CHARACTERS = 40_000  # nobody reads more


@dataclasses.dataclass(frozen=True)
class Code:
    """The `loops` and the readable code of kernels, by kernel name; see `CompiledModel`."""

    loops: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    text: dict[str, str] = dataclasses.field(default_factory=dict)


def code_of(kernels: IRModule, target: Target) -> Code:
    """Return the code of a module's scheduled TIR functions."""
    tvm = load_tvm()
    functions = {name: f for name, f in kernels.functions_items() if isinstance(f, tvm.tirx.PrimFunc)}
    with target:
        plain = tvm.transform.Sequential([plain_loops(), tvm.tirx.transform.StmtSimplify()])(tvm.IRModule(functions))
    found = Code()
    for name, function in plain.functions_items():
        label = str(name.name_hint)
        if loops := parallel_loops_of(function.body, tvm.tirx):
            found.loops[label] = loops
        text = str(function.script(int_dtype="int64"))  # of sizes, which need no type beside them then
        if len(text) <= _MOST_CHARACTERS:
            found.text[label] = text
    return found


def plain_loops() -> Any:
    """Return passes that lower blocks to loops in the order of the schedule; tensors keep all their axes."""
    tvm = load_tvm()
    passes = tvm.s_tir.transform
    return tvm.transform.Sequential(
        [
            passes.LowerInitBlock(),
            passes.PlanAndUpdateBufferAllocationLocation(),
            passes.ConvertBlocksToOpaque(),
            passes.CompactBufferAllocation(),
            passes.LowerOpaqueBlock(),
        ]
    )
