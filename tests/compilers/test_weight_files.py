"""Weights as files: what is read is what was written, and nothing else is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.weight_files import bytes_of, read_weights, write_weights


@pytest.fixture
def weights(tvm: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    plain = {
        "float32": rng.standard_normal((3, 4)).astype("float32"),
        "float16": rng.standard_normal(5).astype("float16"),
        "int64": np.array(7),
        "uint8": np.arange(200, dtype="uint8"),
        "bool": np.array([True, False]),
        "none": np.zeros((0, 3), "float32"),
    }
    halves = tvm.nd.empty((2, 3), "bfloat16")
    halves.copyfrom(np.arange(6, dtype="uint16").reshape(2, 3))
    return {name: tvm.nd.array(one) for name, one in plain.items()} | {"bfloat16": halves}


def test_what_is_read_is_what_was_written(weights: dict[str, Any], tmp_path: Path) -> None:
    write_weights(tmp_path / "w", weights)
    found = read_weights(tmp_path / "w")
    assert {name: (one.dtype, one.shape) for name, one in found.items()} == {
        name: (one.dtype, one.shape) for name, one in weights.items()
    }
    for name, one in found.items():
        np.testing.assert_array_equal(one.numpy(), weights[name].numpy())
    assert bytes_of(weights["float16"]) == 10 and bytes_of(weights["bfloat16"]) == 12


def test_a_file_that_is_cut_off_is_not_read(weights: dict[str, Any], tmp_path: Path) -> None:
    write_weights(tmp_path / "w", weights)
    content = (tmp_path / "w").read_bytes()
    for size in (0, 5, 40, len(content) - 1):
        (tmp_path / "w").write_bytes(content[:size])
        with pytest.raises((ValueError, KeyError, TypeError)):
            read_weights(tmp_path / "w")
