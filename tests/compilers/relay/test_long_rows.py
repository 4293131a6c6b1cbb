"""Convolutions over long rows, which LLVM cannot compile or takes hours for by TVM's own schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel

from ...executor import executor_of


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("behind", ["nothing", "bias and relu"])
def test_a_long_row_with_gaps_is_computed_in_short_vectors(tvm: Any, behind: str, groups: int) -> None:
    row, notes, off = _computed(tvm, width=2400, stride=2, groups=groups, behind=behind)
    assert row == 1200
    assert off < 1e-5
    assert len(notes) == 1 and "vectors of up to 32" in notes[0]


@pytest.mark.parametrize("width", [40_000, 65_536, 65_537])  # TVM keeps the lanes of a vector in 16 bits
def test_a_row_of_more_lanes_than_a_vector_has_is_computed(tvm: Any, width: int) -> None:
    row, notes, off = _computed(tvm, width=width, stride=1, groups=1, behind="bias and relu")
    assert row == width
    assert off < 1e-5
    assert len(notes) == 1


@pytest.mark.parametrize(("width", "stride"), [(2400, 1), (480, 2)])
def test_other_rows_are_scheduled_by_tvm(tvm: Any, width: int, stride: int) -> None:
    _, notes, off = _computed(tvm, width=width, stride=stride, groups=1, behind="bias and relu")
    assert off < 1e-5
    assert notes == ()


def _computed(tvm: Any, *, width: int, stride: int, groups: int, behind: str) -> tuple[int, tuple[str, ...], float]:
    """Values of a row, the notes of the build, and how far the values are from numpy's."""
    from tvm.topi.testing import conv1d_ncw_python, group_conv1d_ncw_python

    from op_profiler.compilers.relay.lower import compile_model

    relay = tvm.relay
    rng = np.random.default_rng(0)
    x, weight, bias = (rng.standard_normal(s).astype("float32") for s in ((1, 8, width), (16, 8 // groups, 3), (16,)))
    given = relay.var("x", shape=x.shape)
    y = relay.nn.conv1d(
        given, relay.const(weight), strides=stride, padding=(1, 1), channels=16, kernel_size=3, groups=groups
    )
    reference = conv1d_ncw_python if groups == 1 else group_conv1d_ncw_python
    more = () if groups == 1 else (groups,)
    expected = reference(x, weight, stride, 1, 1, *more)
    if behind != "nothing":
        y = relay.nn.relu(relay.nn.bias_add(y, relay.const(bias)))
        expected = np.maximum(expected + bias[:, None], 0)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([given], y)))
    compiled = compile_model(ImportedModel("m", "file", module, {}, ()), tvm.target.Target("llvm"))
    run = executor_of(compiled.library)
    run.set_input("x", x)
    run.run()
    found = run.get_output(0).numpy()
    return found.shape[2], compiled.notes, float(np.abs(found - expected).max())
