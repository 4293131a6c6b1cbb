"""An operator by the rule is another one for predictors than the same operator with the compiler's own schedule."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import Dense
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency import loops
from op_profiler.prediction.latency.coverage import Coverage
from op_profiler.prediction.latency.interpolation import families_of
from op_profiler.prediction.latency.lowered_models import lowered_model
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.open_predictor import open_predictor
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.scheduled import OperatorByRule, by_rule

from ...command_line import op_profiler

TARGET = "llvm -mcpu=skylake-avx512"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_CACHE", str(tmp_path / "cache"))


def test_it_has_another_key_and_the_same_workload() -> None:
    operator = described(Dense(197, 64, 64))
    other = by_rule(operator)
    assert other.workload == operator.workload == operator.key != other.key
    assert other == by_rule(operator) != operator
    assert dataclasses.asdict(other) == dataclasses.asdict(operator)
    assert isinstance(dataclasses.replace(other, name="another"), OperatorByRule)


def test_its_loops_are_those_of_the_rule() -> None:
    operator = described(Dense(197, 64, 64))  # 197 is a prime: no tile of the compiler divides it
    own, ruled = loops.loops_of([operator, by_rule(operator)], TARGET)
    assert np.isfinite(own).all() and np.isfinite(ruled).all()
    assert (own != ruled).any()
    np.testing.assert_array_equal(loops.loops_of([by_rule(operator)], TARGET), [ruled])


def test_neither_is_interpolated_from_the_other_and_a_device_without_the_rule_is_unsure() -> None:
    operators = [described(Dense(rows, 64, 64)) for rows in range(1, 40)]
    both = Query.of([*operators, *map(by_rule, operators)])
    assert len(np.unique(families_of(both))) == 2
    own, ruled = Query.of(operators), Query.of([by_rule(operator) for operator in operators])
    assert not Coverage.of(own, [ruled]).outside(own).any()
    assert Coverage.of(own, [ruled]).outside(ruled).all()
    assert not Coverage.of(ruled).outside(ruled).any()


def test_a_model_is_lowered_for_the_rule_and_kept() -> None:
    def lowered(schedules: str) -> list[bool]:
        request = BuildRequest(model=ModelRequest(source="local", name="mlp"), schedules=schedules)
        return [isinstance(operator, OperatorByRule) for operator in lowered_model(request).operators]

    own, first = lowered("none"), lowered("rule")
    assert not any(own) and any(first)
    assert lowered("rule") == first


def test_what_was_measured_by_the_rule_is_looked_up_for_the_rule_only(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 'd.db'}"
    quick = ("--threads", "1", "--db", db, "--quiet")
    samples = ("sample", "--kinds", "dense,elementwise", "--count", "16", "--rounds", "3")
    for command in (samples, ("collect", "mlp", "--schedules", "rule"), ("collect", "mlp", "--schedules", "none")):
        done = op_profiler(*command, *quick)
        assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "d.db")) as connection, connection:  # other tests run beside it
        connection.execute("UPDATE measurements SET foreign_load = 0, disturbed_by = NULL")

    def predicted(*options: str) -> dict[str, Any]:
        done = op_profiler("predict", "mlp", "--db", db, "--format", "json", *options)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    own, ruled = predicted(), predicted("--schedules", "rule")
    assert own["tiers"] == ruled["tiers"] == {"measured": 1.0}
    assert own["total_us"] != ruled["total_us"]
    assert [one["operator_key"] for one in own["operators"]] == [one["operator_key"] for one in ruled["operators"]]


def test_operators_of_a_device_without_the_rule_may_all_be_wrong_alike() -> None:
    operators = [described(Dense(64, width, 256)) for width in (64, 128, 256, 512)]
    predictor = open_predictor(device="model 207")

    def half_widths(of: list[Operator]) -> tuple[float, np.ndarray]:
        found = predict_network(predictor, Network.of("x", of))
        return found.high_us / found.total_us, found.operators.high_us / found.operators.latency_us

    (own, of_own), (ruled, of_ruled) = half_widths(operators), half_widths([by_rule(one) for one in operators])
    assert own < np.median(of_own) and ruled > of_ruled.min()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--compiler", "relax", "--db", "d.db"), "--schedules rule is for --compiler relay"),
        (("--device", "h200", "--kernels", "vendor"), "leave out --schedules"),
        (("--schedules", "auto"), "unknown value of --schedules 'auto'"),
        (("--device", "h100"), "--schedules rule is for --compiler relay and --target llvm"),
    ],
)
def test_where_no_rule_is_it_is_refused(options: tuple[str, ...], problem: str) -> None:
    done = op_profiler("predict", "mlp", "--schedules", "rule", *options)
    assert done.returncode == 2 and problem in done.stderr, done.stderr
