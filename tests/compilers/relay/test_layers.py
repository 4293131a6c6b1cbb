"""The layers of the user's model reach the kernels, and decide nothing about them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay.compiled_files import read_compiled, write_compiled
from op_profiler.compilers.relay.lower import compile_model, optimize
from op_profiler.compilers.relay.merge_parallel import merged
from op_profiler.compilers.relay_rewriting import with_locations
from op_profiler.compilers.successors import CallGraph, successors


@pytest.fixture(scope="module")
def plain(tvm: Any) -> ImportedModel:
    """Two residual blocks of one shape, a layer that is taken apart, and two heads that read the same."""
    relay = tvm.relay
    x = relay.var("x", shape=(1, 16, 8, 8))
    shapes: dict[str, tuple[int, ...]] = {}

    def weight(name: str, *shape: int) -> Any:
        shapes[name] = shape
        return relay.var(name, shape=shape)

    for block in ("one", "two"):
        made = relay.nn.conv2d(x, weight(f"{block}.conv.w", 16, 16, 3, 3), padding=(1, 1), channels=16, kernel_size=3)
        norm = [weight(f"{block}.norm.{part}", 16) for part in ("gamma", "beta", "mean", "var")]
        x = relay.nn.relu(relay.add(relay.nn.batch_norm(made, *norm)[0], x))
    flat = relay.nn.batch_flatten(x)
    flat = relay.nn.layer_norm(flat, weight("scale.g", 1024), weight("scale.b", 1024))
    heads = [relay.nn.dense(flat, weight(f"{name}.w", 10, 1024)) for name in ("left", "right")]
    body = relay.nn.softmax(relay.nn.dropout(relay.add(*heads)))
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    rng = np.random.default_rng(0)
    params = {n: tvm.nd.array(rng.uniform(0.5, 1.5, shape).astype("float32")) for n, shape in shapes.items()}
    module = relay.transform.InferType()(module)
    return ImportedModel("net", "test", module, params, (InputSpec("x", (1, 16, 8, 8)),))


@pytest.fixture(scope="module")
def named(plain: ImportedModel, tvm: Any) -> ImportedModel:
    """The same, whose calls name their layers."""
    block = ""

    def layer_of(call: Any) -> str:
        nonlocal block
        read = [str(argument.name_hint) for argument in call.args if isinstance(argument, tvm.relay.Var)]
        weights = [name.rpartition(".")[0] for name in read if "." in name]
        if weights:
            block = weights[0].partition(".")[0]
            return weights[0]
        kinds = {"nn.softmax": "softmax", "nn.dropout": "dropout", "nn.batch_flatten": "flatten"}
        return kinds.get(call.op.name, "sum" if block == "right" else block)

    return ImportedModel("net", "test", with_locations(plain.mod, layer_of), plain.params, plain.inputs)


@pytest.fixture(scope="module")
def built(named: ImportedModel, target: Any) -> CompiledModel:
    return compile_model(named, target)


def test_every_kernel_has_the_layers_that_went_into_it(built: CompiledModel) -> None:
    layers = {o.operator.anchor: o.layers for o in built.occurrences}
    convolutions = [o.layers for o in built.occurrences if o.operator.anchor == "nn.contrib_conv2d_NCHWc"]
    assert convolutions == [("one.conv", "one.norm", "one"), ("two.conv", "two.norm", "two")]
    assert layers["nn.softmax"] == ("softmax",)
    heads = [o.layers[0] for o in built.occurrences if "dense" in o.operator.anchor]
    assert sorted(heads) == ["left", "right"]
    (variance,) = (o.layers for o in built.occurrences if o.operator.op_names == ("variance",))
    assert variance == ("scale",)
    assert all(o.layers for o in built.occurrences)
    assert not any("dropout" in o.layers for o in built.occurrences)


def test_what_the_compiler_puts_in_belongs_to_the_layer_that_reads_it(built: CompiledModel) -> None:
    first = built.occurrences[0]
    assert first.operator.op_names == ("layout_transform",) and "one.conv" in first.layers


def test_lowering_tells_the_same_layers(named: ImportedModel, target: Any, built: CompiledModel) -> None:
    assert [o.layers for o in optimize(named, target)] == [o.layers for o in built.occurrences]


def test_who_does_not_ask_for_them_gets_the_same_operators_without(
    named: ImportedModel, target: Any, built: CompiledModel
) -> None:
    found = optimize(named, target, layers=False)
    assert [o.operator.key for o in found] == [o.operator.key for o in built.occurrences]
    assert not any(o.layers for o in found)


def test_layers_change_neither_kernels_nor_keys(plain: ImportedModel, target: Any, built: CompiledModel) -> None:
    without = compile_model(plain, target)
    assert not any(o.layers for o in without.occurrences)
    for field in ("operator", "label", "constant", "anchor_signature"):
        assert [getattr(o, field) for o in without.occurrences] == [getattr(o, field) for o in built.occurrences]
    assert without.library.get_graph_json() == built.library.get_graph_json()
    assert _code(without) == _code(built)


def _code(compiled: CompiledModel) -> str:
    """LLVM's text of all kernels, without the addresses in memory that TVM names buffers after."""
    return re.sub("0x[0-9a-f]+", "", compiled.library.get_lib().get_source("ll"))


def test_each_call_of_a_kernel_has_its_own(built: CompiledModel) -> None:
    labels = [o.label for o in built.occurrences]
    assert len(set(labels)) < len(labels)
    assert built.layers_of(labels) == [o.layers for o in built.occurrences]
    assert built.layers_of([*labels, labels[0]])[0] == ()  # one call more than the compiler knows: which is which?


def test_merged_operators_have_the_layers_of_all(named: ImportedModel, target: Any) -> None:
    model, kinds = merged(named)
    assert kinds == ("dense",)
    (dense,) = (o for o in optimize(model, target) if "dense" in o.operator.anchor)
    assert {"left", "right"} <= set(dense.layers)


def test_a_kept_build_keeps_them(built: CompiledModel, tmp_path: Path) -> None:
    write_compiled(tmp_path, built)
    again = read_compiled(tmp_path)
    assert [o.layers for o in again.occurrences] == [o.layers for o in built.occurrences]


def _chain(*ops: tuple[str, int | None]) -> CallGraph:
    reads: list[frozenset[int | str]] = [frozenset({place - 1} if place else {"x"}) for place in range(len(ops))]
    calls: list[Any] = [*ops]
    return CallGraph(calls, [op for op, _ in ops], [number for _, number in ops], reads, frozenset({len(ops) - 1}))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ([("a", 0), ("b", 1)], [("a", None), ("b", None)], {0: ("l0",), 1: ("l1",)}),  # the same graph
        ([("a", 0), ("b", 1), ("c", 2)], [("a", 0), ("d", None), ("c", 2)], {1: ("l1",)}),  # another op
        ([("a", 0), ("b", 1), ("c", 2)], [("a", 0), ("d", None), ("e", None), ("c", 2)], {1: ("l1",), 2: ("l1",)}),
        ([("a", 0), ("b", 1), ("c", 2)], [("b", None), ("c", 2)], {0: ("l1", "l0")}),  # one went into the other
        ([("a", 0), ("c", 2)], [("a", 0), ("t", None), ("c", 2)], {1: ("l2",)}),  # put in
        ([("a", 0), ("c", 2)], [("a", 0), ("c", 2), ("t", None)], {2: ("l2",)}),  # put in at the end
        ([("a", 0), ("nn.dropout", 1), ("c", 2)], [("a", None), ("c", 2)], {0: ("l0",)}),  # computes nothing
    ],
)
def test_what_took_the_place_of_what(old: Any, new: Any, expected: dict[int, tuple[str, ...]]) -> None:
    names = [(f"l{number}",) for _, number in old]
    assert successors(_chain(*old), _chain(*new), names) == expected
