"""Convolutions whose number of channels no vector divides, in builds by the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay import applied_records, more_channels
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.usable_records import UsableRecords, ruled
from op_profiler.testing.compiler import NO_RECORDS

from ...executor import executor_of

TARGET = "llvm -mcpu=haswell"
NAME = ruled("convolutions of odd channels")
SHAPE = (1, 16, 12, 12)
_rng = np.random.default_rng(0)


def weights(*shape: int) -> Any:
    return load_tvm().relay.const(_rng.standard_normal(shape).astype("float32"))


def conv(x: Any, outputs: int, inputs: int, size: int = 1, groups: int = 1, layer: str = "", **options: Any) -> Any:
    relay = load_tvm().relay
    weight = weights(outputs, inputs // groups, size, size)
    shape = {"channels": outputs, "kernel_size": (size, size), "padding": (size // 2, size // 2), "groups": groups}
    call = relay.nn.conv2d(x, weight, **shape, **options)
    return relay.expr.CallWithFields(
        call, None, None, None, None, None, relay.Span(relay.SourceName(layer), 0, 0, 0, 0)
    )


def norm(x: Any, channels: int) -> Any:
    variance = load_tvm().relay.abs(weights(channels)) + load_tvm().relay.const(0.5)
    return load_tvm().relay.nn.batch_norm(x, weights(channels), weights(channels), weights(channels), variance)[0]


def inverted_residual(x: Any) -> Any:
    relay = load_tvm().relay
    x = relay.nn.relu(norm(conv(x, 18, 16), 18))
    wide = relay.clip(norm(conv(x, 50, 18), 50), 0, 6)
    return x + norm(conv(relay.clip(norm(conv(wide, 50, 50, 3, 50), 50), 0, 6), 18, 50), 18)


def gate(x: Any) -> Any:
    relay = load_tvm().relay
    x = relay.sigmoid(conv(x, 58, 16, 3))
    return conv(x * relay.sigmoid(conv(relay.nn.global_avg_pool2d(x), 58, 58)), 20, 58)


def branches(x: Any) -> Any:
    relay = load_tvm().relay
    x = conv(x, 22, 16)
    pooled = relay.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1))
    averaged = relay.nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1))
    return relay.concatenate([pooled, averaged, conv(x, 30, 22, strides=(2, 2))], 1)


def biases(x: Any) -> Any:
    x = load_tvm().relay.nn.bias_add(conv(x, 28, 16, 3), weights(28))
    return x * weights(28, 1, 1) + weights(1, 28, 1, 1) + load_tvm().relay.const(1.0)


def shuffled(x: Any) -> Any:
    relay = load_tvm().relay
    left, right = relay.split(conv(x, 58, 16), 2, 1)
    both = relay.concatenate([conv(relay.nn.relu(left), 29, 29), right], 1)
    return relay.reshape(relay.transpose(relay.reshape(both, (1, 2, 29, 12, 12)), (0, 2, 1, 3, 4)), (1, 58, 12, 12))


def along_the_width(x: Any) -> Any:
    x = conv(x, 20, 16)
    return load_tvm().relay.nn.relu(load_tvm().relay.nn.adaptive_avg_pool2d(x, (4, 20)) + weights(20))


def infinities(x: Any) -> Any:
    """The logarithm of an added channel is infinite and must not be multiplied."""
    relay = load_tvm().relay
    return conv(relay.log(relay.nn.relu(conv(x, 20, 16)) + relay.const(0.1)), 24, 20)


def multiplier(x: Any) -> Any:
    x = load_tvm().relay.nn.relu(conv(x, 22, 16))
    return load_tvm().relay.nn.conv2d(x, weights(44, 1, 3, 3), channels=44, kernel_size=(3, 3), groups=22)


NETWORKS = [inverted_residual, gate, branches, biases, shuffled, along_the_width, infinities, multiplier]


@pytest.fixture(autouse=True)
def of_every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(more_channels, "_LEAST_FLOPS", 1)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_networks_of_odd_channels_compute_the_same(tvm: Any, network: Callable[[Any], Any]) -> None:
    model, x = _model(tvm, network), np.random.default_rng(1).standard_normal(SHAPE).astype("float32")
    found = []
    for records in (NO_RECORDS, UsableRecords.only_rule()):
        with applied_records.applied(records) as asked:
            compiled = compile_model(model, tvm.target.Target(TARGET))
        assert NAME in asked  # another model than without the rule, whose name its key contains
        executor = executor_of(compiled.library)
        executor.set_input("x", x)
        executor.run()
        found.append(executor.get_output(0).numpy())
    assert np.isfinite(found[0]).all() and found[0].std() > 0.01
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-4 * np.abs(found[0]).max())


def test_a_chain_is_cut_once_and_keeps_its_layers(tvm: Any) -> None:
    def chain(x: Any) -> Any:
        x = tvm.relay.nn.relu(conv(x, 58, 16, layer="first"))
        x = tvm.relay.nn.relu(conv(x, 58, 58, 3, 58, layer="second"))
        return conv(x, 58, 58, layer="third")

    with applied_records.applied(UsableRecords.only_rule()):
        compiled = compile_model(_model(tvm, chain), tvm.target.Target(TARGET))
    names = [name for o in compiled.occurrences for name in o.operator.op_names]
    assert names.count("strided_slice") == 1
    heavy = [o for o in compiled.occurrences if "conv2d" in o.operator.anchor]
    assert [o.layers for o in heavy] == [("first",), ("second",), ("third",)]
    assert {o.operator.outputs[0].shape for o in heavy} == {(1, 8, 12, 12, 8)}


@pytest.mark.parametrize(("channels", "padded"), [(3, 3), (16, 16), (18, 24), (24, 24), (58, 64), (116, 128)])
def test_added_channels(channels: int, padded: int) -> None:
    assert channels + more_channels._added(channels) == padded


def _model(tvm: Any, network: Callable[[Any], Any]) -> ImportedModel:
    given = tvm.relay.var("x", shape=SHAPE)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(tvm.relay.Function([given], network(given))))
    return ImportedModel(network.__name__, "test", module, {}, (InputSpec("x", SHAPE),))
