"""Costs that a predictor gives."""

from __future__ import annotations

import dataclasses

import pytest

from op_profiler.dataset.formats.shapes import Dense, operator_of
from op_profiler.errors import UsageError
from op_profiler.parallel.corun.costs import costs_from_predictor, whose_costs
from op_profiler.parallel.planning.graph import KernelGraph, Node
from op_profiler.predict.latency import predictor_files
from op_profiler.predict.latency.predictor import Predictor
from op_profiler.shipped import shipped_processors


@pytest.fixture(scope="module")
def predictor() -> Predictor:
    path = shipped_processors()[0].predictor
    assert path is not None
    return predictor_files.load(path)


def _dense_layers(dtype: str = "float32") -> KernelGraph:
    layers = [operator_of(Dense(batch=1, in_features=64 * i, out_features=64, bias=True)) for i in (1, 2, 4, 8)]
    typed = [
        dataclasses.replace(one, outputs=tuple(dataclasses.replace(o, dtype=dtype) for o in one.outputs))
        for one in layers
    ]
    nodes = [Node(i, 0, f"dense_{i}", one, (i - 1,) if i else ()) for i, one in enumerate(typed)]
    return KernelGraph(("four dense layers",), tuple(nodes))


def test_costs_from_a_predictor_are_its_latencies(predictor: Predictor) -> None:
    graph = _dense_layers()
    costs = costs_from_predictor(predictor, graph, (2, 1))
    operators = [node.operator for node in graph.nodes]
    moved = sum(o.bytes_read + o.bytes_written for o in operators)
    assert costs.threads == (1, 2) and costs.handover_us == 0.0 and costs.slowdown == 1.0
    for count in costs.threads:
        expected = predictor.predict(operators, threads=count, traffic_bytes=moved).latency_us
        assert costs.latency_us[count] == pytest.approx(expected)


def test_a_plan_says_whose_times_it_was_made_with(predictor: Predictor, monkeypatch: pytest.MonkeyPatch) -> None:
    device, db = predictor.device, "sqlite:///x.db"
    for here, named, other in (("another", None, True), ("another", db, False), (device.processor, None, False)):
        monkeypatch.setattr("op_profiler.targets.llvm.identity.processor_name", lambda here=here: here)
        told = whose_costs(device, named)
        assert device.processor in told and ("NOT of this machine" in told) == other


def test_operators_without_an_estimate_are_named(predictor: Predictor) -> None:
    with pytest.raises(UsageError, match="no estimate at 1 threads for 4 operators: dense_0, dense_1"):
        costs_from_predictor(predictor, _dense_layers("a strange dtype"), (1,))
