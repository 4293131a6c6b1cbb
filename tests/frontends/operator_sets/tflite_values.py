"""What TFLite's builtin operators are given, and values of their options that are off the default."""

from __future__ import annotations

import dataclasses

from .tensors import Value, f, flags, number, w, whole, within
from .tflite_builtin import (
    BOOL,
    BOTH,
    CONV_ALSO,
    DILATED,
    EXTREMES,
    FLOAT32,
    FUSED,
    INT32,
    INT64,
    SAME,
    SLICED,
    WHOLE,
    WINDOW,
    Builtin,
    binary,
    compared,
    i32,
    pool,
    reduced,
    resize,
    unary,
)

BUILTINS: dict[str, Builtin] = {
    "ABS": unary(options="AbsOptions", quantized=("int8",)),
    **{name: binary(f"{name.title()}Options", fused=True, quantized=BOTH) for name in ("ADD", "MUL", "SUB")},
    "DIV": Builtin((f(2, 3), within(0.5, 3, 2, 3)), "DivOptions", also=FUSED, quantized=("uint8",)),
    "ADD_N": Builtin((f(2, 3), f(2, 3), f(2, 3)), "AddNOptions", also={"int32": {"inputs": (WHOLE[0], WHOLE[0])}}),
    "ARG_MAX": EXTREMES,
    "ARG_MIN": dataclasses.replace(EXTREMES, options="ArgMinOptions"),
    "AVERAGE_POOL_2D": pool(quantized=BOTH, same_scale=True),
    "MAX_POOL_2D": pool(quantized=BOTH, same_scale=True),
    "L2_POOL_2D": pool(),
    "BATCH_TO_SPACE_ND": Builtin(
        (f(4, 2, 3, 2), i32(2, 2), Value([[0, 1], [1, 0]], "int32")),
        "BatchToSpaceNDOptions",
        also={"3-D": {"inputs": (f(4, 3, 2), i32(2), Value([[1, 0]], "int32"))}},
        quantized=BOTH,
        same_scale=True,
    ),
    "SPACE_TO_BATCH_ND": Builtin(
        (f(1, 4, 5, 2), i32(2, 2), Value([[0, 2], [1, 0]], "int32")),
        "SpaceToBatchNDOptions",
        also={"3-D": {"inputs": (f(1, 5, 2), i32(2), Value([[1, 0]], "int32"))}},
        quantized=BOTH,
        same_scale=True,
    ),
    "BATCH_MATMUL": Builtin(
        (f(2, 3, 4), f(2, 4, 5)),
        "BatchMatMulOptions",
        quantized=("int8",),
        also={
            "AdjX": {"AdjX": True, "inputs": (f(2, 4, 3), f(2, 4, 5))},
            "AdjY": {"AdjY": True, "inputs": (f(2, 3, 4), f(2, 5, 4))},
            "4-D": {"inputs": (f(2, 2, 3, 4), f(2, 2, 4, 5))},
            "broadcast": {"inputs": (f(2, 2, 3, 4), f(4, 5))},
            "weights": {"inputs": (f(2, 3, 4), w(4, 5))},
        },
    ),
    "CAST": unary(
        within(-3, 3, 2, 3),
        "CastOptions",
        fields={"InDataType": FLOAT32, "OutDataType": INT32},
        outputs=("int32",),
        also={
            "to bool": {"OutDataType": BOOL, "outputs": ("bool",)},
            "from int32": {
                "inputs": (whole(-3, 9, 2, 3, kind="int32"),),
                "InDataType": INT32,
                "OutDataType": FLOAT32,
                "outputs": ("float32",),
            },
            "from bool": {
                "inputs": (flags(2, 3),),
                "InDataType": BOOL,
                "OutDataType": FLOAT32,
                "outputs": ("float32",),
            },
        },
    ),
    **{name: unary() for name in ("CEIL", "FLOOR", "ROUND", "SIN")},
    "COS": unary(options="CosOptions"),
    "CONCATENATION": Builtin(
        (f(2, 3), f(2, 3)),
        "ConcatenationOptions",
        {"Axis": 1},
        quantized=BOTH,
        same_scale=True,
        also={"axis -2": {"Axis": -2}, "a constant": {"inputs": (f(2, 3), w(2, 3))}},
    ),
    "CONV_2D": Builtin(
        (f(1, 7, 8, 4), w(6, 3, 3, 4), w(6)),
        "Conv2DOptions",
        {**WINDOW, "DilationWFactor": 1, "DilationHFactor": 1},
        also={**CONV_ALSO, **DILATED, "groups": {"inputs": (f(1, 7, 8, 4), w(6, 3, 3, 2), w(6))}},
        quantized=BOTH,
        weights=0,
    ),
    "DEPTHWISE_CONV_2D": Builtin(
        (f(1, 7, 8, 4), w(1, 3, 3, 4), w(4)),
        "DepthwiseConv2DOptions",
        {**WINDOW, "DepthMultiplier": 1, "DilationWFactor": 1, "DilationHFactor": 1},
        also={
            **CONV_ALSO,
            **DILATED,
            "DepthMultiplier": {"DepthMultiplier": 2, "inputs": (f(1, 7, 8, 4), w(1, 3, 3, 8), w(8))},
        },
        quantized=BOTH,
        weights=3,
    ),
    "TRANSPOSE_CONV": Builtin(
        (i32(1, 7, 8, 3), w(3, 3, 3, 4), f(1, 5, 6, 4)),
        "TransposeConvOptions",
        WINDOW,
        also={
            "SAME": {"Padding": SAME, "inputs": (i32(1, 5, 6, 3), w(3, 3, 3, 4), f(1, 5, 6, 4))},
            "SAME, strides": {
                "Padding": SAME,
                "StrideH": 2,
                "StrideW": 2,
                "inputs": (i32(1, 10, 12, 3), w(3, 3, 3, 4), f(1, 5, 6, 4)),
            },
            "strides": {"StrideH": 2, "StrideW": 2, "inputs": (i32(1, 11, 13, 3), w(3, 3, 3, 4), f(1, 5, 6, 4))},
            "a bias": {"inputs": (i32(1, 7, 8, 3), w(3, 3, 3, 4), f(1, 5, 6, 4), w(3))},
        },
    ),
    "FULLY_CONNECTED": Builtin(
        (f(3, 4), w(5, 4), w(5)),
        "FullyConnectedOptions",
        quantized=BOTH,
        weights=0,
        also={
            **FUSED,
            "no bias": {"inputs": (f(3, 4), w(5, 4), None)},
            "KeepNumDims": {"KeepNumDims": True, "inputs": (f(2, 3, 4), w(5, 4), w(5))},
            "3-D": {"inputs": (f(2, 3, 4), w(5, 4), w(5))},
            "weights at run time": {"inputs": (f(3, 4), f(5, 4), None)},
        },
    ),
    "DEPTH_TO_SPACE": unary(
        f(1, 2, 3, 8), "DepthToSpaceOptions", fields={"BlockSize": 2}, quantized=BOTH, same_scale=True
    ),
    "SPACE_TO_DEPTH": unary(
        f(1, 4, 6, 2), "SpaceToDepthOptions", fields={"BlockSize": 2}, quantized=BOTH, same_scale=True
    ),
    "DEQUANTIZE": Builtin((whole(0, 100, 2, 3, kind="int8"),), "DequantizeOptions", outputs=("float32",)),
    "QUANTIZE": Builtin(
        (f(2, 3),), "QuantizeOptions", outputs=("int8",), also={"uint8": {"outputs": ("uint8",)}}, quantized=("int8",)
    ),
    "ELU": unary(quantized=("int8",)),
    **{
        name: compared(f"{name.title().replace('_', '')}Options")
        for name in ("EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL")
    },
    "EXP": unary(options="ExpOptions", quantized=("int8",)),
    "EXPAND_DIMS": Builtin(
        (f(2, 3), number(1, "int32")),
        "ExpandDimsOptions",
        also={"axis -1": {"inputs": (f(2, 3), number(-1, "int32"))}},
        quantized=BOTH,
        same_scale=True,
    ),
    "FAKE_QUANT": unary(
        options="FakeQuantOptions", fields={"Min": -1.0, "Max": 2.0, "NumBits": 8}, also={"NumBits": {"NumBits": 4}}
    ),
    "FILL": Builtin((i32(2, 3), Value(1.5, "float32", False)), "FillOptions", outputs=("float32",)),
    "FLOOR_DIV": Builtin((f(2, 3), within(0.5, 3, 2, 3)), "FloorDivOptions", also={"int32": {"inputs": WHOLE}}),
    "FLOOR_MOD": Builtin((f(2, 3), within(0.5, 3, 2, 3)), "FloorModOptions", also={"int32": {"inputs": WHOLE}}),
    "GATHER": Builtin(
        (f(3, 4, 2), Value([2, 0], "int32", False)),
        "GatherOptions",
        quantized=BOTH,
        same_scale=True,
        also={
            "Axis": {"Axis": 1},
            "Axis -1": {"Axis": -1, "inputs": (f(3, 4, 2), Value([1, 0, 1], "int32", False))},
            "BatchDims": {"BatchDims": 1, "Axis": 1, "inputs": (f(2, 4, 2), Value([[2, 0], [1, 3]], "int32", False))},
            "indices of two dimensions": {"inputs": (f(3, 4), Value([[2, 0], [1, 1]], "int32", False))},
        },
    ),
    "GATHER_ND": Builtin(
        (f(3, 4, 2), Value([[2, 0], [1, 3]], "int32", False)),
        "GatherNdOptions",
        also={"one index": {"inputs": (f(3, 4), Value([[2], [0]], "int32", False))}},
    ),
    "GELU": unary(options="GeluOptions", also={"Approximate": {"Approximate": True}}),
    "HARD_SWISH": unary(options="HardSwishOptions", quantized=BOTH),
    "L2_NORMALIZATION": unary(
        f(2, 5), "L2NormOptions", also={"4-D": {"inputs": (f(1, 2, 3, 4),)}}, quantized=BOTH, scale=(1 / 128, 0)
    ),
    "LEAKY_RELU": unary(options="LeakyReluOptions", fields={"Alpha": 0.3}, quantized=BOTH),
    "LOCAL_RESPONSE_NORMALIZATION": unary(
        f(1, 3, 3, 7), "LocalResponseNormalizationOptions", fields={"Radius": 2, "Bias": 1.5, "Alpha": 0.4, "Beta": 0.6}
    ),
    **{
        name: unary(within(0.3, 3, 2, 3), quantized=("int8",) if name == "RSQRT" else ())
        for name in ("LOG", "SQRT", "RSQRT")
    },
    "LOG_SOFTMAX": unary(f(2, 5), "LogSoftmaxOptions", quantized=BOTH, scale=(16 / 256, 127)),
    "SOFTMAX": unary(
        f(2, 5),
        "SoftmaxOptions",
        fields={"Beta": 1.0},
        also={"Beta": {"Beta": 0.5}, "4-D": {"inputs": (f(1, 2, 3, 4),)}},
        quantized=BOTH,
        scale=(1 / 256, -128),
    ),
    "LOGICAL_AND": Builtin((flags(2, 3), flags(2, 3)), "LogicalAndOptions"),
    "LOGICAL_OR": Builtin((flags(2, 3), flags(2, 3)), "LogicalOrOptions"),
    "LOGICAL_NOT": Builtin((flags(2, 3),), "LogicalNotOptions"),
    "LOGISTIC": unary(quantized=BOTH, scale=(1 / 256, -128)),
    "TANH": unary(quantized=BOTH, scale=(1 / 128, 0)),
    "MATRIX_DIAG": unary(f(2, 3), "MatrixDiagOptions"),
    "MATRIX_SET_DIAG": Builtin((f(2, 3, 3), f(2, 3)), "MatrixSetDiagOptions"),
    "MAXIMUM": binary("MaximumMinimumOptions", quantized=BOTH, same_scale=True),
    "MINIMUM": binary("MaximumMinimumOptions", quantized=BOTH, same_scale=True),
    **{name: reduced(quantized=BOTH) for name in ("MEAN", "SUM")},
    **{name: reduced(quantized=BOTH, same_scale=True) for name in ("REDUCE_MAX", "REDUCE_MIN")},
    "REDUCE_PROD": reduced(),
    "REDUCE_ANY": reduced(given=flags(2, 3, 4)),
    "MIRROR_PAD": Builtin(
        (f(3, 4), Value([[1, 1], [2, 0]], "int32")),
        "MirrorPadOptions",
        {"Mode": 0},
        also={"SYMMETRIC": {"Mode": 1}},
        quantized=("int8",),
        same_scale=True,
    ),
    "NEG": unary(options="NegOptions"),
    "ONE_HOT": Builtin(
        (Value([0, 2, 1], "int32", False), number(4, "int32"), number(1.5), number(0.25)),
        "OneHotOptions",
        {"Axis": -1},
        outputs=("float32",),
        also={"Axis": {"Axis": 0}},
    ),
    "PACK": Builtin(
        (f(2, 3), f(2, 3)),
        "PackOptions",
        {"ValuesCount": 2},
        also={"Axis": {"Axis": 1}, "Axis -1": {"Axis": -1}},
        quantized=BOTH,
        same_scale=True,
    ),
    "UNPACK": Builtin(
        (f(2, 3),),
        "UnpackOptions",
        {"Num": 2},
        outputs=("float32", "float32"),
        also={"Axis -1": {"Axis": -1, "Num": 3, "outputs": ("float32",) * 3}},
    ),
    "PAD": Builtin(
        (f(1, 3, 4, 2), Value([[0, 0], [1, 2], [0, 1], [0, 0]], "int32")),
        "PadOptions",
        quantized=BOTH,
        same_scale=True,
    ),
    "PADV2": Builtin(
        (f(1, 3, 4, 2), Value([[0, 0], [1, 2], [0, 1], [0, 0]], "int32"), number(0.5)),
        "PadV2Options",
        quantized=BOTH,
        same_scale=True,
    ),
    "POW": Builtin(
        (within(0.3, 2, 2, 3), f(2, 3)), "PowOptions", also={"a square": {"inputs": (f(2, 3), number(2.0))}}
    ),
    "PRELU": Builtin(
        (f(1, 3, 4, 2), w(1, 1, 2)), also={"of each element": {"inputs": (f(1, 3, 4, 2), w(3, 4, 2))}}, quantized=BOTH
    ),
    "RANGE": Builtin(
        (number(1, "int32"), Value(9, "int32", False), number(2, "int32")),
        "RangeOptions",
        also={"floats": {"inputs": (number(1.0), Value(4.0, "float32", False), number(0.5)), "outputs": ("float32",)}},
    ),
    **{name: unary(quantized=BOTH) for name in ("RELU", "RELU6", "RELU_N1_TO_1")},
    "RESHAPE": Builtin(
        (f(2, 3, 4), i32(4, 6)),
        "ReshapeOptions",
        {"NewShape": [4, 6]},
        also={"-1": {"inputs": (f(2, 3, 4), i32(-1, 4)), "NewShape": [-1, 4]}, "no input": {"inputs": (f(2, 3, 4),)}},
        quantized=BOTH,
        same_scale=True,
    ),
    "RESIZE_BILINEAR": resize("ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": resize("ResizeNearestNeighborOptions"),
    "REVERSE_SEQUENCE": Builtin(
        (f(4, 3, 2), i32(1, 4, 2)),
        "ReverseSequenceOptions",
        {"SeqDim": 0, "BatchDim": 1},
        also={"BatchDim": {"SeqDim": 1, "BatchDim": 0, "inputs": (f(4, 3, 2), i32(1, 3, 2, 1))}},
    ),
    "REVERSE_V2": Builtin(
        (f(2, 3, 4), i32(1)), "ReverseV2Options", also={"axis -1": {"inputs": (f(2, 3, 4), i32(-1))}}
    ),
    "SELECT": Builtin(
        (flags(2, 3), f(2, 3), f(2, 3)),
        "SelectOptions",
        outputs=("float32",),
        also={"of rows": {"inputs": (flags(2), f(2, 3), f(2, 3))}},
    ),
    "SELECT_V2": Builtin((flags(2, 3), f(2, 3), f(3)), "SelectV2Options", outputs=("float32",)),
    "WHERE": Builtin((flags(2, 3),), "WhereOptions", outputs=("int64",)),
    "SHAPE": unary(
        options="ShapeOptions",
        fields={"OutType": INT32},
        outputs=("int32",),
        also={"int64": {"OutType": INT64, "outputs": ("int64",)}},
    ),
    "SLICE": Builtin((f(3, 4, 5), i32(1, 0, 2), i32(2, 3, -1)), "SliceOptions", quantized=BOTH, same_scale=True),
    "SPARSE_TO_DENSE": Builtin(
        (Value([[0, 1], [2, 0]], "int32"), i32(3, 4), Value([1.5, 2.5], "float32", False), number(0.5)),
        "SparseToDenseOptions",
        outputs=("float32",),
    ),
    "SPLIT": Builtin(
        (number(1, "int32"), f(2, 6)),
        "SplitOptions",
        {"NumSplits": 2},
        outputs=("float32",) * 2,
        also={"axis -1": {"inputs": (number(-1, "int32"), f(2, 6)), "NumSplits": 3, "outputs": ("float32",) * 3}},
    ),
    "SPLIT_V": Builtin(
        (f(2, 6), i32(1, 5), number(1, "int32")),
        "SplitVOptions",
        {"NumSplits": 2},
        outputs=("float32",) * 2,
        also={"the rest": {"inputs": (f(2, 6), i32(2, -1), number(-1, "int32"))}},
    ),
    "SQUARE": unary(options="SquareOptions"),
    "SQUARED_DIFFERENCE": binary("SquaredDifferenceOptions", quantized=("int8",)),
    "SQUEEZE": unary(
        f(1, 3, 1),
        "SqueezeOptions",
        also={"SqueezeDims": {"SqueezeDims": [0]}, "SqueezeDims -1": {"SqueezeDims": [-1]}},
        quantized=BOTH,
        same_scale=True,
    ),
    "STRIDED_SLICE": Builtin(
        (f(4, 5, 6), i32(1, 0, -1), i32(3, 5, 0), i32(1, 2, -2)),
        "StridedSliceOptions",
        SLICED,
        quantized=BOTH,
        same_scale=True,
        also={
            "BeginMask": {"BeginMask": 1},
            "EndMask": {"EndMask": 2},
            "ShrinkAxisMask": {
                "ShrinkAxisMask": 1,
                "inputs": (f(4, 5, 6), i32(1, 0, 0), i32(2, 5, 6), i32(1, 1, 1)),
            },
            "ShrinkAxisMask -1": {
                "ShrinkAxisMask": 4,
                "inputs": (f(4, 5, 6), i32(0, 0, -1), i32(4, 5, 6), i32(1, 1, 1)),
            },
            "NewAxisMask": {"NewAxisMask": 1, "inputs": (f(4, 5, 6), i32(0, 1, 0), i32(0, 3, 5), i32(1, 1, 2))},
            "EllipsisMask": {"EllipsisMask": 1, "inputs": (f(4, 5, 6), i32(0, 1), i32(0, 4), i32(1, 2))},
        },
    ),
    "TILE": Builtin((f(2, 3), i32(2, 3)), "TileOptions"),
    "TOPK_V2": Builtin((f(3, 7), number(3, "int32")), "TopKV2Options", outputs=("float32", "int32")),
    "TRANSPOSE": Builtin((f(2, 3, 4), i32(2, 0, 1)), "TransposeOptions", quantized=BOTH, same_scale=True),
    "ZEROS_LIKE": unary(options="ZerosLikeOptions"),
    "NON_MAX_SUPPRESSION_V5": Builtin(
        (
            Value([[0.0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]], "float32", False),
            Value([0.9, 0.75, 0.6, 0.95], "float32", False),
            number(3, "int32"),
            number(0.5),
            number(0.1),
            number(0.0),
        ),
        "NonMaxSuppressionV5Options",
        outputs=("int32", "float32", "int32"),
    ),
}
"""By the name of the builtin. DENSIFY is part of sparse weights alone, UNIDIRECTIONAL_SEQUENCE_LSTM has a state."""
