"""What not every compiler can do."""

from __future__ import annotations

from op_profiler.compilers import COMPILERS
from op_profiler.errors import UsageError

ABILITIES = frozenset(
    {
        "tune",
        "tune_remotely",
        "tune_on_gpu",
        "compare",
        "vendor",
        "layers",
        "corun",
        "corun_on_gpu",
        "merge",
        "predict",
        "sample",
        "schedule",
        "decode",
    }
)
"""Options and commands that not every compiler has what it takes for."""


def require(name: str, ability: str, option: str) -> None:
    """Refuse what a compiler cannot do.

    Args:
        name: of the compiler.
        ability: one of `ABILITIES`.
        option: by which the user asked for it.

    Raises:
        UsageError: it has not got it.
    """
    if ability not in COMPILERS.get(name).beyond_collecting:
        others = [other for other, one in COMPILERS.available() if ability in one.beyond_collecting]
        hint = f"give --compiler {' or '.join(others)}" if others else "leave one of them out"
        raise UsageError(f"{option} is not there for --compiler {name}; {hint}")
