"""Default schedules on GPUs, for which TVM's templates query logs of other users (TopHub).

Without such a log, TVM uses blocks of a single thread: mobilenet took 23 ms on an H100, and 0.4 ms with this rule. Logs
of other GPUs are not available everywhere, and change. By this rule a block has up to 256 threads, over the innermost
axes first, a thread computes up to four outputs, and the terms of the sums go through shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.kinds.sizes import largest_divisor

_LEVELS = 4  # block, virtual thread, thread, inner: of an axis that is bound to blocks and threads
_ROW_THREADS, _PLANE_THREADS, _BLOCK_THREADS = 16, 64, 256
_FEWEST, _SHORT = 4, 64
"""Least number of threads of a row, if it can be split so; and largest number of threads of a plane, if all of its
columns are used."""
_OUTPUTS = 4
_PIXEL_THREADS = 8
"""Threads for an image of one pixel, which has only channels; larger blocks would be too few."""
_LEVELS_OF_PRODUCTS, _WARP, _ROWS = 3, 32, 8
_TERMS = 8
_SHARED_VALUES = 4096
"""Number of weights, and of data values, that a block keeps in its 48 KiB; in float32 each takes 16 KiB."""
_USUAL = {"tile_f": (4, 4), "tile_y": (4, 1), "tile_x": (16, 1)}
"""By knob: largest number of threads, and of outputs per thread, if its axis is chosen without the other axes."""


def define_split(config: Any, name: str, axis: Any, policy: str = "factors", **options: Any) -> Any:
    """Replace ``FallbackConfigEntity.define_split`` for templates that never query a log, such as those for int8 and
    grouped convolutions. If a template queries a log later, `choose` replaces this choice.

    Args:
        config, name, axis, policy, options: as in ``ConfigSpace.define_split``.
    """
    ConfigSpace = load_tvm().autotvm.task.space.ConfigSpace
    known = name in config._entity_map  # a value that was given beforehand stays
    found = ConfigSpace.define_split(config, name, axis, policy, **options)
    if not known and policy == "factors" and not options.get("filter") and _on_gpu():
        count = len(config[name].size)
        if count == _LEVELS:
            config.fallback_split(name, [-1, 1, *_USUAL.get(name, (1, 1))])
        elif name.startswith("tile_r") and count > 1:
            config.fallback_split(name, _last_only(config, name, _TERMS))
    return found


def set_knob(config: Any, name: str, entity: Any) -> None:
    """Replace ``FallbackConfigEntity.__setitem__``, because two templates set tiles with few threads per block.

    For transposed convolutions, the tiles of `define_split` are kept; for batched products of odd lengths, other tiles
    are set.

    Args:
        config, name, entity: as in ``FallbackConfigEntity.__setitem__``.
    """
    SplitEntity = load_tvm().autotvm.task.space.SplitEntity
    levels = len(entity.size) if isinstance(entity, SplitEntity) and name in _USUAL and _on_gpu() else 0
    if levels == _LEVELS and name in config._entity_map:
        return
    if levels == _LEVELS_OF_PRODUCTS and (size := _of_odd_product(config, name)):
        entity = SplitEntity(size)
    config._entity_map[name] = entity


def _of_odd_product(config: Any, name: str) -> list[int]:
    """Return the parts of an axis of a batched product; empty if the template's own parts give a block a full warp.

    The template's number of threads along an axis is the largest power of two that divides its length, at most eight.
    """
    if not {"tile_x", "tile_y"} <= {*config.space_map}:
        return []
    columns, rows = (int(config.space_map[axis].product) for axis in ("tile_x", "tile_y"))
    if prod(min(length & -length, _ROWS) for length in (columns, rows)) >= _WARP:
        return []
    if name == "tile_x":
        return [-1, largest_divisor(columns, _BLOCK_THREADS), 1]
    return [-1, 1, largest_divisor(rows, _ROWS)]


def choose(config: Any, log: Sequence[Any]) -> None:
    """Replace ``FallbackConfigEntity.fallback_with_reference_log``: choose tiles of every axis that a template splits.

    Args:
        config: ``autotvm.task.space.FallbackConfigEntity`` of a template with its knobs defined.
        log: not used.
    """
    SplitSpace = load_tvm().autotvm.task.space.SplitSpace
    if not _on_gpu():
        return
    splits = {str(name): space for name, space in config.space_map.items() if isinstance(space, SplitSpace)}
    tiled = [name for name, space in splits.items() if space.num_output == _LEVELS]
    summed = [name for name in splits if name not in tiled]
    tiles = _tile(config, tiled, {name: int(splits[name].product) for name in tiled})
    _sum(config, summed, {name: int(splits[name].product) for name in summed}, tiles)


def _on_gpu() -> bool:
    tvm = load_tvm()

    target = tvm.target.Target.current(allow_none=True)
    return target is not None and str(target.kind.name) == "cuda"


def _tile(config: Any, axes: Sequence[str], lengths: Mapping[str, int]) -> list[int]:
    """Choose threads and outputs per thread for every axis, the last one first; return the sizes of the tiles, in the
    order of the axes."""
    is_pixel = len(axes) > 2 and all(lengths[name] == 1 for name in axes[1:])
    threads, tiles = 1, []
    for place, name in enumerate(reversed(axes)):
        is_first = place == len(axes) - 1
        is_plane = not is_first and len(axes) > 2  # columns and rows of an image, then what it has behind them
        most = (_ROW_THREADS if place == 0 else _PLANE_THREADS) if is_plane else _BLOCK_THREADS
        fewest, whole = (_FEWEST, _BLOCK_THREADS) if place == 0 else (2, _SHORT)
        if is_plane and largest_divisor(lengths[name], most // threads) < fewest and threads * lengths[name] <= whole:
            most = whole  # a prime, or twice one: the whole of it
        inner = _OUTPUTS if is_first else 1
        if is_first and is_pixel:
            most, inner = _PIXEL_THREADS, 1
        config.fallback_split(name, [-1, 1, max(most // threads, 1), inner])
        size = [int(part) for part in config[name].size]
        threads *= size[2]
        tiles.append(size[2] * size[3])
    return tiles[::-1]


def _sum(config: Any, axes: Sequence[str], lengths: Mapping[str, int], tiles: Sequence[int]) -> None:
    """Choose as many terms at a time as fit into shared memory: first those of the window, then channels."""
    channels, *plane = tiles or [1]
    window = [lengths[name] for name in axes[1:]]
    terms = max(_SHARED_VALUES // max(channels, 1), 1)
    for name, length in reversed([*zip(axes[1:], window)]):
        config.fallback_split(name, _last_only(config, name, min(length, terms)))
        terms = max(terms // int(config[name].size[-1]), 1)
    if axes:
        seen = prod(2 * tile + length for tile, length in zip(plane, window[-len(plane) :])) if plane and window else 1
        most = min(_TERMS, terms, max(_SHARED_VALUES // seen, 1))
        config.fallback_split(axes[0], _last_only(config, axes[0], most))


def _last_only(config: Any, name: str, most: int) -> list[int]:
    return [-1, *([1] * (len(config[name].size) - 2)), most]
