"""Finds operators that write denormal numbers; operators that read these numbers may be slow.

An operation on a denormal number takes a hundred cycles or more (Dooley & Kale, Quantifying the interference caused by
subnormal floating-point values, OSIHPA 2006). A mask of -100 before a softmax creates some, since exp(-100) is 4e-44.
The time of an operator that reads denormal numbers depends on its values, not only on its shapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from op_profiler.operators.layers import CallLayers
from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    import numpy as np

_NAMED = 3
_SMALLEST_ITEM_BYTES = 4
"""Smallest size of a value that is examined. float16 is excluded: the instruction that converts it is never slow."""


def denormal_shares(operators: Sequence[Operator], outputs: Iterable[np.ndarray]) -> dict[str, float]:
    """Return the share of denormal values in the output of each operator that writes any, by workload key.

    The share is between 0 and 1; of several calls of an operator, the largest share counts.

    Args:
        operators: operator of each call.
        outputs: output of each call.
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


def notes_on(
    shares: Mapping[str, float], operators: Sequence[Operator], layers: Mapping[str, CallLayers]
) -> tuple[str, ...]:
    """Return one note that names the operators whose outputs contain denormal numbers; an empty tuple without any.

    Args:
        shares: result of `denormal_shares`.
        layers: layers of the operators' calls, by workload key.
    """
    names = [operator.label(layers.get(operator.key, ())) for operator in operators if operator.key in shares]
    if not names:
        return ()
    named = "; ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    note = (
        f"{named}: up to {max(shares.values()):.0%} of what is written are denormal numbers; operators that read them "
        "may take many times as long as with other values"
    )
    return (note,)
