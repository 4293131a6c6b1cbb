"""What the rest of ONNX's operators is given, as `onnx_values` has it: losses, boxes, texts, sequences, and bodies."""

from __future__ import annotations

from typing import Any

from .onnx_layers import LAYERS, QUANTIZED, RECURRENT, RESIZES
from .onnx_values import ALSO, ELEMENTWISE, ONCE, RANDOM, REDUCTIONS, SHAPES, SIGNALS, Each, Values, With
from .tensors import Made, Value, f, ints, number, whole, within

SEQUENCE = Made("SequenceConstruct", (f(2, 3), f(2, 3), f(2, 3)))
_TEXT = Value(["ab", "c d"], "object", False)
_LOSS: Values = {
    **dict.fromkeys(("input", "scores"), f(3, 5)),
    **dict.fromkeys(("target", "labels"), whole(0, 5, 3)),
    **dict.fromkeys(("weight", "weights"), within(0.5, 2, 5)),
    "ignore_index": With(2, {"target": Value([2, 1, 4], constant=False), "labels": Value([2, 1, 4], constant=False)}),
    "reduction": Each("none", "sum"),
    ALSO: {
        "of images": {
            **dict.fromkeys(("input", "scores"), f(2, 5, 3, 3)),
            **dict.fromkeys(("target", "labels"), whole(0, 5, 2, 3, 3)),
        }
    },
}


def body(kind: str) -> Any:
    """The graph inside a Loop or a Scan, a SequenceMap, or a branch of an If."""
    from onnx import TensorProto, helper

    def value(name: str, shape: Any = (2, 3), element: int = TensorProto.FLOAT) -> Any:
        return helper.make_tensor_value_info(name, element, shape)

    node, graph = helper.make_node, helper.make_graph
    if kind in ("then", "else"):
        made = node("Add" if kind == "then" else "Mul", ["outer", "outer"], [f"{kind}_made"])
        return graph([made], kind, [], [value(f"{kind}_made")])
    if kind == "map":
        return graph([node("Add", ["one", "one"], ["made"])], kind, [value("one")], [value("made")])
    nodes = [
        node("Add", ["state", "state" if kind == "loop" else "row"], ["next"]),
        node("Identity", ["next"], ["seen"]),
    ]
    if kind == "loop":
        nodes.append(node("Identity", ["going"], ["goes_on"]))
        inputs = [value("trip", (), TensorProto.INT64), value("going", (), TensorProto.BOOL), value("state")]
        return graph(nodes, kind, inputs, [value("goes_on", (), TensorProto.BOOL), value("next"), value("seen")])
    return graph(nodes, kind, [value("state", (3,)), value("row", (3,))], [value("next", (3,)), value("seen", (3,))])


BODIES = ("then", "else", "loop", "map", "scan")
"""Values of attributes that stand for a graph."""

PARTS: dict[str, Values] = {
    "If": {
        "cond": Value(True, "bool", False),
        "then_branch": "then",
        "else_branch": "else",
        ALSO: {"false": {"cond": Value(False, "bool", False)}},
    },
    "Loop": {
        "M": number(3, "int64"),
        "cond": Value(True, "bool"),
        "v_initial": (f(2, 3),),
        "body": "loop",
        ONCE: ("M", "cond"),
        ALSO: {"trips at run time": {"M": Value(3, constant=False)}},
    },
    "Scan": {
        "initial_state_and_scan_inputs": (f(3), f(4, 3)),
        "num_scan_inputs": 1,
        "body": "scan",
        "scan_input_axes": With([1], {"initial_state_and_scan_inputs": (f(3), f(3, 4))}),
        "scan_input_directions": [1],
        "scan_output_axes": [1],
        "scan_output_directions": [1],
    },
    "Scan@8": {
        "initial_state_and_scan_inputs": (f(2, 3), f(2, 4, 3)),
        "directions": [1],
        "sequence_lens": Value([4, 4]),
    },
    "Identity": {ALSO: {"a sequence": {"input": SEQUENCE}}},
    "SequenceConstruct": {"inputs": (f(2, 3), f(2, 3))},
    "SequenceEmpty": {"dtype": 1},
    "SequenceAt": {
        "input_sequence": SEQUENCE,
        "position": number(1, "int64"),
        ALSO: {"from the end": {"position": number(-1, "int64")}},
    },
    "SequenceErase": {"input_sequence": SEQUENCE, "position": number(0, "int64")},
    "SequenceInsert": {"input_sequence": SEQUENCE, "tensor": f(2, 3), "position": number(1, "int64")},
    "SequenceLength": {"input_sequence": SEQUENCE},
    "SequenceMap": {"input_sequence": SEQUENCE, "additional_inputs": (), "body": "map"},
    "ConcatFromSequence": {"input_sequence": SEQUENCE, "axis": 1, "new_axis": 1},
    "SplitToSequence": {"input": f(4, 6), "split": ints(1, 3), "axis": 1, "keepdims": 0},
    "Optional": {"input": f(2, 3), "type": "of the input", ONCE: ("input",)},
    "OptionalGetElement": {"input": Made("Optional", (f(2, 3),))},
    "OptionalHasElement": {"input": Made("Optional", (f(2, 3),)), ONCE: ("input",)},
    "NegativeLogLikelihoodLoss": _LOSS,
    "SoftmaxCrossEntropyLoss": _LOSS,
    "NonMaxSuppression": {
        "boxes": Value([[[0.0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, 10, 1, 11], [0, 10.1, 1, 11.1]]], "float32", False),
        "scores": Value([[[0.9, 0.75, 0.6, 0.95]]], "float32", False),
        "max_output_boxes_per_class": ints(3),
        "iou_threshold": With(Value([0.5], "float32"), {ONCE: ("max_output_boxes_per_class",)}),
        "score_threshold": With(Value([0.7], "float32"), {ONCE: ("max_output_boxes_per_class",)}),
        "center_point_box": With(1, {ONCE: ("max_output_boxes_per_class",)}),
        ALSO: {"all": {ONCE: ("max_output_boxes_per_class", "iou_threshold", "score_threshold")}},
    },
    "DynamicQuantizeLinear": {"x": f(3, 4)},
    "RegexFullMatch": {"X": _TEXT, "pattern": "a.*", ONCE: ("pattern",)},
    "StringConcat": {"X": _TEXT, "Y": _TEXT},
    "StringNormalizer": {
        "X": _TEXT,
        "case_change_action": "UPPER",
        "is_case_sensitive": 1,
        "locale": "en_US",
        "stopwords": ["ab"],
    },
    "StringSplit": {"X": _TEXT, "delimiter": " ", "maxsplit": 1},
    "TfIdfVectorizer": {
        "X": Value([1, 1, 3, 3, 3, 7], "int64", False),
        "mode": "TF",
        "min_gram_length": 2,
        "max_gram_length": 2,
        "max_skip_count": 0,
        "ngram_counts": [0, 4],
        "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7],
        "pool_strings": With(list("bcedefghfg"), {"X": Value(list("aacccg"), "object", False), "pool_int64s": None}),
        "weights": With([1.0] * 7, {"mode": "TFIDF"}),
        ONCE: ("pool_int64s",),
    },
    "ImageDecoder": {"encoded_stream": Value([137, 80, 78, 71], "uint8", False), "pixel_format": "BGR"},
}

VALUES: dict[str, Values] = {
    **ELEMENTWISE, **REDUCTIONS, **SHAPES, **RANDOM, **SIGNALS, **LAYERS, **RESIZES, **RECURRENT, **QUANTIZED, **PARTS,
}  # fmt: skip
