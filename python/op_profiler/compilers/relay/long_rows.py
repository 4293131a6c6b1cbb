"""A schedule for one-dimensional convolutions over long rows.

TVM makes one vector of a whole row. LLVM splits the vector if its values are contiguous; with a stride, the compile
time grows with the row: seconds for 256 values with stride 2, and hours for the 3,199 of wav2vec's first layer. A
vector type of TVM has at most 32,767 lanes: longer rows end in errors of LLVM, or in no error at all. Both kinds of
rows are computed here in vectors of up to 32 values. All other rows have TVM's schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.operators.operator import Operator

_LONGEST_WITH_GAPS = 256
_LONGEST = 16_384
_LANES = 32
_NOTE = f"rows of a conv1d of over {_LONGEST_WITH_GAPS} values that are read with gaps, or of over {_LONGEST:,}, are "
_NOTE += (
    f"computed in vectors of up to {_LANES}: TVM makes one vector of each, which LLVM cannot compile, or takes hours"
)


def in_short_vectors(scheduled: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a replacement of ``topi.x86.schedule_conv1d_ncw`` that computes long rows in short vectors.

    Args:
        scheduled: the original function, which is still used for short rows.
    """

    def schedule(outs: Any) -> Any:
        output = outs[0].op
        convolution = next(op for op in _behind(output) if "conv1d_ncw" in op.tag)
        sizes = [op.output(0).shape[2] for op in (convolution, _padded(convolution))]
        known = all(hasattr(size, "value") for size in sizes)  # else known only at run time
        if known and _is_long(*(int(size) for size in sizes)):
            return _schedule(output, convolution)
        return scheduled(outs)

    return schedule


def notes(operators: Iterable[Operator], target: Target) -> tuple[str, ...]:
    """Return a note for the user if an operator is a 1-D convolution with long rows and the target uses schedules for
    x86; otherwise nothing."""
    concerns = target.keys[0] == "cpu"
    return (_NOTE,) if concerns and any(_has_long_row(operator) for operator in operators) else ()


def _has_long_row(operator: Operator) -> bool:
    if operator.anchor != "nn.conv1d" or operator.layouts.get("data_layout") != "NCW":
        return False
    attributes = operator.attrs[operator.op_names.index(operator.anchor)]
    read = operator.inputs[0].shape[2] + sum(attributes["padding"])
    return _is_long(operator.outputs[0].shape[2], read)


def _is_long(row: int, read: int) -> bool:
    """Return whether a row is too long for one vector: by its own length, or because it is computed with a stride of at
    least 2."""
    return row > _LONGEST or (row > _LONGEST_WITH_GAPS and read >= 2 * row - 1)


def _behind(op: Any) -> Iterator[Any]:
    """Yield an operation and all operations that compute its inputs."""
    yield op
    for tensor in op.input_tensors:
        if hasattr(tensor.op, "axis"):
            yield from _behind(tensor.op)


def _padded(convolution: Any) -> Any:
    return convolution.input_tensors[0].op


def _schedule(output: Any, convolution: Any) -> Any:
    te = load_tvm().te
    s = te.create_schedule(output)
    padded = _padded(convolution)
    batch, channels, row = output.axis
    piece, lane = s[output].split(row, factor=largest_divisor(int(row.dom.extent), _LANES))
    for op in _behind(output):
        if op not in (output, convolution, padded):
            s[op].compute_inline()
    if convolution == output:
        s[output].reorder(piece, *output.reduce_axis, lane)
    else:
        *outer, inner = convolution.axis
        s[convolution].compute_at(s[output], piece)
        s[convolution].reorder(*outer, *convolution.reduce_axis, inner)
        s[convolution].vectorize(inner)
    s[output].vectorize(lane)
    s[output].parallel(s[output].fuse(batch, channels))
    s[padded].parallel(s[padded].fuse(*padded.axis[:2]))
    return s
