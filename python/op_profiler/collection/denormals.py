"""Denormal numbers in the inputs of operators, which processors compute with in microcode.

An operation on one of them takes a hundred cycles and more (Dooley & Kale, Quantifying the interference caused by
subnormal floating-point values, OSIHPA 2006). A mask of -100 before a softmax makes some, since exp(-100) is 4e-44. The
time of an operator that reads them is one of these values, not of its shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    import numpy as np

_NAMED = 3
_SMALLEST_ITEM_BYTES = 4
"""Halves are converted by an instruction that knows no such case."""


def denormal_shares(operators: Sequence[Operator], outputs: Iterable[np.ndarray]) -> dict[str, float]:
    """Return the share of denormal values in an operator's outputs, 0 to 1, by workload key; the largest over its
    calls. Operators without any are left out.

    Args:
        operators: of each call.
        outputs: what each call wrote.
    """
    import numpy as np

    found: dict[str, float] = {}
    for operator, output in zip(operators, outputs):
        if not output.size or output.dtype.kind != "f" or output.dtype.itemsize < _SMALLEST_ITEM_BYTES:
            continue
        size = np.abs(output)
        share = float(np.mean((size > 0) & (size < np.finfo(output.dtype).tiny)))
        if share:
            found[operator.key] = max(share, found.get(operator.key, 0.0))
    return found


def notes_on(shares: Mapping[str, float], operators: Sequence[Operator]) -> tuple[str, ...]:
    """Return a sentence that names the operators whose outputs contain denormal numbers, or nothing."""
    names = [operator.name for operator in operators if operator.key in shares]
    if not names:
        return ()
    named = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    note = (
        f"{named}: up to {max(shares.values()):.0%} of what is written are denormal numbers; operators that read them "
        "may take many times as long as with other values"
    )
    return (note,)
