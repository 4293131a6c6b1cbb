"""How the cases of TFLite's builtin operators are described, and what several of them share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from .tensors import Tensor, Value, f, number, w, whole

Given = Tensor | Value | None
SAME, VALID = 0, 1
ACTIVATIONS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}
FLOAT32, INT32, INT64, BOOL = 0, 2, 4, 6


@dataclasses.dataclass(frozen=True)
class Builtin:
    """One operator.

    Attributes:
        inputs: of the operator; None where an optional one is left out.
        options: name of the table of options; empty for none.
        fields: of that table in the usual case.
        also: further cases by their labels: fields by name, and `inputs`.
        outputs: types of the outputs; empty for one of the type of the first input.
        quantized: types of the quantized cases.
        scale: scale and zero point of the output as int8, where the operator demands them.
        same_scale: whether input and output have the same quantization.
        weights: inputs that are weights: int8 by channel along this axis, and the bias after them.
    """

    inputs: tuple[Given, ...]
    options: str = ""
    fields: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    also: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    outputs: tuple[str, ...] = ()
    quantized: tuple[str, ...] = ()
    scale: tuple[float, int] | None = None
    same_scale: bool = False
    weights: int | None = None


BOTH = ("int8", "uint8")
FUSED = {f"fused {name}": {"FusedActivationFunction": number} for name, number in ACTIVATIONS.items()}
WHOLE = Value([[3, -2, 7], [-9, 4, 5]], "int32", False), Value([2, -3, 4], "int32", False)


def unary(given: Tensor | None = None, options: str = "", **more: Any) -> Builtin:
    return Builtin((given or f(2, 3, 4),), options, **more)


def binary(options: str, *, fused: bool = False, **more: Any) -> Builtin:
    also: dict[str, Mapping[str, Any]] = {
        "broadcast": {"inputs": (f(1, 2, 3, 4), f(4))},
        "by a constant": {"inputs": (f(2, 3), w(3))},
        "a constant first": {"inputs": (w(3), f(2, 3))},
        "int32": {"inputs": WHOLE},
        **(FUSED if fused else {}),
    }
    return Builtin((f(2, 3), f(2, 3)), options, also=also, **more)


def compared(options: str) -> Builtin:
    given = (whole(0, 3, 2, 3, kind="float32"), whole(0, 3, 2, 3, kind="float32"))
    also: dict[str, Mapping[str, Any]] = {
        "int32": {"inputs": WHOLE},
        "broadcast": {"inputs": (given[0], whole(0, 3, 3, kind="float32"))},
    }
    return Builtin(given, options, also=also, outputs=("bool",), quantized=BOTH)


def reduced(*, given: Tensor | None = None, **more: Any) -> Builtin:
    data = given or f(2, 3, 4)
    also: dict[str, Mapping[str, Any]] = {
        "KeepDims": {"KeepDims": True},
        "axis -1": {"inputs": (data, Value([-1], "int32"))},
        "two axes": {"inputs": (data, Value([0, 2], "int32"))},
        "a scalar axis": {"inputs": (data, number(1, "int32"))},
    }
    return Builtin((data, Value([1], "int32")), "ReducerOptions", also=also, **more)


WINDOW = {"StrideW": 1, "StrideH": 1, "Padding": VALID}
CONV_ALSO: dict[str, dict[str, Any]] = {
    "SAME": {"Padding": SAME},
    "SAME, strides": {"Padding": SAME, "StrideH": 2, "StrideW": 3},
    "strides": {"StrideH": 2, "StrideW": 3},
    **FUSED,
}
DILATED = {
    "dilations": {"DilationHFactor": 2, "DilationWFactor": 3},
    "SAME, dilations": {"Padding": SAME, "DilationHFactor": 2, "DilationWFactor": 2},
}


def pool(**more: Any) -> Builtin:
    fields = {**WINDOW, "FilterWidth": 2, "FilterHeight": 3}
    return Builtin((f(1, 7, 8, 3),), "Pool2DOptions", fields, also=CONV_ALSO, **more)


def resize(kind: str) -> Builtin:
    also: dict[str, Mapping[str, Any]] = {
        "AlignCorners": {"AlignCorners": True},
        "HalfPixelCenters": {"HalfPixelCenters": True},
        "smaller": {"inputs": (f(1, 7, 9, 2), Value([3, 4], "int32"))},
        "smaller, HalfPixelCenters": {"inputs": (f(1, 7, 9, 2), Value([3, 4], "int32")), "HalfPixelCenters": True},
    }
    return Builtin((f(1, 4, 5, 2), Value([6, 9], "int32")), kind, also=also, quantized=BOTH, same_scale=True)


EXTREMES = Builtin(
    (f(2, 3, 4), number(1, "int32")), "ArgMaxOptions", {"OutputType": INT32}, outputs=("int32",), quantized=BOTH,
    also={
        "axis -1": {"inputs": (f(2, 3, 4), number(-1, "int32"))},
        "int64": {"OutputType": INT64, "outputs": ("int64",)},
    },
)  # fmt: skip
SLICED = {"BeginMask": 0, "EndMask": 0, "EllipsisMask": 0, "NewAxisMask": 0, "ShrinkAxisMask": 0}


def i32(*values: int) -> Value:
    return Value(list(values), "int32")
