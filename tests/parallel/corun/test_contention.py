"""What operators side by side compete for, and where ``auto`` tunes them together."""

from __future__ import annotations

import json

import pytest

from op_profiler.errors import OpProfilerError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.kinds.shapes import DenseLayer, operator_of
from op_profiler.operators.operator import Operator
from op_profiler.parallel.corun import candidates
from op_profiler.parallel.corun.contention import CACHE, GAINS, MEMORY, UNITS, SharedParts
from op_profiler.parallel.corun.models import Models
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.parallel.planning.plan import Group, Stage, Step

from ...command_line import ROOT

SHARED = SharedParts(cache_bytes=1 << 24, hyperthreads=True)


def _dense(rows: int, inputs: int, outputs: int) -> Operator:
    return operator_of(DenseLayer(batch=rows, in_features=inputs, out_features=outputs))


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (_dense(1, 1024, 3072), _dense(1, 3072, 1024), MEMORY),
        (_dense(64, 1024, 3072), _dense(64, 3072, 1024), CACHE),
        (_dense(64, 4096, 4096), _dense(64, 1024, 1024), None),  # one of them exceeds the cache alone
        (_dense(64, 512, 113), _dense(64, 512, 509), UNITS),
        (_dense(64, 512, 112), _dense(64, 512, 509), None),
    ],
)
def test_what_a_pair_competes_for(one: Operator, other: Operator, wanted: str | None) -> None:
    assert SHARED.contention([one, other]) == wanted
    alone = SharedParts(cache_bytes=0, hyperthreads=False)
    assert alone.contention([one, other]) is None


def test_only_operators_that_run_side_by_side_compete() -> None:
    operators = [_dense(1, 1024, 3072), _dense(1, 3072, 1024)]
    first, second = (Group((Step(node, 1),), (node,)) for node in range(2))
    assert SHARED.contentions(operators, [Stage((first, second))]) == {MEMORY}
    assert SHARED.contentions(operators, [Stage((first,)), Stage((second,))]) == set()


def test_what_gains_is_what_was_measured() -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "contended_pairs.json").read_text())
    rows = result["tables"]["pairs"]
    slower = {row["contention"] for row in rows if row["over_low"] <= 1}
    assert {row["contention"] for row in rows if row["contention"]} - slower == GAINS


def test_auto_tunes_together_where_that_gains(branching: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned: list[str] = []
    told: list[str] = []

    def no_trials(request: CorunRequest, *_: object) -> list[candidates.PlanCandidate]:
        tuned.append(request.policy)
        raise OpProfilerError("there are too few trials")

    monkeypatch.setattr(candidates, "_tuned", no_trials)
    monkeypatch.setattr(SharedParts, "contentions", lambda *_: {MEMORY})
    request = CorunRequest(models=(ModelRequest(source="local", name="mlp"),), threads=2)
    for gains in (frozenset({CACHE}), frozenset({CACHE, MEMORY})):
        monkeypatch.setattr(candidates, "GAINS", gains)
        assert candidates.candidates_of(request, branching, told.append)
    assert tuned == ["auto"] and told[-1] == "operators are not tuned together: there are too few trials"
