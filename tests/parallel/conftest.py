"""A network with branches, built once for all tests of plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from op_profiler.measure.load import CoreMeter
from op_profiler.parallel.corun.models import Models, kernel_graph


@pytest.fixture(scope="session")
def branching_network(tvm: Any) -> Any:
    """A convolution, four branches of different weight that are concatenated, and a dense layer."""
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec

    relay = tvm.relay
    data = relay.var("data", shape=(1, 16, 28, 28))
    shapes: dict[str, tuple[int, ...]] = {
        "w0": (32, 16, 3, 3),
        "w1": (32, 32, 1, 1),
        "w2": (32, 32, 3, 3),
        "w3": (16, 32, 1, 1),
        "w4": (16, 32, 1, 1),
        "w5": (10, 96),
    }
    weights = {name: relay.var(name, shape=shape) for name, shape in shapes.items()}

    def conv(x: Any, name: str) -> Any:
        out, _, size, _ = shapes[name]
        padding = (size // 2, size // 2)
        return relay.nn.relu(relay.nn.conv2d(x, weights[name], padding=padding, channels=out, kernel_size=(size, size)))

    x = conv(data, "w0")
    pooled = conv(relay.nn.max_pool2d(x, pool_size=(3, 3), padding=(1, 1)), "w3")
    joined = relay.concatenate([conv(x, "w1"), conv(x, "w2"), conv(x, "w4"), pooled], axis=1)
    flat = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(joined))
    out = relay.nn.softmax(relay.nn.dense(flat, weights["w5"]))
    module = tvm.IRModule.from_expr(relay.Function([data, *weights.values()], out))
    rng = np.random.default_rng(0)
    params = {name: tvm.nd.array(rng.standard_normal(shape).astype("float32")) for name, shape in shapes.items()}
    module = relay.transform.InferType()(module)
    return ImportedModel("branching", "test", module, params, (InputSpec("data", (1, 16, 28, 28)),))


@pytest.fixture(scope="session")
def branching_compiled(branching_network: Any, target: Any) -> Any:
    from op_profiler.compilers.relay.lower import compile_model

    return compile_model(branching_network, target)


@pytest.fixture(scope="session")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Any], Any]:
    """A compiled network whose kernels run on lanes; each is linked once."""
    from op_profiler.parallel.runtime.lane_executor import on_lanes

    linked: dict[int, tuple[Any, Any]] = {}

    def linked_once(compiled: Any) -> Any:
        if id(compiled) not in linked:
            linked[id(compiled)] = compiled, on_lanes(compiled, tmp_path_factory.mktemp("lanes"))
        return linked[id(compiled)][1]

    return linked_once


@pytest.fixture
def load(target: Any, lanes: Callable[[Any], Any]) -> Iterator[Callable[[Any, Any], Models]]:
    """Loads a network that was compiled, as `load_models` would."""
    from op_profiler.building.requested_inputs import random_inputs
    from op_profiler.compilers.relay.graph_executor import load_graph
    from op_profiler.cores import available_cores
    from op_profiler.targets.open_machine import open_machine

    machine = open_machine("llvm", target, None)

    def loaded(network: Any, compiled: Any) -> Models:
        inputs = random_inputs(list(network.inputs))
        on_lanes = lanes(compiled)
        return Models(
            graph=kernel_graph([network.name], [on_lanes]),
            compiled=(on_lanes,),
            loaded=(load_graph(compiled, machine.runtime, inputs),),
            inputs=(inputs,),
            batch_sizes=(1,),
            contents=(network.name,),
            asked=(frozenset(),),
            merged=(),
            machine=machine,
            cores=tuple(available_cores()[:2]),
        )

    yield loaded
    machine.close()


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> set[tuple[int, ...]]:
    """The sets of cores that meters look for the load of others on."""
    from op_profiler.targets.llvm.host import Host

    found: set[tuple[int, ...]] = set()
    meter = Host.meter

    def noted(host: Host, threads: int | None = None) -> CoreMeter:
        found.add(host.threads.core_set(threads))
        return meter(host, threads)

    monkeypatch.setattr(Host, "meter", noted)
    return found


@pytest.fixture
def branching(branching_network: Any, branching_compiled: Any, load: Callable[[Any, Any], Models]) -> Models:
    """The network on this machine."""
    return load(branching_network, branching_compiled)
