"""Pooling windows beyond the end of the data, where the output size is rounded up (``ceil_mode``).

torch and ONNX drop windows that would begin in the padding behind the data. TVM keeps them.
"""

from __future__ import annotations


def begins_outside(data: int | None, size: int, step: int, pads: tuple[int, int], dilation: int) -> bool | None:
    """Whether rounding up the count of windows gives one that begins in the padding behind the data.

    Args:
        data: elements along the dimension; None where only run time tells.
        size: elements of a window.
        step: elements from one window to the next.
        pads: elements in front of the data and behind it.
        dilation: elements from one of a window to the next.

    Returns:
        None where there is nothing to round, or where that is not known.
    """
    if data is None:
        return None
    before, behind = pads
    room = data + before + behind - dilation * (size - 1) - 1
    return None if room % step == 0 else (room // step + 1) * step >= data + before


def reach_behind(data: int, size: int, step: int, pads: tuple[int, int], dilation: int) -> int:
    """Elements behind the data that the last window covers where the count is rounded up; less than 0 where it ends
    before the data does. Arguments as of `begins_outside`."""
    before, behind = pads
    span = dilation * (size - 1) + 1
    steps = (data + before + behind - span) // step + (begins_outside(data, size, step, pads, dilation) is False)
    return steps * step + span - data - before
