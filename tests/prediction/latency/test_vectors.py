"""Operators for short vectors, seen as operators for long ones."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.operators.kinds.shapes import DenseLayer, operator_of
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.prediction.latency.features import NAMES, operator_features
from op_profiler.prediction.latency.vectors import in_other_vectors


def _blocked(channels: int, block: int) -> Operator:
    """A convolution of 14 x 14 with a window of 3 x 3, its channels in blocks."""
    chunks = channels // block
    data = TensorSpec((1, chunks, 14, 14, block), "float32")
    weight = TensorSpec((chunks, chunks, 3, 3, block, block), "float32")
    flops = 2 * 14 * 14 * channels * channels * 9
    moved = 4 * 14 * 14 * channels
    attrs = {"kernel_size": (3, 3), "strides": (1, 1), "padding": (1, 1, 1, 1), "groups": 1}
    name = "nn.contrib_conv2d_NCHWc"
    read = moved + 4 * channels * channels * 9
    return Operator("x", name, (name,), (data,), (weight,), (data,), (attrs,), {}, "", flops, read, moved)


def _described(operator: Operator, ratio: float = 1.0) -> dict[str, float]:
    columns = np.concatenate([operator_features(operator), [1.0, 0.0, 1.0]])[None].astype(np.float32)
    return dict(zip(NAMES, in_other_vectors(columns, ratio)[0].tolist()))


def test_the_same_vectors_change_nothing() -> None:
    for operator in (_blocked(64, 16), operator_of(DenseLayer(batch=16, in_features=100, out_features=72))):
        plain = dict(zip(NAMES, operator_features(operator).tolist()))
        assert _described(operator) == pytest.approx(plain)


@pytest.mark.parametrize("name", ["in_block", "out_block", "lane_waste"])
def test_a_block_of_whole_vectors_stays_one(name: str) -> None:
    """128 channels in blocks of 8 on AVX2 are to its vectors what 128 in blocks of 16 are to those of AVX-512."""
    assert _described(_blocked(128, 8), 2.0)[name] == _described(_blocked(128, 16))[name]
    assert _described(_blocked(128, 8))["in_block"] == 8.0


def test_sizes_and_work_do_not_change() -> None:
    changed = {"in_block", "out_block", "lane_waste"}
    plain, found = _described(_blocked(128, 8)), _described(_blocked(128, 8), 2.0)
    assert {name for name in NAMES if plain[name] != found[name]} <= changed
