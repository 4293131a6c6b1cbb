"""What ``--schedules rule`` compiles: products and convolutions of every shape, and functions of the
math library."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay import applied_records, processor_defaults
from op_profiler.compilers.relay.lower import compile_model, optimize
from op_profiler.compilers.relay.templates import register_templates
from op_profiler.compilers.relay.templates.winograd import BY_STAGE, WINOGRAD
from op_profiler.schedules.usable_records import ruled
from op_profiler.targets.llvm.identity import processor_features
from op_profiler.testing.compiler import NO_RECORDS

from ...executor import executor_of

BY_RULE = dataclasses.replace(NO_RECORDS, by_rule=True)
TARGETS = ["llvm -mcpu=haswell", "llvm -mcpu=skylake-avx512"]
DENSE = [(1, 64, 96), (2, 7, 32), (13, 5, 64), (50, 33, 96), (128, 64, 64), (197, 40, 96), (23, 16, 1), (31, 31, 31)]
CONVOLUTIONS = [
    # batch, channels, image, output channels, kernel, stride, padding
    (1, 16, (14, 14), 32, (3, 3), 1, 1),
    (2, 24, (13, 11), 40, (3, 3), 1, 0),
    (1, 16, (30, 5), 8, (3, 3), 1, 2),
    (1, 24, (9, 8), 40, (3, 1), 1, (1, 0)),
    (2, 3, (13, 17), 19, (5, 3), 2, 2),
    (1, 64, (8, 8), 128, (1, 1), 2, 0),
    (1, 16, (32, 32), 256, (1, 1), 1, 0),
    (1, 96, (1, 1), 8, (1, 1), 1, 0),
    (1, 1, (28, 28), 1, (3, 3), 1, 1),
]
DEPTHWISE = [(32, (14, 14), 3, 1), (24, (9, 7), 5, 2), (6, (1, 9), 3, 1), (7, (8, 8), 3, 2)]
TRANSPOSED = [
    # batch, channels, image, output channels, kernel, strides, padding, output padding
    (1, 8, (4, 4), 6, 4, (2, 2), (1, 1), (0, 0)),
    (2, 3, (5, 7), 4, 3, (2, 2), (1, 1), (1, 1)),
    (1, 4, (6, 5), 5, 5, (3, 3), (2, 2), (0, 0)),
    (1, 4, (5, 5), 3, 3, (2, 1), (1, 1), (1, 0)),
    (1, 4, (1, 1), 8, 4, (1, 1), (0, 0), (0, 0)),
    (1, 4, (5, 5), 3, 7, (2, 2), (3, 3), (1, 1)),
    (1, 3, (4, 4), 2, 2, (3, 3), (0, 0), (0, 0)),
    (1, 3, (6, 6), 2, 5, (2, 2), (4, 4), (0, 0)),
    (1, 3, (6, 6), 2, 3, (1, 1), (1, 1), (0, 0)),
]
BATCHED = [(1, 1, 64, 64), (3, 49, 32, 49), (2, 5, 7, 9), (2, 197, 16, 197), (2, 1, 64, 50), (2, 50, 64, 1)]


@pytest.fixture(params=["any", "plain", "padded"])
def templates(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Which templates the rule may choose, so that both are tried with every shape."""
    chosen = processor_defaults.config_of

    def config_of(target: Any, workload: tuple[Any, ...]) -> Any:
        fits = request.param == "any" or ("padded" in workload[0]) == (request.param == "padded")
        return chosen(target, workload) if fits else None

    monkeypatch.setattr(applied_records, "config_of", config_of)
    return str(request.param)


@pytest.mark.parametrize("behind", ["nothing", "bias and relu", "reshape"])
def test_products_of_every_shape_are_right(tvm: Any, templates: str, behind: str) -> None:
    relay, rng = tvm.relay, np.random.default_rng(0)
    for rows, depth, columns in DENSE:
        x, weight, bias = (rng.standard_normal(s).astype("float32") for s in ((rows, depth), (columns, depth), columns))
        given = relay.var("x", shape=x.shape)
        y, expected = relay.nn.dense(given, relay.const(weight)), x @ weight.T
        if behind == "bias and relu":
            y, expected = relay.nn.relu(relay.nn.bias_add(y, relay.const(bias))), np.maximum(expected + bias, 0)
        elif behind == "reshape":
            y, expected = relay.reshape(y, (1, rows, columns)), expected.reshape(1, rows, columns)
        found = _computed(tvm, [given], y, [x])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=f"{rows} x {depth} x {columns}")


@pytest.mark.parametrize("transposed", [(False, True), (False, False), (True, False)])
def test_batched_products_of_every_shape_are_right(tvm: Any, templates: str, transposed: tuple[bool, bool]) -> None:
    relay, rng = tvm.relay, np.random.default_rng(0)
    first, second = transposed
    for batch, rows, depth, columns in BATCHED:
        x = rng.standard_normal((batch, depth, rows) if first else (batch, rows, depth)).astype("float32")
        y = rng.standard_normal((batch, columns, depth) if second else (batch, depth, columns)).astype("float32")
        given = [relay.var(name, shape=value.shape) for name, value in (("x", x), ("y", y))]
        product = relay.nn.batch_matmul(*given, transpose_a=first, transpose_b=second)
        expected = (x.transpose(0, 2, 1) if first else x) @ (y.transpose(0, 2, 1) if second else y) * 0.125
        found = _computed(tvm, given, relay.multiply(product, relay.const(0.125)), [x, y])
        message = f"{batch} x {rows} x {depth} x {columns}"
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=message)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_of_every_shape_are_right(tvm: Any, target: str, case: tuple[Any, ...]) -> None:
    batch, channels, image, outputs, kernel, stride, padding = case
    rng = np.random.default_rng(0)
    x, weight = (
        rng.standard_normal(shape).astype("float32")
        for shape in ((batch, channels, *image), (outputs, channels, *kernel))
    )
    given = tvm.relay.var("x", shape=x.shape)
    named = {"channels": outputs, "kernel_size": kernel, "strides": (stride, stride), "padding": padding}
    y = tvm.relay.nn.relu(tvm.relay.nn.conv2d(given, tvm.relay.const(weight), **named))
    expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(weight), stride=stride, padding=padding).relu()
    np.testing.assert_allclose(_computed(tvm, [given], y, [x], target), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("case", DEPTHWISE, ids=str)
def test_depthwise_convolutions_of_every_shape_are_right(tvm: Any, target: str, case: tuple[Any, ...]) -> None:
    channels, image, size, stride = case
    rng = np.random.default_rng(0)
    x, weight = (
        rng.standard_normal(shape).astype("float32") for shape in ((1, channels, *image), (channels, 1, size, size))
    )
    given, around = tvm.relay.var("x", shape=x.shape), size // 2
    named = {"channels": channels, "groups": channels, "kernel_size": (size, size), "padding": (around, around)}
    y = tvm.relay.nn.conv2d(given, tvm.relay.const(weight), strides=(stride, stride), **named)
    tensors = torch.from_numpy(x), torch.from_numpy(weight)
    expected = torch.conv2d(*tensors, stride=stride, padding=around, groups=channels)
    np.testing.assert_allclose(_computed(tvm, [given], y, [x], target), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", TRANSPOSED, ids=str)
def test_transposed_convolutions_are_right_and_multiply_no_zeros(tvm: Any, case: tuple[Any, ...]) -> None:
    batch, channels, image, outputs, size, strides, padding, output_padding = case
    rng = np.random.default_rng(0)
    x, weight = (
        rng.standard_normal(shape).astype("float32")
        for shape in ((batch, channels, *image), (channels, outputs, size, size))
    )
    given = tvm.relay.var("x", shape=x.shape)
    named = {"strides": strides, "padding": padding, "output_padding": output_padding}
    y = tvm.relay.nn.conv2d_transpose(
        given, tvm.relay.const(weight), channels=outputs, kernel_size=(size, size), **named
    )
    tensors = torch.from_numpy(x), torch.from_numpy(weight)
    expected = torch.conv_transpose2d(*tensors, stride=strides, padding=padding, output_padding=output_padding)
    span = tvm.relay.Span(tvm.relay.SourceName("up.0"), 0, 0, 0, 0)
    y = tvm.relay.expr.CallWithFields(y, None, None, None, None, None, span)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function([given], y)))
    model = ImportedModel("up", "test", module, {}, (InputSpec("x", x.shape),))
    with applied_records.applied(BY_RULE) as asked:
        compiled = compile_model(model, tvm.target.Target(TARGETS[0]))
    assert ruled("transposed convolutions") in asked
    assert "conv2d_transpose" not in {name for o in compiled.occurrences for name in o.operator.op_names}
    assert any("up.0" in o.layers for o in compiled.occurrences if o.operator.anchor != "layout_transform")
    executor = executor_of(compiled.library)
    executor.set_input("x", x)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("columns", "target", "packed"),
    [
        (208, TARGETS[1], (13, 140, 16)),
        (280, TARGETS[1], (35, 140, 8)),
        (300, TARGETS[1], (19, 140, 16)),  # 304 columns, of which four are zeros
        (7, TARGETS[1], (1, 140, 7)),  # too small to be worth a copy
        (208, TARGETS[0], (13, 140, 16)),
        (300, TARGETS[0], (19, 140, 16)),
    ],
)
def test_weights_are_packed_in_whole_vectors(tvm: Any, columns: int, target: str, packed: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(columns)
    x, weight = rng.normal(size=(9, 140)).astype("float32"), rng.normal(size=(columns, 140)).astype("float32")
    given = tvm.relay.var("x", shape=x.shape)
    product = tvm.relay.nn.dense(given, tvm.relay.const(weight))
    span = tvm.relay.Span(tvm.relay.SourceName("head"), 0, 0, 0, 0)
    product = tvm.relay.expr.CallWithFields(product, None, None, None, None, None, span)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function([given], product)))
    model = ImportedModel("head", "test", module, {}, (InputSpec("x", x.shape),))
    with applied_records.applied(BY_RULE) as asked:
        compiled = compile_model(model, tvm.target.Target(target))
    (heavy,) = [o for o in compiled.occurrences if o.operator.anchor == "nn.contrib_dense_pack"]
    assert heavy.operator.params[0].shape == packed and heavy.layers == ("head",)
    assert (ruled("products of odd columns") in asked) == (columns == 300)
    _skip_unless_run_here(target)
    executor = executor_of(compiled.library)
    executor.set_input("x", x)
    executor.run()
    np.testing.assert_allclose(executor.get_output(0).numpy(), x @ weight.T, rtol=1e-4, atol=1e-4)


def test_the_compilers_own_builds_keep_their_blocks(tvm: Any) -> None:
    for by_rule, packed in ((True, (35, 64, 8)), (False, (10, 64, 28))):
        given = tvm.relay.var("x", shape=(9, 64))
        body = tvm.relay.nn.dense(given, tvm.relay.const(np.ones((280, 64), dtype="float32")))
        library = _library(tvm, [given], body, TARGETS[1], by_rule=by_rule)
        assert [array.shape for array in library.get_params().values()] == [packed]


def test_a_build_of_integers_whose_blocks_change_is_another_model(tvm: Any) -> None:
    packed, digests = [], []
    for records in (NO_RECORDS, BY_RULE):
        x = tvm.relay.var("x", shape=(32, 64), dtype="int32")
        weight = tvm.relay.const(np.ones((208, 64), dtype="int32"))
        body = tvm.relay.nn.dense(x, weight, out_dtype="int32")
        model = ImportedModel(
            "integers", "test", tvm.IRModule.from_expr(tvm.relay.Function([x], body)), {}, (InputSpec("x", (32, 64)),)
        )
        with applied_records.applied(records) as asked:
            (heavy,) = [o for o in compile_model(model, tvm.target.Target(TARGETS[1])).occurrences if o.operator.params]
        packed.append(heavy.operator.params[0].shape)
        digests.append(records.digest(asked))
    assert packed == [(8, 64, 26), (13, 64, 16)]
    assert digests[0] == "" != digests[1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("channels", "outputs", "size", "winograd"),
    [
        (64, 64, 56, True),
        (512, 512, 28, True),
        (16, 16, 24, True),
        (64, 64, 2, False),  # fewer direct multiplications than in a tile, whose weights are four times as large
        (3, 64, 56, False),  # channels that fill no vector
    ],
)
def test_winograds_algorithm_is_chosen_where_it_costs_less(
    tvm: Any, target: str, channels: int, outputs: int, size: int, winograd: bool
) -> None:
    given = tvm.relay.var("x", shape=(1, channels, size, size))
    weight = tvm.relay.const(np.ones((outputs, channels, 3, 3), dtype="float32"))
    body = tvm.relay.nn.conv2d(given, weight, channels=outputs, kernel_size=(3, 3), padding=(1, 1))
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function([given], body)))
    model = ImportedModel("one", "test", module, {}, (InputSpec("x", (1, channels, size, size)),))
    with applied_records.applied(BY_RULE):
        occurrences = optimize(model, tvm.target.Target(target))
    assert {o.operator.anchor for o in occurrences if "conv2d" in o.operator.anchor} == {
        "nn.contrib_conv2d_winograd_without_weight_transform" if winograd else "nn.contrib_conv2d_NCHWc"
    }


def test_convolutions_of_any_batch_stay_direct(tvm: Any) -> None:
    given = tvm.relay.var("x", shape=(tvm.relay.Any(), 16, 12, 12))
    weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype("float32")
    body = tvm.relay.nn.conv2d(given, tvm.relay.const(weight), channels=16, kernel_size=(3, 3), padding=(1, 1))
    with applied_records.applied(BY_RULE) as asked, tvm.transform.PassContext(opt_level=3):
        module = tvm.IRModule.from_expr(tvm.relay.Function([given], body))
        machine = tvm.runtime.vm.VirtualMachine(tvm.relay.vm.compile(module, TARGETS[0]), tvm.cpu())
    assert not any(WINOGRAD in one for one in asked)
    x = np.random.default_rng(1).standard_normal((3, 16, 12, 12)).astype("float32")
    expected = torch.conv2d(torch.from_numpy(x), torch.from_numpy(weight), padding=1)
    np.testing.assert_allclose(machine.invoke("main", tvm.nd.array(x)).numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_few_blocks_or_large_weights_pass_through_one_stage_after_the_other(tvm: Any) -> None:
    register_templates()
    by_stage = {}
    for channels, size in ((64, 56), (128, 28), (512, 28), (64, 8)):
        data = ("TENSOR", (1, channels // 8, size, size, 8), "float32")
        weight = ("TENSOR", (6, 6, channels // 8, channels, 8), "float32")
        rest = ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW8c", "NCHW8c", "float32")
        config = processor_defaults.config_of(tvm.target.Target(TARGETS[0]), (WINOGRAD, data, weight, *rest))
        assert config is not None
        by_stage[channels, size] = config["compute_at"].val == BY_STAGE
    assert by_stage == {(64, 56): False, (128, 28): False, (512, 28): True, (64, 8): True}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(channels, 64, 64) for channels in (9, 13, 27, 34, 58, 209)] + [(256, 144, 16)]
)
def test_convolutions_whose_sizes_few_tiles_divide_compile(
    tvm: Any, target: str, channels: int, height: int, width: int
) -> None:
    given = tvm.relay.var("x", shape=(1, channels, height, width))
    weight = tvm.relay.var("weight", shape=(256, channels, 3, 3))
    body = tvm.relay.nn.conv2d(given, weight, channels=256, kernel_size=(3, 3), padding=(1, 1))
    module = tvm.IRModule.from_expr(tvm.relay.Function([given, weight], body))
    weights = {"weight": tvm.nd.array(np.ones((256, channels, 3, 3), dtype="float32"))}
    model = ImportedModel("one", "test", module, weights, (InputSpec("x", (1, channels, height, width)),))
    with applied_records.applied(BY_RULE):
        occurrences = optimize(model, tvm.target.Target(target))
    assert any("conv2d" in one.operator.anchor for one in occurrences)


def test_convolutions_in_groups_keep_the_compilers_own_schedule(tvm: Any) -> None:
    register_templates()
    data, weight = ("TENSOR", (1, 4, 14, 14, 16), "float32"), ("TENSOR", (4, 1, 3, 3, 4, 16), "float32")
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW16c", "NCHW16c", "float32")
    workload = ("conv2d_NCHWc.op_profiler", data, weight, *rest)
    assert processor_defaults.config_of(tvm.target.Target(TARGETS[1]), workload) is None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("rows", "best"), [(197, "dense_pack_padded.op_profiler"), (128, "dense_pack.op_profiler")])
def test_rows_that_no_tile_divides_are_padded(tvm: Any, target: str, rows: int, best: str) -> None:
    register_templates()
    data, weight = ("TENSOR", (rows, 768), "float32"), ("TENSOR", (96, 768, 32), "float32")
    costs = {}
    for name in ("dense_pack.op_profiler", "dense_pack_padded.op_profiler"):
        config = processor_defaults.config_of(tvm.target.Target(target), (name, data, weight, None, "float32"))
        assert config is not None
        costs[name] = config.cost
    assert min(costs, key=lambda name: costs[name]) == best


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "most"), [("exp", 2e-7), ("erf", 6e-7), ("sigmoid", 5e-7)])
def test_functions_are_as_exact_as_their_docstring_says(tvm: Any, target: str, name: str, most: float) -> None:
    from scipy.special import erf

    reference = {"exp": np.exp, "erf": erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x))}[name]
    x = np.linspace(-86, 86, 65_536, dtype="float32").reshape(1, -1)
    found = _of_one(tvm, name, x, target)
    expected = reference(x.astype("float64"))
    assert np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1e-30)) < most


def test_the_ends_of_the_range_stay(tvm: Any) -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 0.0, 110.0, -110.0, 88.0] + [1.0] * 9], dtype="float32")
    np.testing.assert_allclose(_of_one(tvm, "exp", x, TARGETS[1])[0, :7], np.exp(x[0, :7]), rtol=1e-6)
    np.testing.assert_allclose(_of_one(tvm, "erf", x, TARGETS[1])[0, :6], [1, -1, np.nan, 0, 1, -1], rtol=1e-6)


def test_the_compilers_own_schedules_call_the_math_library(tvm: Any) -> None:
    x = tvm.relay.var("x", shape=(1, 64))
    assert "expf" in _library(tvm, [x], tvm.relay.exp(x), TARGETS[1], by_rule=False).get_lib().get_source("asm")
    assert "expf" not in _library(tvm, [x], tvm.relay.exp(x), TARGETS[1]).get_lib().get_source("asm")


def _of_one(tvm: Any, name: str, x: np.ndarray, target: str) -> np.ndarray:
    given = tvm.relay.var("x", shape=x.shape)
    return _computed(tvm, [given], getattr(tvm.relay, name)(given), [x], target)


def _computed(
    tvm: Any, given: Sequence[Any], body: Any, arrays: Sequence[np.ndarray], target: str = "llvm -mcpu=haswell"
) -> np.ndarray:
    _skip_unless_run_here(target)
    executor = executor_of(_library(tvm, given, body, target))
    for variable, array in zip(given, arrays, strict=True):
        executor.set_input(variable.name_hint, array)
    executor.run()
    return np.asarray(executor.get_output(0).numpy())


def _library(tvm: Any, given: Sequence[Any], body: Any, target: str, *, by_rule: bool = True) -> Any:
    module = tvm.IRModule.from_expr(tvm.relay.Function(list(given), body))
    records = BY_RULE if by_rule else NO_RECORDS
    with applied_records.applied(records), tvm.transform.PassContext(opt_level=3):
        return tvm.relay.build(module, tvm.target.Target(target))


def _skip_unless_run_here(target: str) -> None:
    if target == TARGETS[1] and "avx512f" not in processor_features():
        pytest.skip("this processor has no AVX-512")
