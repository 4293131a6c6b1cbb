"""The configuration of TVM's passes, with a repair of divisions of integers.

TVM lowers a division of integers that rounds down to a named vector (``rmod``) if it cannot prove that the divisor is
positive. From LLVM 20 on, no such kernel compiles: LLVM accepts debug information of scalar integers and pointers only.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from op_profiler.compilers.relay import remainders
from op_profiler.compilers.tvm_build import load_tvm

_SIGNED_VECTOR = re.compile(r"int\d+x\d+")


def pass_config(*passes: tuple[int, Any]) -> dict[str, Any]:
    """Return the configuration of TVM's passes, including the repair and, inside their blocks, the `remainders`.

    Args:
        passes: further TIR passes, each with the number of the phase of lowering at whose end it runs.
    """
    return {
        "relay.backend.use_auto_scheduler": False,
        "tir.add_lower_pass": [*remainders.passes(), *passes, (3, _divisions())],
    }


def _divisions() -> Any:
    """Return the TIR pass that replaces the divisions by others without a name."""
    tir = load_tvm().tir
    divisions = ["tir.FloorDiv", "tir.FloorMod"]

    @tir.transform.prim_func_pass(opt_level=0)
    def rewrite(function: Any, module: Any, context: Any) -> Any:
        return function.with_body(tir.stmt_functor.ir_transform(function.body, None, _division, divisions))

    return rewrite


def _division(division: Any) -> Any:
    """Return a division that rounds down as one that rounds towards zero; None for one that TVM lowers without a name.

    The results differ where there is a remainder whose sign is not that of the divisor.
    """
    tir = load_tvm().tir
    dividend, divisor = division.a, division.b
    is_positive = int(getattr(getattr(divisor, "value", 0), "value", 0)) > 0  # the constant of a broadcast
    if is_positive or not _SIGNED_VECTOR.fullmatch(str(division.dtype)):
        return None
    constant = functools.partial(tir.const, dtype=division.dtype)
    remainder = tir.truncmod(dividend, divisor)
    is_rounded_up = tir.And(remainder != constant(0), tir.bitwise_xor(remainder, divisor) < constant(0))
    if isinstance(division, tir.FloorMod):
        return tir.Select(is_rounded_up, remainder + divisor, remainder)
    quotient = tir.truncdiv(dividend, divisor)
    return tir.Select(is_rounded_up, quotient - constant(1), quotient)
