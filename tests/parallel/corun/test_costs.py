"""Costs that a predictor gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from op_profiler.errors import UsageError
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import Dense
from op_profiler.parallel.corun.costs import costs_from_predictor, costs_sentence, predicted_costs
from op_profiler.parallel.planning.graph import GraphNode, KernelGraph
from op_profiler.prediction.latency import predictor_files
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.shipped import shipped_processors


@pytest.fixture(scope="module")
def predictor() -> OperatorPredictor:
    path = shipped_processors()[0].predictor
    assert path is not None
    return predictor_files.load(path)


def _dense_layers(dtype: str = "float32") -> KernelGraph:
    """Of which one is called twice."""
    layers = [described(Dense(1, 64 * i, 64, epilogue="bias")) for i in (1, 2, 4, 8, 2)]
    typed = [
        dataclasses.replace(one, outputs=tuple(dataclasses.replace(o, dtype=dtype) for o in one.outputs))
        for one in layers
    ]
    nodes = [GraphNode(i, 0, f"dense_{i}", one, (i - 1,) if i else ()) for i, one in enumerate(typed)]
    return KernelGraph(("dense layers",), tuple(nodes))


def test_costs_from_a_predictor_are_those_of_predict(predictor: OperatorPredictor) -> None:
    """With the loops, and with how often each is called: plans are made with what ``op-profiler predict`` prints."""
    graph, target = _dense_layers(), predictor.device.target
    costs = costs_from_predictor(predictor, graph, (2, 1), target, pytest.fail)
    assert costs.threads == (1, 2) and costs.handover_us == 0.0 and costs.slowdown == 1.0
    network = Network.of("dense layers", [node.operator for node in graph.nodes])
    network = network.with_loops(predictor, (2, 1), target=target)
    assert network.calls.tolist() == [1, 2, 1, 1] and network.query.has_loops.all()
    for count in costs.threads:
        found = predict_network(predictor, network, threads=count)
        assert costs.latency_us[count] == pytest.approx(found.operators.latency_us[[0, 1, 2, 3, 1]])
        assert costs.latency_us[count].sum() == pytest.approx(found.total_us)


def test_the_calibration_of_this_machine_tells_costs(
    predictor: OperatorPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def calibrated(_: object, target: str, note: Callable[[str], None]) -> OperatorPredictor:
        asked.append(target)
        return predictor

    monkeypatch.setattr("op_profiler.parallel.corun.costs.calibrated", calibrated)
    monkeypatch.setattr(
        "op_profiler.parallel.corun.costs.open_predictor",
        lambda name, *, db, compiler, note: dataclasses.replace(predictor, choice=name),
    )
    machine = SimpleNamespace(device=SimpleNamespace(target=predictor.device.target))
    models: Any = SimpleNamespace(graph=_dense_layers(), cores=(0, 1), machine=machine)
    costs, whose = predicted_costs(models, "llvm", None, pytest.fail)
    assert asked == ["llvm"] and costs.threads == (1, 2) and predictor.device.processor in whose
    predicted_costs(models, "llvm", "sqlite:///x.db", pytest.fail)
    assert asked == ["llvm"], "who names a dataset wants that"


def test_a_plan_says_whose_times_it_was_made_with(
    predictor: OperatorPredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, db = predictor.device, "sqlite:///x.db"
    for here, named, other in (("another", None, True), ("another", db, False), (device.processor, None, False)):
        monkeypatch.setattr("op_profiler.targets.llvm.identity.processor_name", lambda here=here: here)
        told = costs_sentence(device, named)
        assert device.processor in told and ("NOT of this machine" in told) == other


def test_operators_without_an_estimate_are_named(predictor: OperatorPredictor) -> None:
    with pytest.raises(UsageError, match="no estimate at 1 thread for 5 operators: dense_0, dense_1"):
        costs_from_predictor(predictor, _dense_layers("a strange dtype"), (1,), predictor.device.target, pytest.fail)
