"""Losses of operators that another layout or fusion with a neighbour would remove."""

from __future__ import annotations

from collections.abc import Sequence

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Loss

_LAYOUTS = frozenset({"layout_transform", "transpose", "reshape", "squeeze", "expand_dims", "nn.batch_flatten"})
"""Operations that only move or rename values."""
_ELEMENTWISE = frozenset(
    {"add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "clip", "cast", "abs", "negative", "erf"}
    | {"sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "where", "nn.relu", "nn.leaky_relu", "nn.prelu", "nn.bias_add"}
    | {"fast_tanh", "fast_erf", "fast_exp", "nn.pad", "concatenate", "strided_slice", "split", "copy"}
)
_SURELY = 0.7


def losses(evidence: Evidence, of_instructions: Sequence[Loss]) -> list[Loss]:
    """Return the time of an operator that only changes layouts, or the part of an element-wise operator's time that
    fusion would remove.

    Args:
        of_instructions: losses of the same operator to the instructions of its hottest loop, which fusion does not
            remove.

    Returns:
        One `Loss` of cause ``layout`` or ``fusion``; empty for all other operators.
    """
    names = set(evidence.operator.op_names)
    if not names or not names <= _LAYOUTS | _ELEMENTWISE:
        return []
    lost = evidence.us("model")
    if names <= _LAYOUTS:
        because = f"it only moves {evidence.moved_bytes / 1e6:.2f} MB from one layout to another"
        return [
            Loss(cause="layout", lost_us=lost, low_us=_SURELY * lost, high_us=lost, basis="measured", because=because)
        ]
    stays = max(evidence.ideal_us / evidence.used_threads, _computing_us(evidence, of_instructions))
    lost = max(lost - stays, 0.0)
    because = f"{', '.join(sorted(names))} run as separate kernels, not fused with what computes their input"
    because += f"; {stays:.1f} us of computing stay" if stays >= 0.05 else ""
    return [Loss(cause="fusion", lost_us=lost, low_us=_SURELY * lost, high_us=lost, basis="computed", because=because)]


def _computing_us(evidence: Evidence, of_instructions: Sequence[Loss]) -> float:
    """Return the microseconds of the operator's instructions that fusion does not remove: its losses to instructions;
    if its hottest loop calls functions, all hot time beyond arithmetic and traffic."""
    if evidence.code is not None and evidence.code.hottest.calls:
        return evidence.hot_room_us / evidence.used_threads
    return sum(loss.lost_us for loss in of_instructions)
