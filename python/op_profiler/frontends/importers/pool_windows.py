"""Pooling windows beyond the end of the data, if the output size is rounded up (``ceil_mode``).

torch and ONNX drop windows that would begin in the padding after the data. TVM keeps them.
"""

from __future__ import annotations


def begins_outside(data: int | None, size: int, step: int, pads: tuple[int, int], dilation: int) -> bool | None:
    """Return whether rounding up the number of windows adds a window that begins in the padding after the data.

    Args:
        data: number of elements along the dimension; None if known only at run time.
        size: number of elements of a window.
        step: distance between windows.
        pads: number of padded elements before and after the data.
        dilation: distance between the elements of a window.

    Returns:
        None if there is nothing to round, or if the size is unknown.
    """
    if data is None:
        return None
    before, behind = pads
    room = data + before + behind - dilation * (size - 1) - 1
    return None if room % step == 0 else (room // step + 1) * step >= data + before


def reach_behind(data: int, size: int, step: int, pads: tuple[int, int], dilation: int) -> int:
    """Return the number of elements after the data that the last window covers if the number of windows is rounded up;
    negative if it ends before the data does. Arguments as in `begins_outside`."""
    before, behind = pads
    span = dilation * (size - 1) + 1
    steps = (data + before + behind - span) // step + (begins_outside(data, size, step, pads, dilation) is False)
    return steps * step + span - data - before
