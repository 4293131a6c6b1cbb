"""Reference outputs of tuning tasks, computed by numpy in the blocked layouts of their schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.operators.kinds.sizes import windows
from op_profiler.tuning.candidate import TaskSpec

Shape = tuple[int, ...]
_TOLERANCE = {"float64": 1e-6, "float32": 1e-3, "float16": 2e-2}
"""Largest difference divided by the largest value. Winograd in float32 stays below 1e-5, a wrong index above 0.1."""


@dataclasses.dataclass
class Reference:
    """Inputs of a task in plain layout, and the expected output.

    Attributes:
        arrays: inputs in plain layout.
        pack: function that converts the input at a position of `arrays` to the layout of a tensor of the task, given
            the position and the shape of the tensor; returns None if the shape fits no known layout.
        unpack: function that converts an output of the task to the plain layout.
        output: expected output, in plain layout.
        weights: positions in `arrays` of inputs that are constants in a model.
    """

    arrays: list[np.ndarray]
    pack: Callable[[int, Shape], np.ndarray | None]
    unpack: Callable[[np.ndarray], np.ndarray]
    output: np.ndarray
    weights: tuple[int, ...] = (1,)

    def is_weight(self, shape: Shape) -> bool:
        """Return whether the first input that can have this shape is a constant of the model.

        Args:
            shape: shape of an input of the built function.
        """
        for position in range(len(self.arrays)):
            packed = self.pack(position, shape)
            if packed is not None and packed.shape == shape:
                return position in self.weights
        return False

    def bind(self, shapes: Sequence[Shape]) -> list[np.ndarray] | None:
        """Return an array for each input of a built function; None if the shape of an input fits no known layout.

        Args:
            shapes: shape of each input.
        """
        left = list(range(len(self.arrays)))
        bound = []
        for wanted in shapes:
            for position in left:
                packed = self.pack(position, wanted)
                if packed is not None and packed.shape == wanted:
                    bound.append(np.ascontiguousarray(packed))
                    left.remove(position)
                    break
            else:
                return None
        return bound

    def difference(self, output: np.ndarray) -> str | None:
        """Return a text with the difference of an output, in the task's layout, from the reference; None if the output
        is correct."""
        return self.plain_difference(self.unpack(output), str(output.dtype))

    def plain_difference(self, got: np.ndarray, dtype: str | None = None) -> str | None:
        """Return a text with the difference of an output in plain layout; None if the output is correct.

        Args:
            got: the output.
            dtype: data type in which the output was computed; None: the data type of `got`.
        """
        if got.shape != self.output.shape:
            return f"the output has shape {got.shape}, not {self.output.shape}"
        finite = np.isfinite(self.output)  # random inputs may have infinite or NaN outputs, as of a logarithm
        elsewhere = int((finite != np.isfinite(got)).sum())
        if elsewhere:
            return f"wrong numbers: {elsewhere} are not finite and should be, or are and should not be"
        right = self.output[finite].astype("float64")
        largest = float(np.abs(right).max(initial=0.0)) or 1.0
        off = float(np.abs(got[finite].astype("float64") - right).max(initial=0.0)) / largest
        limit = tolerance(dtype or str(got.dtype))
        if off <= limit:
            return None
        return f"wrong numbers: the error is {off:.2g} of the largest value, {limit:g} is allowed"


def tolerance(dtype: str) -> float:
    """Return the allowed error of an output in this dtype, as a share of its largest value; 0 for integers."""
    return _TOLERANCE.get(dtype, 0.0)


def unwritten_array(shape: Shape, dtype: str) -> np.ndarray:
    """Return an array for the output of a kernel, filled so that elements that the kernel does not write are
    detected."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else 1, dtype)


def reference_of(task: TaskSpec) -> Reference | None:
    """Return the reference of a task; None if this module has no reference for its template."""
    name = task.template
    try:
        if name.endswith("_winograd.cuda"):
            return None  # in a search, the kernel gets transformed weights, as in a model
        if name.startswith(("conv2d_NCHWc", "conv2d_nchw", "depthwise_conv2d", "group_conv2d")) and "int8" not in name:
            return _convolution(task)
        if name.startswith("dense") and "int8" not in name:
            return _dense(task)
        if name.startswith("batch_matmul") and "int8" not in name:
            return _batch_matmul(task)
    except (IndexError, TypeError, ValueError):
        return None  # the arguments are in an unknown order
    return None


def _tensor(argument: Sequence[Any]) -> tuple[Shape, str]:
    kind, shape, dtype = argument
    if kind != "TENSOR":
        raise ValueError(f"{argument} is no tensor")
    return tuple(int(d) for d in shape), str(dtype)


def _random(shape: Shape, dtype: str, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, dtype="float32").astype(dtype)


def _block_channels(array: np.ndarray, block: int) -> np.ndarray:
    """Convert [n, c, h, w] to [n, c / block, h, w, block]."""
    n, channels, height, width = array.shape
    return array.reshape(n, channels // block, block, height, width).transpose(0, 1, 3, 4, 2)


def _unblock_channels(array: np.ndarray) -> np.ndarray:
    """Convert [n, C, h, w, c] to [n, C * c, h, w]."""
    n, chunks, height, width, block = array.shape
    return array.transpose(0, 1, 4, 2, 3).reshape(n, chunks * block, height, width)


def _block_weight(weight: np.ndarray, in_block: int, out_block: int) -> np.ndarray:
    """Convert [o, i, kh, kw] to [O, I, kh, kw, in_block, out_block]."""
    o, i, kh, kw = weight.shape
    blocked = weight.reshape(o // out_block, out_block, i // in_block, in_block, kh, kw)
    return blocked.transpose(0, 2, 4, 5, 3, 1)


def _winograd_weight(weight: np.ndarray, lanes: int, tile: int) -> np.ndarray:
    """Convert [o, i, 3, 3] to [tile + 2, tile + 2, o / lanes, i, lanes], transformed by G w G^T."""
    from tvm.topi.nn import winograd_util

    points = winograd_util._interpolation_points(tile + 1)
    _, _, g = winograd_util._cook_toom_convolution(points, tile, 3)
    o, i, _, _ = weight.shape
    transformed = np.einsum("ak,oikl,bl->aboi", g, weight, g)
    split = transformed.reshape(tile + 2, tile + 2, o // lanes, lanes, i)
    return split.transpose(0, 1, 2, 4, 3).astype(weight.dtype)


def convolve(data: np.ndarray, weight: np.ndarray, strides: Shape, padding: Shape, dilation: Shape) -> np.ndarray:
    """Compute a convolution with groups, one kernel position after the other.

    Args:
        data: [n, c, h, w].
        weight: [o, c / groups, kh, kw].
        padding: top, left, bottom, right.
    """
    n, channels, height, width = data.shape
    o, per_group, kh, kw = weight.shape
    groups = channels // per_group
    top, left, bottom, right = padding
    padded = np.pad(data.astype("float64"), ((0, 0), (0, 0), (top, bottom), (left, right)))
    oh, ow = windows((height, width), (kh, kw), strides, padding, dilation)
    result = np.zeros((n, groups, o // groups, oh * ow))
    for y in range(kh):
        for x in range(kw):
            rows = slice(y * dilation[0], y * dilation[0] + (oh - 1) * strides[0] + 1, strides[0])
            columns = slice(x * dilation[1], x * dilation[1] + (ow - 1) * strides[1] + 1, strides[1])
            window = padded[:, :, rows, columns].reshape(n, groups, per_group, oh * ow)
            result += weight[:, :, y, x].astype("float64").reshape(groups, o // groups, per_group) @ window
    return result.reshape(n, o, oh, ow)


def window_of(task: TaskSpec) -> tuple[Shape, Shape, Shape]:
    """Return strides, padding (top, left, bottom, right) and dilation of a convolution task."""
    strides, padding, dilation = (tuple(int(v) for v in a) for a in task.arguments[2:5])
    return strides, padding if len(padding) == 4 else (*padding, *padding), dilation


def transposed(task: TaskSpec) -> tuple[bool, bool]:
    """Return whether each of the two factors of a matrix product is transposed."""
    flags = task.arguments[4:6]
    return (bool(flags[0]), bool(flags[1])) if len(flags) == 2 else (False, True)


def _convolution(task: TaskSpec) -> Reference:
    data_shape, dtype = _tensor(task.arguments[0])
    weight_shape, weight_dtype = _tensor(task.arguments[1])
    strides, padding, dilation = window_of(task)
    winograd = len(weight_shape) == 5 and "winograd" in task.template
    blocked = len(data_shape) == 5
    channels = data_shape[1] * data_shape[4] if blocked else data_shape[1]
    plain_data = (data_shape[0], channels, data_shape[2], data_shape[3])
    if winograd:
        plain_weight: Shape = (weight_shape[2] * weight_shape[4], weight_shape[3], 3, 3)
    elif len(weight_shape) == 6:
        o, i, kh, kw, ib, ob = weight_shape
        plain_weight = (o * ob, i * ib, kh, kw)
    elif len(weight_shape) == 4:
        plain_weight = weight_shape
    else:
        raise ValueError(f"a weight of shape {weight_shape} is not known")
    data, weight = _random(plain_data, dtype, 1), _random(plain_weight, weight_dtype, 2)

    def pack(position: int, wanted: Shape) -> np.ndarray | None:
        if position == 0:
            if len(wanted) == 4:
                return data
            return _block_channels(data, wanted[4]) if len(wanted) == 5 and channels % wanted[4] == 0 else None
        if len(wanted) == 4:
            return weight
        if len(wanted) == 5 and winograd:
            return _winograd_weight(weight, wanted[4], wanted[0] - 2)
        if len(wanted) == 6 and weight.shape[1] % wanted[4] == 0 and weight.shape[0] % wanted[5] == 0:
            return _block_weight(weight, wanted[4], wanted[5])
        return None

    output = convolve(data, weight, strides, padding, dilation)
    return Reference([data, weight], pack, lambda a: _unblock_channels(a) if a.ndim == 5 else a, output)


def _dense(task: TaskSpec) -> Reference:
    data_shape, dtype = _tensor(task.arguments[0])
    weight_shape, weight_dtype = _tensor(task.arguments[1])
    plain = (weight_shape[0] * weight_shape[2], weight_shape[1]) if len(weight_shape) == 3 else weight_shape
    data, weight = _random(data_shape, dtype, 1), _random(plain, weight_dtype, 2)

    def pack(position: int, wanted: Shape) -> np.ndarray | None:
        if position == 0:
            return data
        if len(wanted) == 3 and plain[0] % wanted[2] == 0:
            return weight.reshape(plain[0] // wanted[2], wanted[2], plain[1]).transpose(0, 2, 1)
        return weight

    return Reference([data, weight], pack, lambda a: a, data.astype("float64") @ weight.astype("float64").T)


def _batch_matmul(task: TaskSpec) -> Reference:
    a_shape, a_dtype = _tensor(task.arguments[0])
    b_shape, b_dtype = _tensor(task.arguments[1])
    transpose_a, transpose_b = transposed(task)
    a, b = _random(a_shape, a_dtype, 1), _random(b_shape, b_dtype, 2)
    left = a.transpose(0, 2, 1) if transpose_a else a
    right = b.transpose(0, 2, 1) if transpose_b else b
    output = left.astype("float64") @ right.astype("float64")
    return Reference([a, b], lambda position, _: (a, b)[position], lambda array: array, output, weights=())
