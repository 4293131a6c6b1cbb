"""Decides which points of TVM's templates for GPUs are worth compiling.

The templates split spatial axes into blocks, virtual threads, threads and an inner part, and each thread keeps its
outputs in registers. Most points of such a space need more threads than a block may have, or more registers than a
thread has. The compiler spends ten seconds or more on such a point, and the result cannot be launched, or spills.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor
from op_profiler.tuning.task import InvalidPointError

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target

_BLOCK, _VIRTUAL, _THREADS, _INNER = range(4)
_LEVELS = 4
_STRIDES, _DILATION = 2, 4  # places among the arguments of a convolution
_WARP, _MOST_THREADS, _MOST_THREADS_Z = 32, 1024, 64
_DIMENSIONS = 3  # of a block; the first of three axes is its z
_SHARED_BYTES = 48 << 10  # what every block gets without asking
_BEHIND_UNROLLING = 2  # of TVM's phases of lowering, as AutoTVM has it
_PLANE = ("tile_d", "tile_y", "tile_x")
_MOST_OUTPUTS = 128
"""Largest number of outputs of a thread: it has 255 registers, and needs some for operands."""


def fits(splits: Mapping[str, Sequence[int]], value_bytes: int, window: Sequence[tuple[int, int]] = ()) -> bool:
    """Return whether threads, registers and shared memory are sufficient for a tile, and whether its threads fill a
    warp if there are enough outputs.

    Args:
        splits: sizes by the names of the knobs, from the outermost part to the innermost.
        value_bytes: bytes of an operand.
        window: window of a convolution, as `window_of` returns it.
    """
    tiles = {name: size for name, size in splits.items() if len(size) == _LEVELS}
    if not tiles:
        return True
    threads = prod(size[_THREADS] for size in tiles.values())
    outputs = prod(size[_VIRTUAL] * size[_INNER] for size in tiles.values())
    fewest = min(_WARP, prod(largest_divisor(prod(size), _MOST_THREADS) for size in tiles.values()))
    if not (fewest <= threads <= _MOST_THREADS and outputs <= _MOST_OUTPUTS):
        return False
    if len(tiles) >= _DIMENSIONS and next(iter(tiles.values()))[_THREADS] > _MOST_THREADS_Z:
        return False
    return _shared_values(tiles, splits, window) * value_bytes <= _SHARED_BYTES


def window_of(arguments: Sequence[Any]) -> tuple[tuple[int, int], ...]:
    """Return stride and dilation of every axis of a convolution's plane; empty for other tasks.

    Args:
        arguments: arguments of an AutoTVM task; for a convolution: data, weights, strides, padding, dilation and more.
    """
    if len(arguments) <= _DILATION or not all(isinstance(arguments[n], (tuple, list)) for n in (_STRIDES, _DILATION)):
        return ()
    return tuple((int(stride), int(dilation)) for stride, dilation in zip(arguments[_STRIDES], arguments[_DILATION]))


def _shared_values(
    tiles: Mapping[str, Sequence[int]], splits: Mapping[str, Sequence[int]], window: Sequence[tuple[int, int]]
) -> int:
    """Return the number of values that a block of a convolution keeps in shared memory: of weights, and of the data
    that the window reads."""
    if "tile_f" not in tiles or "tile_rc" not in splits:
        return 0
    lengths = {name: prod(size[_VIRTUAL:]) for name, size in tiles.items()}
    terms = prod(size[-1] for name, size in splits.items() if name not in tiles)
    data = splits["tile_rc"][-1]
    axes = [name for name in _PLANE if name in lengths]
    for name, (stride, dilation) in zip(axes, window if len(window) == len(axes) else [(1, 1)] * len(axes)):
        taps = splits.get(name.replace("tile_", "tile_r"), (1,))[-1]
        data *= (lengths[name] - 1) * stride + (taps - 1) * dilation + 1
    return lengths["tile_f"] * terms + data


@contextlib.contextmanager
def launches_checked(target: Target) -> Iterator[None]:
    """Inside the ``with`` block, reject kernels that cannot be launched, before their loops are simplified and
    compiled, which takes most of the time.

    Raises:
        InvalidPointError: a kernel needs more shared memory or threads than a block may have.
    """
    tvm = load_tvm()
    limits = {
        "max_threads_per_block": int(target.attrs["max_num_threads"]),
        "max_shared_memory_per_block": int(target.attrs.get("max_shared_memory_per_block") or _SHARED_BYTES),
    }
    refused = []

    def check(function: Any, module: Any, context: Any) -> Any:
        if not tvm.tir.analysis.verify_gpu_code(function, limits):
            refused.append(function)
            raise InvalidPointError
        return function

    check_pass = tvm.tir.transform.prim_func_pass(check, opt_level=0)
    try:
        with tvm.transform.PassContext(config={"tir.add_lower_pass": [(_BEHIND_UNROLLING, check_pass)]}):
            yield
    except Exception as error:
        if refused:  # by then the error is one of TVM's own
            text = "a block would need more shared memory or threads than there are"
            raise InvalidPointError(text) from error
        raise
