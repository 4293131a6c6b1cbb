"""Operators that `benchmarks/odd_operators.py` draws: all that compute something, the same for a seed, and valid."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from ..installed import needs

pytestmark = needs("onnx")
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NOT_DRAWN = (
    # name or reshape tensors, or make them of nothing
    *("Constant", "ConstantOfShape", "EyeLike", "Flatten", "Identity", "Range", "Reshape", "Shape", "Size", "Squeeze"),
    *("Unsqueeze", "CastLike", "CenterCropPad", "BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix"),
    # random numbers
    *("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    # the size of the output depends on values
    *("Compress", "NonMaxSuppression", "NonZero", "Unique"),
    # graphs inside, sequences, texts
    *("If", "Loop", "Scan", "SequenceMap", "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
    *("SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence", "Optional", "OptionalGetElement"),
    *("OptionalHasElement", "ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
    *("TfIdfVectorizer",),
    # made of others that are drawn, or like them
    *("AffineGrid", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Col2Im", "ConvInteger", "DFT", "Det"),
    *("DeformConv", "DynamicQuantizeLinear", "GlobalLpPool", "GreaterOrEqual", "GroupNormalization", "MatMulInteger"),
    *("MaxRoiPool", "MaxUnpool", "NegativeLogLikelihoodLoss", "QLinearConv", "QLinearMatMul", "RoiAlign", "STFT"),
    *("Scatter", "Shrink", "SoftmaxCrossEntropyLoss", "Upsample"),
)


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import odd_operators_common

    return odd_operators_common


def test_every_operator_of_the_specification_is_drawn_or_left_out(drawing: ModuleType) -> None:
    from .operator_sets.onnx_cases import schemas

    assert sorted(set(schemas()) ^ {*drawing.DRAWS, *NOT_DRAWN}) == []


def test_a_seed_draws_one_valid_operator(drawing: ModuleType) -> None:
    import onnx

    seen = set()
    for seed in range(300):
        one, again = drawing.drawn(seed), drawing.drawn(seed)
        assert one.name == again.name and one.model == again.model
        onnx.checker.check_model(one.model)
        seen.add(one.operator)
    assert len(seen) > 80
