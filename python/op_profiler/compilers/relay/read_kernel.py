"""Reads the loops or launches of a kernel from TIR, and counts the instructions of its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from op_profiler.compilers.executed import executed
from op_profiler.compilers.loop_nest import Kernel
from op_profiler.compilers.loop_reader import Language, Reader
from op_profiler.compilers.relay.launch_reader import LaunchReader
from op_profiler.compilers.relay.lower import FLOAT_DECLARED, NO_ELIMINATION, quiet
from op_profiler.compilers.relay.pass_config import pass_config
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.errors import ModelError

_FLATTENED = 1
"""Phase of TVM's lowering in which tensors are flat and loops still have their annotations."""


def read_kernel(function: Any, target: Any, lanes: int) -> Kernel:
    """Return the loops or launches of a fused Relay function's kernel. The kernel is built for a processor, but only
    lowered for a GPU.

    Args:
        lanes: number of 32-bit values in a vector register of the target; not used for a GPU.

    Raises:
        ModelError: TVM has no schedule for the function on that target or cannot build it, or a library computes it.
    """
    try:
        lowered, code = _lowered(function, target)
    except ModelError as error:
        if FLOAT_DECLARED not in str(error.__cause__):
            raise
        lowered, code = _lowered(function, target, NO_ELIMINATION)
    language = language_in_use()
    if target.kind.name == "cuda":
        kernel = Kernel((), None, LaunchReader(language, lowered).launches())
    else:
        kernel = Kernel(Reader(language, lowered).nests(), executed(code, lanes) if code is not None else None)
    if not kernel.nests and not kernel.launches:
        raise ModelError("it has no loops: a library computes it")
    return kernel


def language_in_use() -> Language:
    """Return the node classes of TIR in this TVM, and functions that read these nodes."""
    tvm = load_tvm()
    return Language(
        tvm.tir,
        tvm.tir.Call,
        tvm.tir.BufferLoad,
        identify=lambda node: int(node.handle.value),
        tensor=lambda buffer: buffer.data,
        arguments=lambda made: [buffer.data for buffer in made.buffer_map.values()],
    )


def _lowered(function: Any, target: Any, options: Mapping[str, bool] | None = None) -> tuple[Any, str | None]:
    """Return the kernel's TIR with its loops, and LLVM's code.

    Args:
        options: options of TVM's passes, in addition to the defaults.
    """
    tvm = load_tvm()
    found: list[Any] = []

    def note(body: Any, _module: Any, _context: Any) -> Any:
        found.append(body)
        return body

    noting = tvm.tir.transform.prim_func_pass(note, opt_level=0, name="note_loops")
    config = {
        **pass_config((_FLATTENED, noting)),
        "tir.disable_assert": True,  # what checks arguments is a fifth of the time, and no part of the kernel
        **(options or {}),
    }
    code = None
    try:
        compiler = tvm.relay.backend.te_compiler.get()
        compiler.clear()
        with quiet(), tvm.transform.PassContext(opt_level=3, config=config), target:
            made = compiler.lower(function, target)
            if target.kind.name == "llvm" and found:
                code = str(tvm.build(made.funcs, target=target).get_source("ll"))
    except (RuntimeError, ValueError, TypeError, AttributeError, AssertionError) as error:
        raise ModelError(f"no schedule: {last_line(error)}") from error
    if not found:
        raise ModelError("no schedule: nothing of it is computed by TVM")
    return found[0], code
