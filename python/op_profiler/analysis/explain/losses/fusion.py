"""Losses of operators that another layout or fusion with a neighbour would remove."""

from __future__ import annotations

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Cause, Loss

_LAYOUTS = frozenset({"layout_transform", "transpose", "reshape", "squeeze", "expand_dims", "nn.batch_flatten"})
"""Operations that only move values, or name them anew."""
_ELEMENTWISE = frozenset(
    {"add", "subtract", "multiply", "divide", "power", "maximum", "minimum", "clip", "cast", "abs", "negative", "erf"}
    | {"sigmoid", "tanh", "exp", "log", "sqrt", "rsqrt", "where", "nn.relu", "nn.leaky_relu", "nn.prelu", "nn.bias_add"}
    | {"fast_tanh", "fast_erf", "fast_exp", "nn.pad", "concatenate", "strided_slice", "split", "copy"}
)
_SURELY = 0.7


def losses(evidence: Evidence) -> list[Loss]:
    """Return the whole time of an operator that only moves values or is element-wise.

    Returns:
        One `Loss` in microseconds, of cause ``layout`` or ``fusion``; none for operators with any other op.
    """
    names = set(evidence.operator.op_names)
    if not names or not names <= _LAYOUTS | _ELEMENTWISE:
        return []
    if evidence.code is not None and evidence.code.hottest.calls:
        return []  # a function that is called for each value takes as long in a fused kernel
    cause: Cause = "layout" if names <= _LAYOUTS else "fusion"
    time = evidence.us("model")
    because = (
        f"it only moves {evidence.moved_bytes / 1e6:.2f} MB from one layout to another"
        if cause == "layout"
        else f"{', '.join(sorted(names))} stand alone: they are not fused to what computes their input"
    )
    return [Loss(cause=cause, lost_us=time, low_us=_SURELY * time, high_us=time, basis="measured", because=because)]
