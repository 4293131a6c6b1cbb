"""The code of every kernel as its schedule left it, noted while the compiler lowers it."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import IRModule

_MOST_CHARACTERS = 40_000  # a Winograd's unrolled transforms have more, and nobody reads them


def code_capture(found: dict[str, str]) -> Any:
    """A pass of TIR that changes nothing and notes the TVMScript of each function.

    It is meant for phase 0 of lowering: loops are as the schedule arranged them, none is unrolled yet, and tensors have
    all their axes.

    Args:
        found: by the function's name; filled in while the compiler runs.
    """
    tvm = load_tvm()

    @tvm.tir.transform.prim_func_pass(opt_level=0)
    def note(function: Any, module: IRModule, context: Any) -> Any:
        symbol = function.attrs["global_symbol"] if function.attrs and "global_symbol" in function.attrs else None
        if symbol is not None:
            text = str(function.script(show_meta=False))
            if len(text) <= _MOST_CHARACTERS:
                found[str(symbol)] = text
        return function

    return note
