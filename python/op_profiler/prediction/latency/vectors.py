"""Conversion of operator descriptions from one vector length to another.

TVM blocks channels and columns by the length of a vector register. A convolution in blocks of 8 fills the registers of
AVX2, but only half of those of AVX-512. A predictor that was fitted on AVX-512 would treat it as a bad shape, although
it is a good shape on AVX2. Descriptions are therefore converted to the vector length of the device that the predictor
was fitted to.
"""

from __future__ import annotations

import numpy as np

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.prediction.latency.devices import DeviceName
from op_profiler.prediction.latency.features import LANES, NAMES
from op_profiler.targets import TARGETS
from op_profiler.targets.target import resolve_target


def in_other_vectors(columns: np.ndarray, ratio: float) -> np.ndarray:
    """Return descriptions of operators (`Query.columns`) with every vector `ratio` times as long.

    Blocks of whole vectors remain blocks of whole vectors.
    """
    found = columns.copy()
    at = {name: NAMES.index(name) for name in NAMES}
    for name in ("in_block", "out_block"):
        blocked = found[:, at[name]] > 1  # 0 and 1 are flags: whether the last axis is whole vectors
        found[blocked, at[name]] *= ratio
    extents = np.round(2.0 ** found[:, at["columns"]]).astype(np.int64)
    vectors = np.maximum(extents, 1) * ratio / LANES
    found[:, at["lane_waste"]] = np.ceil(vectors) / vectors
    return found


def vector_ratio(known: DeviceName, new: DeviceName) -> float:
    """Return the vector length of the known device divided by that of the new one; 1 if one of them is no processor."""
    processors = {name for name, kind in TARGETS.available() if kind.on_host}
    if known.target == new.target or not {known.kind, new.kind} <= processors:
        return 1.0
    lanes = compiler_in_use().vector_lanes
    return lanes(resolve_target(known.target)) / lanes(resolve_target(new.target))
