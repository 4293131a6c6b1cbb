"""The loops of a kernel, read from the TIR that its schedule gives, before any code is generated."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.loop_nest import LoopNest
from op_profiler.compilers.loop_reader import Language, Reader
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError

_FLATTENED = 1
"""Phase of TVM's lowering in which tensors are flat and loops still have their marks."""
_NOT_NEEDED = [
    "tir.LoopPartition",
    "tir.VectorizeLoop",
    "tir.InjectVirtualThread",
    "tir.InjectDoubleBuffer",
    "tir.StorageRewrite",
    "tir.UnrollLoop",
    "tir.RenormalizeSplitPattern",
    "tir.RemoveNoOp",
    "tir.CommonSubexprElimTIR",
    "tir.HoistIfThenElse",
]
"""Passes behind that phase: two thirds of the time."""


def loop_nests(function: Any, target: Any) -> tuple[LoopNest, ...]:
    """The statements of the kernel that a fused Relay function becomes, in their order.

    Raises:
        ModelError: TVM has no schedule for it on that target, or a library computes it.
    """
    tvm = load_tvm()
    language = Language(
        tvm.tir,
        tvm.tir.Call,
        tvm.tir.BufferLoad,
        identify=lambda node: int(node.handle.value),
        tensor=lambda buffer: buffer.data,
        arguments=lambda made: [buffer.data for buffer in made.buffer_map.values()],
    )
    nests = Reader(language, _lowered(function, target)).nests()
    if not nests:
        raise ModelError("it has no loops of its own: a library computes it")
    return nests


def _lowered(function: Any, target: Any) -> Any:
    tvm = load_tvm()
    from op_profiler.compilers.relay.lower import quiet
    from op_profiler.compilers.tvm_errors import last_line

    found: list[Any] = []

    def note(body: Any, _module: Any, _context: Any) -> Any:
        found.append(body)
        return body

    noting = tvm.tir.transform.prim_func_pass(note, opt_level=0, name="note_loops")
    config = {"relay.backend.use_auto_scheduler": False, "tir.add_lower_pass": [(_FLATTENED, noting)]}
    try:
        compiler = tvm.relay.backend.te_compiler.get()
        compiler.clear()
        with quiet(), tvm.transform.PassContext(opt_level=3, config=config, disabled_pass=_NOT_NEEDED), target:
            compiler.lower(function, target)
    except (tvm.TVMError, ValueError, TypeError, AttributeError, NotImplementedError, AssertionError) as error:
        raise ModelError(f"no schedule: {last_line(error)}") from error
    if not found:
        raise ModelError("no schedule: nothing of it is computed by TVM")
    return found[0]
