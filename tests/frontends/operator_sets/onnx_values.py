"""What ONNX's operators are given: their inputs, and values of their attributes that are off the default.

Operators that are not here take one tensor of floats, or two that are broadcast. Names are those of all versions of an
operator: the specification says whether one is an input or an attribute. `ONCE` are names of optional inputs and
attributes that stand in every case, `ALSO` further cases. The rest of the names are in `onnx_layers` and `onnx_parts`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from .tensors import Value, f, flags, ints, number, w, whole, within

ONCE, ALSO = "once", "also"


class Each(tuple[Any, ...]):
    """Several values of an attribute, each a case."""

    def __new__(cls, *values: Any) -> Each:
        return super().__new__(cls, values)


@dataclasses.dataclass(frozen=True)
class With:
    """A value that needs others beside it; what is None there is left out."""

    value: Any
    beside: dict[str, Any]


Values = dict[str, Any]

_REDUCE: Values = {
    "axes": Each(ints(1), ints(-1, 0)),
    "noop_with_empty_axes": Each(1, With(1, {ONCE: ("axes",), "axes": ints()})),
    ALSO: {"a vector": {"data": f(5)}},
}
_ARG: Values = {
    "axis": Each(1, -1),
    "select_last_index": With(1, {"data": Value([[1, 2, 2], [3, 3, 1]], "float32", False)}),
}
_LOGICAL: Values = {"A": flags(2, 3, 4), "B": flags(3, 1)}
_BITS: Values = {"A": whole(0, 9, 2, 3, kind="int32"), "B": whole(0, 9, 3, kind="int32")}
_COMPARED: Values = {"A": whole(0, 3, 2, 3, 4, kind="float32"), "B": Value([[0.0], [1.0], [2.0]], "float32", False)}
_WINDOW: Values = {"size": number(8, "int64"), "output_datatype": 11}
_ALONG: Values = {"input": f(2, 3, 4), "axis": Each(0, 1, 2)}
_RANDOM: Values = {"input": f(2, 3), "shape": [2, 3], "dtype": 11, "seed": 3.0}

ELEMENTWISE: dict[str, Values] = {
    "Acosh": {"input": within(1.1, 4, 2, 3)},
    **dict.fromkeys(("Acos", "Asin", "Atanh"), {"input": within(-0.9, 0.9, 2, 3)}),
    **dict.fromkeys(("And", "Or", "Xor"), _LOGICAL),
    **dict.fromkeys(("BitwiseAnd", "BitwiseOr", "BitwiseXor"), _BITS),
    **dict.fromkeys(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"), _COMPARED),
    "BitShift": {
        "X": whole(0, 9, 2, 3, kind="uint8"),
        "Y": whole(0, 3, 2, 3, kind="uint8"),
        "direction": "LEFT",
        ALSO: {"direction RIGHT": {"direction": "RIGHT"}},
    },
    "BitwiseNot": {"X": whole(-5, 9, 2, 3, kind="int32")},
    "Cast": {
        "to": 6,
        "saturate": 0,
        ALSO: {
            f"to {name}": {"to": number, "input": within(-3, 3, 2, 3)}
            for name, number in {"float16": 10, "bool": 9, "int8": 3, "uint8": 2, "int64": 7, "double": 11}.items()
        },
    },
    "CastLike": {"target_type": Value([1], "int32"), "saturate": 0},
    "Clip": {
        "min": number(-0.5),
        "max": number(0.5),
        ALSO: {"both": {ONCE: ("min", "max")}},
    },
    "Div": {"A": f(2, 3, 4), "B": within(0.5, 3, 3, 1)},
    "Dropout": {"ratio": number(0.3), "training_mode": Value(False, "bool"), "seed": 5},
    "Elu": {"alpha": 0.3},
    "Gelu": {"approximate": "tanh"},
    "HardSigmoid": {"alpha": 0.4, "beta": 0.3},
    "IsInf": {"X": Value([[1.0, math.inf], [-math.inf, 0.0]], "float32", False)},
    "IsNaN": {"X": Value([[1.0, math.nan], [-1.0, 0.0]], "float32", False)},
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), {"input": within(0.2, 3, 2, 3), "X": within(0.2, 3, 2, 3)}),
    **dict.fromkeys(
        ("Max", "Mean", "Min", "Sum"), {"data_0": (f(2, 3), f(3), f(2, 1)), ALSO: {"one": {"data_0": (f(2, 3),)}}}
    ),
    "Mod": {
        "A": whole(-9, 9, 2, 3, kind="int32"),
        "B": Value([-4, 3, 5], "int32", False),
        "fmod": Each(1, With(1, {"A": f(2, 3), "B": within(0.5, 2, 3)})),
    },
    "Not": {"X": flags(2, 3)},
    "Pow": {"X": within(0.3, 2, 2, 3), "Y": f(3), ALSO: {"a square": {"X": f(2, 3), "Y": number(2.0)}}},
    "PRelu": {"X": f(1, 3, 4, 4), "slope": w(3, 1, 1), ALSO: {"of one element": {"slope": w(1)}}},
    "Round": {"X": Value([0.5, 1.5, 2.5, -0.5, -1.5, 0.3], "float32", False)},
    "Shrink": {"bias": 0.2, "lambd": 0.3},
    "ThresholdedRelu": {"alpha": 0.4},
    "Where": {"condition": flags(2, 3, 4), "X": f(3, 4), "Y": f(2, 1, 4)},
}

REDUCTIONS: dict[str, Values] = {
    **dict.fromkeys(("ArgMax", "ArgMin"), _ARG),
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
        _REDUCE,
    ),
    "ReduceLogSumExp": _REDUCE,
    "ReduceLogSum": {**_REDUCE, "data": within(0.5, 2, 2, 3, 4), ALSO: {"a vector": {"data": within(0.5, 2, 5)}}},
    "CumSum": {
        "axis": number(1, "int32"),
        ALSO: {"both": {"reverse": 1, "exclusive": 1, ONCE: ("reverse", "exclusive")}},
    },
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), _ALONG),
    "LpNormalization": {"axis": 1, "p": 1},
    "MeanVarianceNormalization": {"X": f(2, 3, 4, 4), "axes": Each([0, 1], [1, 2, 3])},
    "TopK": {
        "X": f(3, 7),
        "k": 3,
        "K": ints(3),
        "axis": 0,
        "largest": 0,
        "sorted": With(0, {"K": ints(7), "X": Value([[7.0, 6, 5, 4, 3, 2, 1]], "float32", False)}),
    },
    "Unique": {"X": Value([[2, 1, 1], [3, 3, 2]], "float32", False), "axis": 1, "sorted": 0},
}

SHAPES: dict[str, Values] = {
    "CenterCropPad": {"shape": ints(1, 5, 4), "axes": With([1], {"shape": ints(5)})},
    "Compress": {"condition": Value([True, False, True], "bool"), "axis": 1},
    "Concat": {"inputs": (f(2, 3), f(2, 3)), "axis": 1, ALSO: {"axis -2": {"axis": -2}}},
    "Constant": {
        "value": w(2, 3),
        ONCE: ("value",),
        **{
            name: With(value, {"value": None})
            for name, value in {
                "value_float": 1.5,
                "value_floats": [1.5, 2.5],
                "value_int": 3,
                "value_ints": [3, 4],
                "value_string": "a",
                "value_strings": ["a", "b"],
                "sparse_value": w(2),
            }.items()
        },
    },
    "ConstantOfShape": {"input": ints(2, 3), "value": Value([3], "int32")},
    "DepthToSpace": {"input": f(1, 8, 2, 3), "blocksize": 2, "mode": "CRD"},
    "SpaceToDepth": {"input": f(1, 2, 4, 6), "blocksize": 2},
    "Expand": {"input": f(3, 1), "shape": ints(2, 3, 4)},
    "EyeLike": {"input": f(3, 4), "dtype": 11, "k": Each(1, -1, 7)},
    "Flatten": {"input": f(2, 3, 4), "axis": Each(0, 2, 3)},
    "Gather": {
        "data": f(3, 4, 2),
        "indices": Value([[0, 2], [1, -1]], constant=False),
        "axis": Each(1, With(-1, {"indices": Value([0, -1], constant=False)})),
    },
    "GatherElements": {"data": f(3, 4), "indices": Value([[0, 2, 1, -1]], constant=False), "axis": 1},
    "GatherND": {
        "data": f(3, 4, 2),
        "indices": Value([[0, 1], [2, -1]], constant=False),
        "batch_dims": With(1, {"indices": Value([[1], [0], [-1]], constant=False)}),
    },
    "NonZero": {"X": Value([[1.0, 0], [0, 2]], "float32", False)},
    "OneHot": {
        "indices": Value([0, 2, -1], constant=False),
        "depth": ints(3),
        "values": Value([0.5, 2], "float32"),
        "axis": Each(0, 1),
    },
    "Pad": {
        "data": f(2, 3, 4),
        "pads": ints(0, 1, 2, 1, 0, 1),
        "value": 0.5,
        "constant_value": number(0.5),
        "axes": With(ints(1, -1), {"pads": ints(1, 1, 0, 2)}),
        "mode": Each("reflect", "edge", "wrap"),
        ALSO: {"negative pads": {"pads": ints(0, -1, 1, 0, 0, -1)}},
    },
    "Range": {"start": number(1.0), "limit": number(7.0), "delta": number(1.5)},
    "Reshape": {
        "shape": ints(4, -1),
        "allowzero": With(1, {"data": f(2, 0, 3), "shape": ints(0, 3, 2)}),
        ALSO: {"a zero": {"shape": ints(0, 12)}},
    },
    "ReverseSequence": {
        "input": f(4, 3, 2),
        "sequence_lens": ints(1, 4, 2),
        "batch_axis": With(0, {"time_axis": 1, ONCE: ("time_axis",), "sequence_lens": ints(1, 2, 3, 1)}),
        "time_axis": With(0, {"sequence_lens": ints(4, 4, 4)}),
    },
    "ScatterElements": {
        "data": f(3, 4),
        "indices": Value([[0, 2, 1, -1]], constant=False),
        "updates": f(1, 4),
        "axis": 1,
        "reduction": Each("add", "mul", "max", "min"),
    },
    "ScatterND": {
        "data": f(4, 3),
        "indices": Value([[1], [3]], constant=False),
        "updates": f(2, 3),
        "reduction": Each("add", "mul", "max", "min"),
        ALSO: {"negative indices": {"indices": Value([[-1], [0]], constant=False)}},
    },
    "Scatter": {"data": f(3, 4), "indices": Value([[0, 2, 1, 1]], constant=False), "updates": f(1, 4), "axis": 1},
    "Shape": {"start": Each(1, -1), "end": Each(2, -1)},
    "Slice": {
        "data": f(4, 5, 6),
        "starts": ints(1, 0, -3),
        "ends": ints(3, 99, -1),
        "axes": ints(2, 0, -2),
        "steps": With(ints(1, 2, -1), {"starts": ints(0, 0, -1), "ends": ints(3, 99, -4), ONCE: ("axes",)}),
    },
    "Split": {
        "input": f(6, 4),
        "split": ints(1, 5),
        "axis": With(-1, {"split": ints(1, 3)}),
    },
    "Split@18": {
        "num_outputs": Each(2, With(2, {"input": f(5, 4)})),
        "split": With(ints(1, 5), {"num_outputs": None}),
        "axis": With(-1, {"split": ints(1, 3), "num_outputs": None}),
        ONCE: ("num_outputs",),
    },
    "Squeeze": {"data": f(1, 3, 1), "axes": Each(ints(0), ints(-1))},
    "Unsqueeze": {"axes": ints(1, 3), ALSO: {"axes 0, -1": {"axes": ints(0, -1)}}},
    "Tile": {"repeats": ints(1, 2, 3)},
    "Transpose": {"perm": [2, 0, 1]},
    "Trilu": {"k": Each(number(1, "int64"), number(-1, "int64"), number(9, "int64"))},
}

RANDOM: dict[str, Values] = {
    "Bernoulli": {**_RANDOM, "input": within(0, 1, 2, 3)},
    "Multinomial": {**_RANDOM, "dtype": 7, "sample_size": 4},
    "RandomNormal": {**_RANDOM, "mean": 2.0, "scale": 3.0},
    "RandomNormalLike": {**_RANDOM, "mean": 2.0, "scale": 3.0},
    "RandomUniform": {**_RANDOM, "low": -1.0, "high": 3.0},
    "RandomUniformLike": {**_RANDOM, "low": -1.0, "high": 3.0},
}
"""Operators whose numbers nobody can compare."""

SIGNALS: dict[str, Values] = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _WINDOW),
    "DFT": {
        "input": f(1, 6, 5, 2),
        "dft_length": Each(number(8, "int64"), number(4, "int64")),
        "axis": Each(Value(2), Value(-3)),
        "onesided": With(1, {"input": f(1, 6, 5, 1)}),
        ALSO: {"of reals": {"input": f(1, 6, 5, 1)}},
    },
    "STFT": {
        "signal": f(1, 16, 1),
        "frame_step": number(4, "int64"),
        "frame_length": number(8, "int64"),
        "window": w(8),
        "onesided": 0,
        ONCE: ("frame_length",),
    },
    "MelWeightMatrix": {
        "num_mel_bins": number(4, "int64"),
        "dft_length": number(16, "int64"),
        "sample_rate": number(8000, "int64"),
        "lower_edge_hertz": number(0.0),
        "upper_edge_hertz": number(4000.0),
        "output_datatype": 11,
    },
}
