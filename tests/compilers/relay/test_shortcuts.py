"""What is done in place of two slow passes: the same operators and the same constants, without a kernel for each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay import lower, shortcuts
from op_profiler.compilers.relay_rewriting import rebuilt
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target
from op_profiler.targets.target import resolve_target

from ...executor import executor_of


@pytest.fixture(scope="module")
def model() -> ImportedModel:
    """Convolutions between batch normalizations, two branches, and what the simplification changes: a clip twice."""
    tvm = load_tvm()
    relay = tvm.relay
    rng = np.random.default_rng(0)
    data = relay.var("data", shape=(1, 3, 20, 20))
    params: dict[str, Any] = {}

    def constant(name: str, *shape: int) -> Any:
        params[name] = tvm.nd.array(rng.uniform(0.5, 1.5, shape).astype("float32"))
        return relay.var(name, shape=shape)

    def block(x: Any, inputs: int, outputs: int, name: str) -> Any:
        weight = constant(f"{name}_weight", outputs, inputs, 3, 3)
        x = relay.nn.conv2d(x, weight, padding=(1, 1), channels=outputs, kernel_size=(3, 3))
        return normalized(x, outputs, name)

    def normalized(x: Any, channels: int, name: str) -> Any:
        norm = (constant(f"{name}_{part}", channels) for part in ("gamma", "beta", "mean", "var"))
        return relay.nn.relu(relay.nn.batch_norm(x, *norm)[0])

    first = block(data, 3, 16, "first")
    both = relay.add(block(first, 16, 16, "left"), relay.nn.max_pool2d(first, (3, 3), padding=(1, 1)))
    body = relay.clip(relay.clip(block(normalized(both, 16, "both"), 16, 32, "last"), 0.0, 6.0), 0.0, 6.0)
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body)))
    return ImportedModel("blocks", "test", module, params, (InputSpec("data", (1, 3, 20, 20)),))


def _target() -> Target:
    """LLVM optimizes nothing: half of a build's time."""
    made: Target = load_tvm().target.Target({**resolve_target("llvm").export(), "opt-level": 0})
    return made


def _run(model: ImportedModel) -> tuple[list[str], np.ndarray]:
    load_tvm()

    compiled = lower.compile_model(model, _target())
    module = executor_of(compiled.library)
    module.set_input("data", model.inputs[0].random(np.random.default_rng(1)))
    module.run()
    return [occurrence.operator.key for occurrence in compiled.occurrences], module.get_output(0).numpy()


def test_a_build_has_the_same_operators_and_computes_the_same(
    model: ImportedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, output = _run(model)
    lowered = [occurrence.operator.key for occurrence in lower.optimize(model, _target())]
    for name in ("_fold", "_hide"):
        monkeypatch.setattr(shortcuts, name, lambda *_: None)
    plain_keys, plain_output = _run(model)
    assert keys == plain_keys == lowered
    np.testing.assert_array_equal(output, plain_output)


def test_lowering_compiles_no_kernel(model: ImportedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are chosen for the layouts of convolutions only, and none to compute what is known of weights."""
    chosen: set[str] = set()
    compiler = load_tvm().relay.backend.te_compiler
    select = compiler.select_implementation

    def noted(op: Any, *arguments: Any, **more: Any) -> Any:
        chosen.add(op.name)
        return select(op, *arguments, **more)

    monkeypatch.setattr(compiler, "select_implementation", noted)
    lower.optimize(model, resolve_target("llvm"))
    assert chosen == {"nn.conv2d"}


def test_passes_without_work_are_told_by_the_operations_of_all_functions(model: ImportedModel) -> None:
    tvm = load_tvm()
    relay = tvm.relay
    names = lower._names_of_ops(model.mod)
    assert names["nn.conv2d"] == 3 and names["clip"] == 2
    assert set(lower._without_work(names)) == {"qnn.Legalize", "FlattenAtrousConv"}
    x = relay.var("x", shape=(1, 4))
    scale, zero = relay.const(0.5), relay.const(0, "int32")
    module = tvm.IRModule(dict(model.mod.functions.items()))
    module["other"] = relay.Function([x], relay.qnn.op.quantize(x, scale, zero))
    assert lower._without_work(lower._names_of_ops(module)) == ["FlattenAtrousConv"]


@pytest.mark.parametrize(
    ("shape", "source", "target"),
    [((2, 32, 3, 5), "NCHW", "NCHW16c"), ((32, 16, 3, 3), "OIHW", "OIHW8i16o"), ((2, 3, 4, 5), "NCHW", "NHWC")],
)
def test_a_layout_is_what_the_compiler_makes_of_it(shape: tuple[int, ...], source: str, target: str) -> None:
    tvm = load_tvm()
    relay = tvm.relay
    array = np.arange(np.prod(shape), dtype="float32").reshape(shape)
    function = relay.Function([], relay.layout_transform(relay.const(array), source, target))
    folded = relay.transform.FoldConstant()(tvm.IRModule.from_expr(function))["main"].body
    found = shortcuts.in_layout(array, source, target)
    assert found is not None
    np.testing.assert_array_equal(found, folded.data.numpy())


def test_layouts_that_are_left_to_the_compiler() -> None:
    assert shortcuts.in_layout(np.zeros((1, 30, 2, 2)), "NCHW", "NCHW16c") is None
    assert shortcuts.in_layout(np.zeros((1, 2, 2, 2, 16)), "NCHW16c", "NCHW") is None


def test_what_tvm_was_built_with_is_read_once() -> None:
    tvm = load_tvm()
    asked = tvm.relay.backend.te_compiler.libinfo
    assert asked() is asked() and asked() == tvm.support.libinfo()


def test_weights_that_are_split_are_left_to_the_compiler() -> None:
    relay = load_tvm().relay
    data, weight = relay.var("data", shape=(1, 4)), relay.var("weight", shape=(8, 4))
    first, second = relay.split(weight, 2, axis=0)
    body = relay.nn.dense(relay.nn.dense(data, first), second)
    module = load_tvm().IRModule.from_expr(relay.Function([data, weight], body))
    params = {"weight": load_tvm().nd.array(np.eye(8, 4, dtype="float32"))}
    compiled = lower.compile_model(ImportedModel("m", "test", module, params, (InputSpec("data", (1, 4)),)), _target())
    assert sum("dense" in call.name for call in compiled.calls) == 2


@pytest.mark.parametrize("kind", ["float32", "float64", "int32", "int64"])
def test_a_folded_constant_keeps_its_type_and_its_shape(kind: str) -> None:
    tvm = load_tvm()
    relay = tvm.relay
    scalar = relay.subtract(relay.const(7, kind), relay.const(2, kind))
    places = relay.arange(relay.const(0, kind), relay.const(6, kind), relay.const(1, kind), dtype=kind)
    known = relay.multiply(places, scalar)
    if kind.startswith("int"):  # LLVM refuses a kernel for these two
        known = relay.add(relay.floor_mod(known, relay.const(4, kind)), relay.floor_divide(known, relay.const(3, kind)))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(known))
    folded = rebuilt(module, shortcuts._fold)
    assert isinstance(folded, relay.Constant)
    found = folded.data.numpy()
    values = np.arange(6, dtype=kind) * 5
    np.testing.assert_array_equal(found, values % 4 + values // 3 if kind.startswith("int") else values)
    assert (str(found.dtype), found.shape) == (kind, (6,))
    alone: Any = rebuilt(relay.transform.InferType()(tvm.IRModule.from_expr(scalar)), shortcuts._fold)
    assert (alone.data.shape, alone.data.dtype) == ((), kind)


def test_divisions_of_constants_that_numpy_does_not_compute_are_compiled() -> None:
    tvm = load_tvm()
    relay = tvm.relay
    places = relay.repeat(relay.const(np.arange(-16, 16), "int64"), 2, 0)
    taken = relay.adv_index([places, relay.const(np.arange(64)[::-1].copy(), "int64")])
    divided = relay.floor_divide(taken, relay.const(-5, "int64")) + relay.floor_mod(taken, relay.const(-5, "int64"))
    data = relay.var("data", shape=(64,), dtype="int64")
    module = tvm.IRModule.from_expr(relay.Function([data], data + divided))
    compiled = lower.compile_model(
        ImportedModel("m", "test", module, {}, (InputSpec("data", (64,), "int64"),)), _target()
    )
    run = executor_of(compiled.library)
    run.set_input("data", np.zeros(64, "int64"))
    run.run()
    values = np.repeat(np.arange(-16, 16), 2)[::-1]
    np.testing.assert_array_equal(run.get_output(0).numpy(), values // -5 + values % -5)
