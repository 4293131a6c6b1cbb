"""Operators compiled for vectors of one length, described as those of another.

TVM blocks channels and columns by the length of a vector register. A convolution in blocks of 8 fills the registers of
AVX2 and half of those of AVX-512, so to a predictor that learned on AVX-512 it looks like a bad shape, which on AVX2 it
is not. Descriptions are therefore put in the vectors of the device that the predictor knows.
"""

from __future__ import annotations

import numpy as np

from op_profiler.predict.latency.default_schedule import LANES, largest_divisor
from op_profiler.predict.latency.devices import DeviceName
from op_profiler.predict.latency.features import NAMES


def in_other_vectors(columns: np.ndarray, ratio: float) -> np.ndarray:
    """Descriptions (shape (entries, `NAMES` and settings)) with every vector `ratio` times as long.

    Blocks and tiles of whole vectors stay whole vectors; a tile of a dense layer is the one that TVM takes for the
    vectors that the operator was compiled for.
    """
    found = columns.copy()
    at = {name: NAMES.index(name) for name in NAMES}
    for name in ("in_block", "out_block"):
        blocked = found[:, at[name]] > 1  # else it says whether the last axis is whole vectors
        found[blocked, at[name]] *= ratio
    extents = np.round(2.0 ** found[:, at["columns"]]).astype(np.int64)
    convolutions = found[:, [at["is_conv2d"], at["is_depthwise"], at["is_grouped"]]].any(axis=1)
    found[convolutions, at["tile_columns"]] *= ratio
    dense = np.flatnonzero(found[:, at["is_dense"]])
    tiles = np.array([largest_divisor(int(n), int(2 * LANES / ratio)) for n in extents[dense]])
    found[dense, at["tile_columns"]] = tiles * ratio
    found[dense, at["registers"]] = found[dense, at["tile_rows"]] * np.ceil(tiles * ratio / LANES)
    found[dense, at["vector_parts"]] = [int(tile).bit_count() for tile in tiles]
    tiled = np.concatenate([np.flatnonzero(convolutions), dense])
    found[tiled, at["vector_rest"]] = found[tiled, at["tile_columns"]] % LANES
    vectors = np.maximum(extents, 1) * ratio / LANES
    found[:, at["lane_waste"]] = np.ceil(vectors) / vectors
    return found


def vector_ratio(known: DeviceName, new: DeviceName) -> float:
    """How much longer the vectors of the device are that is known; 1 where one of the two is no processor."""
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.targets import TARGETS
    from op_profiler.targets.target import resolve_target

    processors = {name for name, kind in TARGETS.available() if kind.on_host}
    if known.target == new.target or not {known.kind, new.kind} <= processors:
        return 1.0
    lanes = compiler_in_use().vector_lanes
    return lanes(resolve_target(known.target)) / lanes(resolve_target(new.target))
