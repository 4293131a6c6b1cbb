"""What ONNX's layers are given, as `onnx_values` has it of the other operators: convolutions, pools, norms, recurrent
networks, and quantized operators."""

from __future__ import annotations

from .onnx_values import ALSO, ONCE, Each, Values, With
from .tensors import Tensor, Value, f, ints, number, w, whole, within

_SAME = Each("SAME_UPPER", "SAME_LOWER", "VALID", With("SAME_UPPER", {"strides": [2, 3], ONCE: ("strides",)}))
_POOL: Values = {
    "X": f(1, 3, 7, 8),
    "kernel_shape": [3, 2],
    "pads": Each([1, 0, 1, 1], [1, 1, 0, 1]),
    "strides": [2, 3],
    "dilations": [2, 1],
    "auto_pad": _SAME,
    "ceil_mode": With(1, {"strides": [2, 3], ONCE: ("strides",)}),
    "count_include_pad": With(1, {"pads": [1, 0, 1, 1], ONCE: ("pads",)}),
    "storage_order": 1,
    "p": Each(1, 3),
    ALSO: {
        "1-D": {"X": f(1, 3, 9), "kernel_shape": [3]},
        "3-D": {"X": f(1, 2, 4, 5, 6), "kernel_shape": [2, 3, 2]},
        "pads and ceil_mode": {
            "pads": [1, 1, 0, 0],
            "strides": [2, 3],
            "ceil_mode": 1,
            ONCE: ("pads", "strides", "ceil_mode"),
        },
    },
}
_ROUND: Values = {"X": f(1, 3, 5, 6), "p": Each(1, 3), ALSO: {"1-D": {"X": f(1, 3, 9)}, "3-D": {"X": f(1, 2, 3, 4, 5)}}}
_UINT8, _INT8 = Value(3, "uint8"), Value(0, "int8")

LAYERS: dict[str, Values] = {
    "Conv": {
        "X": f(1, 4, 7, 8),
        "W": w(6, 4, 3, 3),
        "B": w(6),
        "kernel_shape": [3, 3],
        "group": Each(With(2, {"W": w(6, 2, 3, 3)}), With(4, {"W": w(4, 1, 3, 3), "B": w(4)})),
        "pads": [1, 0, 2, 1],
        "strides": [2, 1],
        "dilations": [2, 1],
        "auto_pad": _SAME,
        ALSO: {
            "1-D": {"X": f(1, 4, 9), "W": w(6, 4, 3)},
            "3-D": {"X": f(1, 4, 5, 6, 7), "W": w(6, 4, 3, 3, 3)},
            "1-D SAME": {
                "X": f(1, 4, 9),
                "W": w(6, 4, 3),
                "auto_pad": "SAME_LOWER",
                "strides": [2],
                ONCE: ("auto_pad", "strides"),
            },
            "3-D SAME": {"X": f(1, 4, 5, 6, 7), "W": w(6, 4, 3, 2, 3), "auto_pad": "SAME_UPPER", ONCE: ("auto_pad",)},
        },
    },
    "ConvTranspose": {
        "X": f(1, 4, 5, 6),
        "W": w(4, 3, 3, 3),
        "B": w(3),
        "kernel_shape": [3, 3],
        "group": With(2, {"W": w(4, 2, 3, 3)}),
        "pads": [1, 0, 1, 2],
        "strides": [2, 3],
        "dilations": Each([2, 2], [2, 1]),
        "output_padding": With([1, 1], {"strides": [2, 2], ONCE: ("strides",)}),
        "output_shape": With([10, 12], {"strides": [2, 2], ONCE: ("strides",)}),
        "auto_pad": _SAME,
        ALSO: {"1-D": {"X": f(1, 4, 6), "W": w(4, 3, 3)}, "3-D": {"X": f(1, 4, 3, 4, 5), "W": w(4, 3, 2, 2, 2)}},
    },
    "DeformConv": {
        "X": f(1, 2, 5, 5),
        "W": w(3, 2, 2, 2),
        "offset": within(-0.5, 0.5, 1, 8, 4, 4),
        "B": w(3),
        "mask": within(0, 1, 1, 4, 4, 4),
        "kernel_shape": [2, 2],
        "strides": With([2, 2], {"offset": within(-0.5, 0.5, 1, 8, 2, 2)}),
        "pads": With([1, 1, 1, 1], {"offset": within(-0.5, 0.5, 1, 8, 6, 6)}),
        "dilations": With([2, 2], {"offset": within(-0.5, 0.5, 1, 8, 3, 3)}),
        "group": With(2, {"W": w(4, 1, 2, 2)}),
        "offset_group": With(2, {"offset": within(-0.5, 0.5, 1, 16, 4, 4)}),
    },
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _POOL),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"), _ROUND),
    "MaxRoiPool": {
        "X": f(1, 2, 8, 8),
        "rois": Value([[0.0, 0, 0, 5, 6], [0, 2, 1, 7, 7]], "float32"),
        "pooled_shape": [2, 2],
        "spatial_scale": 0.5,
    },
    "RoiAlign": {
        "X": f(1, 2, 8, 8),
        "rois": Value([[0.0, 0, 5, 6], [2, 1, 7, 7]], "float32", False),
        "batch_indices": ints(0, 0),
        "coordinate_transformation_mode": "output_half_pixel",
        "mode": "max",
        "output_height": 3,
        "output_width": 2,
        "sampling_ratio": 2,
        "spatial_scale": 0.5,
    },
    "MaxUnpool": {
        "X": f(1, 1, 2, 2),
        "I": Value([[[[5, 7], [13, 15]]]], constant=False),
        "kernel_shape": [2, 2],
        "strides": [2, 2],
        "pads": With([0, 0, 1, 0], {"I": Value([[[[1, 3], [5, 7]]]], constant=False)}),
        "output_shape": ints(1, 1, 5, 5),
        ONCE: ("strides",),
    },
    "BatchNormalization": {
        "X": f(2, 3, 4, 4),
        **dict.fromkeys(("scale", "B", "mean", "input_mean"), w(3)),
        **dict.fromkeys(("var", "input_var"), Tensor((3,), low=0.5, high=2.0, constant=True)),
        "epsilon": 0.3,
        "training_mode": 1,
        "spatial": With(
            0, {**dict.fromkeys(("scale", "B", "mean"), w(3, 4, 4)), "var": Tensor((3, 4, 4), low=0.5, constant=True)}
        ),
        ALSO: {"of a matrix": {"X": f(2, 3)}, "3-D": {"X": f(2, 3, 4, 2, 2)}},
    },
    "InstanceNormalization": {
        "input": f(2, 3, 4, 4),
        "scale": w(3),
        "B": w(3),
        "epsilon": 0.3,
        ALSO: {"1-D": {"input": f(2, 3, 5)}},
    },
    "GroupNormalization": {
        "X": f(2, 4, 3, 3),
        "scale": w(4),
        "bias": w(4),
        "num_groups": 2,
        "epsilon": 0.3,
        "stash_type": 10,
    },
    "LayerNormalization": {
        "X": f(2, 3, 4),
        "Scale": w(4),
        "B": w(4),
        "epsilon": 0.3,
        "stash_type": 10,
        "axis": Each(With(1, {"Scale": w(3, 4), "B": w(3, 4)}), With(-2, {"Scale": w(3, 4)})),
    },
    "LRN": {"X": f(1, 7, 3, 3), "size": 3, "alpha": 0.4, "beta": 0.6, "bias": 1.5},
    "Gemm": {
        "A": f(3, 4),
        "B": w(4, 5),
        "C": w(5),
        "alpha": 0.5,
        "beta": With(0.3, {ONCE: ("C",)}),
        "transA": With(1, {"A": f(4, 3)}),
        "transB": With(1, {"B": w(5, 4)}),
        ALSO: {"C of a column": {"C": w(3, 1), ONCE: ("C",)}, "C of a number": {"C": number(2.0), ONCE: ("C",)}},
    },
    "MatMul": {
        "A": f(3, 4),
        "B": w(4, 5),
        ALSO: {
            "batches": {"A": f(2, 3, 4), "B": f(2, 4, 5)},
            "one batch": {"A": f(2, 3, 4), "B": w(4, 5)},
            "broadcast": {"A": f(2, 1, 3, 4), "B": f(3, 4, 5)},
            "vectors": {"A": f(4), "B": f(4)},
            "by a vector": {"A": f(2, 3, 4), "B": f(4)},
        },
    },
    "Einsum": {
        "Inputs": (f(2, 3), f(3, 4)),
        "equation": "ij,jk->ik",
        ALSO: {
            "a sum": {"Inputs": (f(2, 3),), "equation": "ij->j"},
            "an ellipsis": {"Inputs": (f(2, 3, 4), f(2, 4, 2)), "equation": "...ij,...jk->...ik"},
        },
    },
    "Upsample": {"X": f(1, 2, 3, 4), "scales": Value([1.0, 1, 2, 3], "float32"), "mode": "linear"},
    "GridSample": {
        "X": f(1, 2, 5, 6),
        "grid": within(-1.2, 1.2, 1, 3, 4, 2),
        "align_corners": 1,
        "padding_mode": Each("border", "reflection"),
        "mode": Each("nearest", "cubic"),
    },
    "GridSample@16": {"mode": Each("nearest", "bicubic")},
    "AffineGrid": {"theta": f(1, 2, 3), "size": ints(1, 2, 4, 5), "align_corners": 1},
    "Col2Im": {
        "input": f(1, 8, 9),
        "image_shape": ints(4, 4),
        "block_shape": ints(2, 2),
        "dilations": With([2, 2], {"input": f(1, 8, 4)}),
        "pads": With([1, 0, 1, 0], {"input": f(1, 8, 15)}),
        "strides": With([2, 2], {"input": f(1, 8, 4)}),
    },
    "Det": {"X": f(2, 3, 3)},
}

_RESIZED = Value([1.0, 1, 2, 2], "float32")
_FRACTION = Value([1.0, 1, 1.7, 0.6], "float32")
_SCALED: Values = {"X": f(1, 2, 5, 6), "roi": Value([0.0, 0, 0.2, 0.1, 1, 1, 0.8, 0.9], "float32")}

RESIZES: dict[str, Values] = {
    "Resize@10": {**_SCALED, "scales": _RESIZED, "mode": "linear", ALSO: {"fractions": {"scales": _FRACTION}}},
    "Resize@11": {"sizes": With(ints(1, 2, 8, 4), {"scales": Value([], "float32")})},
    "Resize": {
        **_SCALED,
        "scales": _RESIZED,
        "sizes": With(ints(1, 2, 8, 4), {"scales": None}),
        ONCE: ("scales",),
        "mode": Each("linear", "cubic", With("linear", {"scales": _FRACTION}), With("cubic", {"scales": _FRACTION})),
        "coordinate_transformation_mode": Each(
            *(
                With(name, {"mode": mode, "scales": _FRACTION, ONCE: ("roi", "scales", "mode")})
                for name in (
                    "asymmetric",
                    "align_corners",
                    "pytorch_half_pixel",
                    "half_pixel_symmetric",
                    "tf_crop_and_resize",
                )
                for mode in ("nearest", "linear")
            )
        ),
        "nearest_mode": Each(*(With(name, {"scales": _FRACTION}) for name in ("floor", "ceil", "round_prefer_ceil"))),
        "cubic_coeff_a": With(-0.5, {"mode": "cubic", ONCE: ("mode", "scales")}),
        "exclude_outside": With(1, {"mode": "cubic", ONCE: ("mode", "scales")}),
        "extrapolation_value": With(
            0.7,
            {
                "coordinate_transformation_mode": "tf_crop_and_resize",
                "mode": "linear",
                ONCE: ("roi", "scales", "mode", "coordinate_transformation_mode"),
            },
        ),
        "antialias": With(
            1, {"mode": "linear", "scales": Value([1.0, 1, 0.5, 0.5], "float32"), ONCE: ("mode", "scales")}
        ),
        "axes": With([2, 3], {"scales": Value([2.0, 2.0], "float32")}),
        "keep_aspect_ratio_policy": With("not_larger", {"scales": None, "sizes": ints(1, 2, 8, 4), ONCE: ("sizes",)}),
        ALSO: {"fractions": {"scales": _FRACTION}, "1-D": {"X": f(1, 2, 5), "scales": Value([1.0, 1, 2], "float32")}},
    },
}


def _recurrent(gates: int, activations: list[str]) -> Values:
    both = {"W": w(2, gates * 4, 3), "R": w(2, gates * 4, 4), "B": w(2, gates * 8), ONCE: ("hidden_size", "B")}
    return {
        "X": f(5, 2, 3),
        "W": w(1, gates * 4, 3),
        "R": w(1, gates * 4, 4),
        "B": w(1, gates * 8),
        "sequence_lens": Value([3, 5], "int32"),
        "initial_h": w(1, 2, 4),
        "initial_c": w(1, 2, 4),
        "P": w(1, 12),
        "hidden_size": 4,
        "clip": 0.3,
        "direction": Each("reverse", With("bidirectional", both)),
        "layout": With(1, {"X": f(2, 5, 3)}),
        "activations": activations,
        "activation_alpha": With(
            [0.3], {"activations": ["LeakyRelu", *activations[1:]], ONCE: ("activations", "hidden_size")}
        ),
        "activation_beta": With(
            [0.4],
            {
                "activations": ["HardSigmoid", *activations[1:]],
                "activation_alpha": [0.3],
                ONCE: ("activations", "activation_alpha", "hidden_size"),
            },
        ),
        ONCE: ("hidden_size",),
        ALSO: {"reverse of lengths": {"direction": "reverse", ONCE: ("hidden_size", "direction", "sequence_lens")}},
    }


RECURRENT: dict[str, Values] = {
    "GRU": _recurrent(3, ["HardSigmoid", "Softsign"]),
    "LSTM": _recurrent(4, ["HardSigmoid", "Softsign", "Relu"]),
    "RNN": _recurrent(1, ["Relu"]),
}

QUANTIZED: dict[str, Values] = {
    "ConvInteger": {
        "x": whole(0, 9, 1, 2, 6, 6, kind="uint8"),
        "w": whole(0, 9, 3, 2, 3, 3, kind="uint8", constant=True),
        "x_zero_point": _UINT8,
        "w_zero_point": _UINT8,
        "kernel_shape": [3, 3],
        "group": With(2, {"w": whole(0, 9, 2, 1, 3, 3, kind="uint8", constant=True)}),
        "pads": [1, 0, 1, 1],
        "strides": [2, 1],
        "dilations": [2, 1],
        "auto_pad": _SAME,
    },
    "MatMulInteger": {
        "A": whole(0, 9, 3, 4, kind="uint8"),
        "B": whole(0, 9, 4, 5, kind="uint8", constant=True),
        "a_zero_point": _UINT8,
        "b_zero_point": _UINT8,
        ALSO: {"uint8 by int8": {"B": whole(-9, 9, 4, 5, kind="int8", constant=True)}},
    },
    "QLinearConv": {
        "x": whole(0, 200, 1, 2, 6, 6, kind="uint8"),
        "x_scale": number(0.02),
        "x_zero_point": Value(100, "uint8"),
        "w": whole(-50, 50, 3, 2, 3, 3, kind="int8", constant=True),
        "w_scale": number(0.01),
        "w_zero_point": _INT8,
        "y_scale": number(0.05),
        "y_zero_point": Value(120, "uint8"),
        "B": whole(-50, 50, 3, kind="int32", constant=True),
        "kernel_shape": [3, 3],
        "group": With(2, {"w": whole(-50, 50, 2, 1, 3, 3, kind="int8", constant=True)}),
        "pads": [1, 0, 1, 1],
        "strides": [2, 1],
        "dilations": [2, 1],
        "auto_pad": _SAME,
        ALSO: {
            "scales by channel": {
                "w_scale": Value([0.01, 0.02, 0.03], "float32"),
                "w_zero_point": Value([0, 0, 0], "int8"),
            }
        },
    },
    "QLinearMatMul": {
        "a": whole(0, 200, 3, 4, kind="uint8"),
        "b": whole(0, 200, 4, 5, kind="uint8", constant=True),
        **dict.fromkeys(("a_scale", "b_scale"), number(0.02)),
        **dict.fromkeys(("a_zero_point", "b_zero_point", "y_zero_point"), Value(100, "uint8")),
        "y_scale": number(0.6),  # no sum leaves eight bits, which onnxruntime wraps and the specification cuts off
    },
    "DequantizeLinear": {
        "x": whole(0, 200, 2, 3, 4, kind="uint8"),
        "x_scale": number(0.02),
        "x_zero_point": _UINT8,
        "axis": With(2, {"x_scale": Value([0.1, 0.2, 0.3, 0.4], "float32")}),
        "block_size": With(2, {"axis": 2, "x_scale": within(0.1, 0.3, 2, 3, 2), ONCE: ("axis",)}),
    },
    "QuantizeLinear": {
        "x": f(2, 3, 4),
        "y_scale": number(0.02),
        "y_zero_point": Value(100, "uint8"),
        "axis": With(2, {"y_scale": Value([0.1, 0.2, 0.3, 0.4], "float32")}),
        "block_size": With(2, {"axis": 2, "y_scale": Tensor((2, 3, 2), low=0.1, constant=True), ONCE: ("axis",)}),
        "output_dtype": 3,
        "saturate": 0,
    },
}
