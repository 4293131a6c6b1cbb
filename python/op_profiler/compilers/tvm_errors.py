"""Short messages from errors of TVM, and whether a text means anything to the user."""

from __future__ import annotations

import re

_INTERNAL = re.compile(
    r"Check failed|Var\(|NoneType|No module named|\b\w*Error\b|(?:in|un)expected keyword|"
    r"object (?:has no|cannot|is not|at 0x)|TensorType\(|CallNode\(|PackedFunc|tvm::|"
    r"LLVM module|Assert fail|^[\[{(]|handle type"
)
"""What a sentence to a user does not have: texts of TVM, LLVM and Python about themselves."""


def is_internal(text: str) -> bool:
    """Whether a text speaks of the inside of TVM, LLVM or Python, and says nothing to somebody who has a model."""
    return bool(_INTERNAL.search(text))


def last_line(error: BaseException) -> str:
    """The sentence of a TVM error that says what happened, without its stack."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Check failed" in line or "error:" in line.lower() or "Error:" in line]
    chosen = telling[-1] if telling else (lines[-1] if lines else type(error).__name__)
    if chosen.endswith(":") and chosen != lines[-1]:
        chosen += " " + lines[lines.index(chosen) + 1]
    return chosen[:500]


def kind_and_last_line(error: BaseException) -> str:
    """`last_line` behind the name of the error's class, which tells where there is little else."""
    return f"{type(error).__name__}: {last_line(error)}"
