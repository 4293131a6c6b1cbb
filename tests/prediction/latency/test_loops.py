"""What loops do is asked for once, and predictors use it where it is known."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import Dense
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency import loops, predictor_files
from op_profiler.prediction.latency.base import Base
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.fit import fit
from op_profiler.prediction.latency.network import Network
from op_profiler.prediction.latency.operator_predictor import OperatorPrediction, query_of
from op_profiler.prediction.latency.traffic import MOVED, NAMES, TERMS
from op_profiler.shipped import ShippedProcessor, shipped_processors

TARGET = "llvm -mcpu=skylake-avx512"


def test_the_compiler_is_asked_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path))
    operator = described(Dense(2, 32, 48, "bias"))
    unknown = dataclasses.replace(operator, structure="nn.unheard_of(i0)")
    first = loops.loops_of([operator, unknown], TARGET)
    assert np.isfinite(first[0]).all() and np.isnan(first[1]).all()

    def again(operator: Operator, target: str) -> np.ndarray:
        raise AssertionError(f"{operator.name} was asked for again")

    monkeypatch.setattr(loops, "_read_by_compiler", again)
    np.testing.assert_array_equal(loops.loops_of([unknown, operator], TARGET), first[::-1])
    with pytest.raises(AssertionError):
        loops.loops_of([operator], "llvm -mcpu=haswell")


@pytest.mark.parametrize("ships", shipped_processors(), ids=lambda ships: ships.folder.name)
def test_what_ships_needs_no_compiler(ships: ShippedProcessor, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ships.loops
    assert path is not None

    def asked(operators: list[Operator], *_: object) -> np.ndarray:
        raise AssertionError("asked")

    monkeypatch.setattr(loops, "_cached_or_read", asked)
    with np.load(path, allow_pickle=False) as file:
        target, keys = str(file["target"]), file["keys"].tolist()
        assert file["names"].tolist() == list(NAMES)

        at = np.flatnonzero(np.isfinite(file["loops"]).all(axis=1))[-1]
        shipped = file["loops"][at]

    class Known:
        key = keys[at]

    np.testing.assert_array_equal(loops.loops_of([Known()], target), [shipped])  # type: ignore[list-item]


@pytest.fixture(scope="module")
def looped(known: Examples) -> Examples:
    """Every second operator's loops are known; what they do decides its time by a factor that nothing else shows.

    As far as the model of kernels reads them they do what the operator has to.
    """
    rng = np.random.default_rng(0)
    table = rng.uniform(5, 15, (len(known.operators), len(NAMES))).astype(np.float32)
    table[:, : 2 * (len(TERMS) + len(MOVED))] = 0.0
    table[:, [n for n, name in enumerate(NAMES) if name.startswith(("main_past", "evicted"))]] = 0.0
    table[:, NAMES.index("parallel_arithmetic")] = np.log2([operator.flops / 32 + 1 for operator in known.operators])
    table[:, NAMES.index("parallel_stages")] = 1.0
    slow = rng.integers(0, 2, len(known.operators))
    table[:, NAMES.index("main_aliasing")] = 12.0 * slow
    table[1::2] = np.nan
    hidden = np.where(np.isfinite(table[:, 0]), np.where(slow, 2.0, 0.5), 1.0)[known.operator]
    return dataclasses.replace(known, loops=table, latency_us=known.latency_us * hidden)


def test_known_loops_tell_what_nothing_else_does(looped: Examples, tmp_path: Path) -> None:
    told = np.isfinite(looped.loops[:, 0])[looped.operator]  # type: ignore[index]
    held = (looped.operator % 5 == 0) & told
    predictor = fit(looped.where(~np.isin(looped.operator, looped.operator[held])), choice="xgboost", folds=2)
    asked, truth = query_of(looped.where(held)), looped.latency_us[held]

    def off(query: object) -> float:
        return float(np.abs(np.log(predictor.predict(query).latency_us / truth)).mean())  # type: ignore[arg-type]

    assert off(asked) < 0.7 * off(asked.without_loops())
    for query in (asked, asked.without_loops()):
        found = predictor.predict(query)
        assert ((found.low_us <= truth) & (truth <= found.high_us)).mean() >= 0.75
    assert _width(predictor.predict(asked.without_loops())) > 1.2 * _width(predictor.predict(asked))
    path = tmp_path / "p.zip"
    predictor_files.save(predictor, path)
    again = predictor_files.load(path)
    np.testing.assert_array_equal(again.predict(asked).latency_us, predictor.predict(asked).latency_us)


def _width(found: OperatorPrediction) -> float:
    return float(np.median(np.log(found.high_us / found.low_us)))


def test_a_network_is_told_of_the_loops_that_are_not_looked_up(looped: Examples) -> None:
    predictor = fit(looped, folds=2)
    in_a_network = next(looped.operators[at] for at, m in zip(looped.operator, looped.model) if not looped.sampled[m])
    network = Network.of("n", [in_a_network, described(Dense(2, 32, 48, "bias"))])
    assert np.isnan(network.query.loops).all()
    told = network.with_loops(predictor, [1, 2], target=TARGET)
    assert np.isfinite(told.query.loops).all(axis=1).tolist() == [False, True]
    assert network.with_loops(dataclasses.replace(predictor, base=Base(predictor.roofline, None)), [1]) is network
