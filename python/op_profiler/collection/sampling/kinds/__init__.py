"""Operators as a few numbers each, and how Relay writes them.

A kind states what one operator computes; the compiler decides the layouts and what is fused. One point may therefore
become several operators (a layer norm becomes its means and its scaling).
"""

from op_profiler.collection.sampling.kinds.around import (
    ACTIVATIONS,
    BINARY,
    POOLS,
    REDUCTIONS,
    UNARY,
    Elementwise,
    LayerNorm,
    Mean,
    Pool2d,
    Reduction,
    Softmax,
    channel_block,
)
from op_profiler.collection.sampling.kinds.cells import CELLS, Gates, LocalResponseNorm
from op_profiler.collection.sampling.kinds.convolutions import (
    Conv1d,
    Conv2d,
    Conv2dDilated,
    Conv2dNHWC,
    Conv2dTranspose,
    Conv3d,
)
from op_profiler.collection.sampling.kinds.images_and_heads import NORMS, ImageNorm, LayerScale, TurnedPositions
from op_profiler.collection.sampling.kinds.moves import Concatenate, GrowingPast, Repacking, Transpose
from op_profiler.collection.sampling.kinds.precisions import (
    INT8_ELEMENTWISE,
    InFloat16,
    Int8Conv2d,
    Int8Dense,
    Int8Elementwise,
)
from op_profiler.collection.sampling.kinds.products import (
    AttentionEinsum,
    BatchMatmul,
    Dense,
    DenseOfActivations,
    GatedDense,
)
from op_profiler.collection.sampling.kinds.rearrangements import (
    BROADCASTS,
    Broadcast,
    JoinedSlices,
    Rearranged,
    Relayout,
    UnpaddedPool2d,
    blocked,
)
from op_profiler.collection.sampling.point import EPILOGUES

__all__ = [
    "ACTIVATIONS",
    "BINARY",
    "BROADCASTS",
    "CELLS",
    "EPILOGUES",
    "INT8_ELEMENTWISE",
    "NORMS",
    "POOLS",
    "REDUCTIONS",
    "UNARY",
    "AttentionEinsum",
    "BatchMatmul",
    "Broadcast",
    "Concatenate",
    "Conv1d",
    "Conv2d",
    "Conv2dDilated",
    "Conv2dNHWC",
    "Conv2dTranspose",
    "Conv3d",
    "Dense",
    "DenseOfActivations",
    "Elementwise",
    "GatedDense",
    "Gates",
    "GrowingPast",
    "ImageNorm",
    "InFloat16",
    "Int8Conv2d",
    "Int8Dense",
    "Int8Elementwise",
    "JoinedSlices",
    "LayerNorm",
    "LayerScale",
    "LocalResponseNorm",
    "Mean",
    "Pool2d",
    "Rearranged",
    "Reduction",
    "Relayout",
    "Repacking",
    "Softmax",
    "Transpose",
    "TurnedPositions",
    "UnpaddedPool2d",
    "blocked",
    "channel_block",
]
