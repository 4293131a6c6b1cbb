"""Extracts short messages from errors of TVM, and detects texts that have no meaning for the user."""

from __future__ import annotations

import re

_INTERNAL = re.compile(
    r"Check failed|Var\(|NoneType|No module named|\b\w*Error\b|(?:in|un)expected keyword|"
    r"object (?:has no|cannot|is not|at 0x)|TensorType\(|CallNode\(|PackedFunc|tvm::|"
    r"LLVM module|Assert fail|^[\[{(]|handle type"
)
"""Words that a message for users does not contain: TVM, LLVM and Python about their internals."""


def is_internal(text: str) -> bool:
    """Return whether a text is about the internals of TVM, LLVM or Python, and does not help a user with a model."""
    return bool(_INTERNAL.search(text))


def last_line(error: BaseException) -> str:
    """Return the sentence of a TVM error that describes the problem, without its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    candidates = [line for line in lines if "Check failed" in line or "error:" in line.lower() or "Error:" in line]
    chosen = candidates[-1] if candidates else (lines[-1] if lines else type(error).__name__)
    if chosen.endswith(":") and chosen != lines[-1]:
        chosen += " " + lines[lines.index(chosen) + 1]
    return chosen[:500]


def kind_and_last_line(error: BaseException) -> str:
    """Return `last_line` after the name of the error's class, which helps if the line is short."""
    return f"{type(error).__name__}: {last_line(error)}"
