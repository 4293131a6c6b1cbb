"""Rows that no vector divides, in builds by the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay import applied_records, remainders
from op_profiler.compilers.relay.chosen import chosen_schedules
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.relay.relay_compiler import RELAY
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.usable_records import UsableRecords, ruled
from op_profiler.targets.llvm.identity import processor_features
from op_profiler.testing.compiler import NO_RECORDS

from ...executor import executor_of

TARGETS = ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"]
LENGTHS = [1, 16, 17, 23, 30, 57, 100, 197]


def relay() -> Any:
    return load_tvm().relay


def gelu_of(x: Any, dtype: str) -> Any:
    return x * (relay().erf(x * relay().const(0.7071, dtype)) + relay().const(1.0, dtype))


def gelu(x: Any) -> Any:
    return gelu_of(x, "float32")


def of_reshape(x: Any) -> Any:
    """Its indices contain divisions, as those of attention scores do."""
    rows, columns = (int(size) for size in x.type_annotation.shape)
    return relay().reshape(relay().reshape(x, (1, 1, rows * columns)), (rows, columns)) * relay().const(2.0)


ROWS: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: relay().negative(x),
    "gelu": gelu,
    "sigmoid": lambda x: relay().sigmoid(x),
    "softmax": lambda x: relay().nn.softmax(x),
    "sine": lambda x: relay().sin(x),
    "transpose": lambda x: relay().transpose(x),
    "reversed": lambda x: relay().reverse(x, 1) + x,
    "reshape": of_reshape,
    "padded": lambda x: relay().nn.pad(x, ((0, 0), (1, 2)), 3.0),
    "concatenate": lambda x: relay().concatenate([x, relay().exp(x)], 1),
    "integers": lambda x: relay().cast(relay().cast(x, "int8"), "float32"),
    "gaps": lambda x: relay().strided_slice(x, [0, 0], [5, 1000], [1, 2]),
    "mean": lambda x: x - relay().mean(x, 1, keepdims=True),
    "flat": lambda x: relay().sqrt(relay().abs(relay().reshape(x, (-1,)))),
    "scan": lambda x: relay().cumsum(x, 1),
    "two": lambda x: relay().Tuple([relay().negative(x), x + x]),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_all_lengths_are_right(tvm: Any, name: str, target: str) -> None:
    if target == TARGETS[1] and "avx512f" not in processor_features():
        pytest.skip("this processor has no AVX-512")
    for length in LENGTHS:
        x = np.random.default_rng(length).standard_normal((5, length)).astype("float32")
        model = _model(tvm, ROWS[name], x.shape)
        own, found = (_outputs(tvm, model, x, target, records) for records in (NO_RECORDS, UsableRecords.only_rule()))
        for one, other in zip(own, found, strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6, err_msg=str(length))


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_functions_of_other_precisions_stay_right(tvm: Any, dtype: str) -> None:
    """Only float32 has polynomials; TVM must not make vectors of the others' calls of the math library."""
    model = _model(tvm, lambda x: relay().cast(gelu_of(relay().cast(x, dtype), dtype), "float32"), (5, 100))
    x = np.random.default_rng(0).standard_normal((5, 100)).astype("float32")
    (own,), (found,) = (_outputs(tvm, model, x, TARGETS[0], r) for r in (NO_RECORDS, UsableRecords.only_rule()))
    np.testing.assert_allclose(found, own, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("length", [17, 100])
@pytest.mark.parametrize("name", ["negative", "reshape", "gelu"])
def test_loops_have_no_condition(tvm: Any, name: str, length: int) -> None:
    with applied_records.applied(UsableRecords.only_rule()):
        compiled = compile_model(_model(tvm, ROWS[name], (5, length)), tvm.target.Target(TARGETS[1]))
    assert compiled.code
    assert all("T.likely" not in code and "T.vectorized(16)" in code for code in compiled.code.values())


def test_kernels_that_read_with_gaps_keep_their_loop(tvm: Any) -> None:
    with applied_records.applied(UsableRecords.only_rule()):
        compiled = compile_model(_model(tvm, ROWS["transpose"], (100, 5)), tvm.target.Target(TARGETS[1]))
    assert all("T.likely" in code for code in compiled.code.values())


@pytest.mark.parametrize(("length", "origin"), [(16, "default"), (96, "default"), (100, "rule")])
def test_an_operator_with_a_remainder_is_one_of_the_rule(tvm: Any, length: int, origin: str) -> None:
    model, target = _model(tvm, ROWS["negative"], (5, length)), tvm.target.Target(TARGETS[0])
    for records, expected in ((UsableRecords.only_rule(), origin), (NO_RECORDS, "default")):
        built = RELAY.build(model, target, records)
        assert {schedule.origin for schedule in built.schedules.values()} == {expected}
        fused = RELAY.fuse(lambda: RELAY.operators(model, target), target, records)
        assert bool(fused.by_rule) == (expected == "rule")
        assert (ruled(remainders.NAME) in built.asked) == (ruled(remainders.NAME) in fused.asked) == (length == 100)


@pytest.mark.parametrize("kind", ["conv1d", "conv3d", "grouped", "transposed", "dense", "batch_matmul"])
def test_kernels_of_heavy_operators_are_the_same(tvm: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their origin tells nothing of remainders."""
    nn, weights = relay().nn, lambda *shape: relay().const(np.ones(shape, "float32"))
    shapes: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "conv1d": ((1, 8, 57), lambda x: nn.relu(nn.conv1d(x, weights(24, 8, 3), padding=1))),
        "conv3d": ((1, 4, 6, 9, 57), lambda x: nn.relu(nn.conv3d(x, weights(6, 4, 3, 3, 3), padding=(1, 1, 1)))),
        "grouped": ((1, 12, 9, 57), lambda x: nn.relu(nn.conv2d(x, weights(12, 4, 3, 3), padding=(1, 1), groups=3))),
        "transposed": ((1, 4, 9, 57), lambda x: nn.relu(nn.conv2d_transpose(x, weights(4, 6, 3, 3)))),
        "dense": ((7, 57), lambda x: nn.relu(nn.dense(x, weights(57, 57)))),
        "batch_matmul": ((2, 57, 57), lambda x: nn.relu(nn.batch_matmul(x, x))),
    }
    shape, network = shapes[kind]
    assemblies = []
    for passes in (remainders.passes, list):
        monkeypatch.setattr(remainders, "passes", passes)
        with applied_records.applied(UsableRecords.only_rule()), chosen_schedules(by_rule=True) as choices:
            compiled = compile_model(_model(tvm, network, shape), tvm.target.Target(TARGETS[1]))
        ruled_alone = {
            code
            for label, code in compiled.code.items()
            if choices.schedule_of(compiled.by_label[label]).origin != "rule"
        }
        assemblies.append(ruled_alone)
    assert assemblies[0] == assemblies[1]


def _model(tvm: Any, network: Callable[[Any], Any], shape: Sequence[int]) -> ImportedModel:
    given = tvm.relay.var("x", shape=shape)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function([given], network(given))))
    return ImportedModel("rows", "test", module, {}, (InputSpec("x", tuple(shape)),))


def _outputs(tvm: Any, model: ImportedModel, x: np.ndarray, target: str, records: UsableRecords) -> list[np.ndarray]:
    with applied_records.applied(records):
        executor = executor_of(compile_model(model, tvm.target.Target(target)).library)
    executor.set_input("x", x)
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]
