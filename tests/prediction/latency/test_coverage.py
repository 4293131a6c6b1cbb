"""What a predictor counts as learned: by op, attribute and dtype, with a least number of operators, and by size."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from op_profiler.operators.kinds.shapes import Conv, DenseLayer, operator_of
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.coverage import Coverage
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.fit import fit
from op_profiler.prediction.latency.kernel_model import COSTS, NO_COST
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor, query_of
from op_profiler.prediction.latency.query import Query


def _dense(rows: int, op: str = "nn.dense", **attrs: Any) -> Operator:
    known = operator_of(DenseLayer(batch=rows, in_features=500, out_features=500))
    return dataclasses.replace(known, op_names=(op,), anchor=op, structure=f"{op}(i0,p1)", attrs=(attrs,))


def _conv(width: int) -> Operator:
    sizes: dict[str, Any] = {"batch": 1, "in_channels": 8, "out_channels": 8, "kernel": (3, 3), "stride": (1, 1)}
    return operator_of(Conv(**sizes, height=width, width=width, padding=(1, 1, 1, 1)))


def _with_rows(known: Examples, operators: list[Operator]) -> Examples:
    """The first operators of examples are these in place of what they were."""
    return dataclasses.replace(known, operators=[*operators, *known.operators[len(operators) :]])


def test_one_operator_makes_no_op_known(known: Examples) -> None:
    """A heavy op with fewer than one in a hundred is bounded; another op is estimated with a wider interval."""
    for op, tiers in (("nn.conv1d", ["bound", "regressed"]), ("cumsum", ["regressed", "regressed"])):
        for rows, tier in zip((1, 4), tiers):
            told = fit(_with_rows(known, [_dense(n + 2, op) for n in range(rows)]), folds=2)
            assert told.coverage.least == 4 and told.coverage.own[op] == rows
            found = told.predict([_dense(3, op, a_number=0.5)], traffic_bytes=1e6)
            assert found.tiers() == [tier]
            assert found.outside.tolist() == [rows < 4 and tier == "regressed"]


def test_attributes_that_were_never_measured_are_outside(
    predictor: OperatorPredictor, strangers: list[Operator]
) -> None:
    usual = next(one for one in strangers if one.anchor == "nn.conv2d" and one.outputs[0].shape[1:] < (200, 30))
    attrs = usual.attrs[0]
    dilated = dataclasses.replace(usual, attrs=({**attrs, "dilation": [4, 4]}, *usual.attrs[1:]))
    found = predictor.predict([usual, dilated], traffic_bytes=1e6)
    assert found.outside.tolist() == [False, True]
    width = np.log(found.high_us / found.low_us)
    assert width[1] == pytest.approx(2 * width[0], rel=0.2)


def test_attributes_in_words() -> None:
    attrs = {"method": "cubic", "layout": "NCHW16c", "size": [448, 30], "alpha": 0.5, "axes": [], "flag": True}
    (form,) = Query.of([_dense(2, "image.resize2d", **attrs)]).forms
    assert form == ("image.resize2d", *(f"image.resize2d {word}" for word in
                    ("method cubic", "layout NCHWc", "size 9", "flag 1")))  # fmt: skip


def test_sizes_are_those_of_the_same_anchor() -> None:
    """A convolution may be as large as those that were measured, and a dense layer not as large as convolutions."""
    measured = [*(_dense(rows) for rows in range(1, 65)), *(_conv(width) for width in range(8, 129))]
    coverage = Coverage.of(Query.of(measured))
    assert set(coverage.sizes) == {"nn.dense", "nn.conv2d"}
    assert coverage.outside(Query.of([_dense(33), _dense(2048), _conv(77), _conv(512)])).tolist() == [
        False, True, False, True]  # fmt: skip


def test_what_others_teach_is_learned_but_rare(known: Examples) -> None:
    own = query_of(known)
    other = Query.of([_dense(rows, "nn.conv1d") for rows in range(1, 9)])
    coverage = Coverage.of(own, [other])
    asked = Query.of([_dense(4, "nn.conv1d")])
    assert coverage.learned(asked).all() and coverage.outside(asked).all()
    assert not Coverage.of(own).learned(asked).any()
    assert Coverage.of(own).outside(asked).all(), "nothing is known of its sizes either"


def test_ops_beside_the_anchor_need_no_more_than_one_operator() -> None:
    def beside(op: str, rows: int) -> Operator:
        return dataclasses.replace(_dense(rows), op_names=("nn.dense", op), attrs=({}, {}))

    measured = [beside("nn.relu", rows) for rows in range(1, 1200)]
    coverage = Coverage.of(Query.of([*measured, beside("tanh", 7)]))
    assert coverage.least == 10
    asked = Query.of([beside(op, 5) for op in ("nn.relu", "tanh", "erf")])
    assert coverage.outside(asked).tolist() == [False, False, True] and coverage.learned(asked).all()


def test_loops_tell_what_light_ops_compute() -> None:
    coverage = Coverage.of(Query.of([_dense(rows) for rows in range(1, 20)]))
    new = Query.of([_dense(2, "image.resize2d"), _dense(2, "nn.conv1d")])
    assert coverage.learned(new).tolist() == [False, False]
    looped = dataclasses.replace(new, loops=np.zeros_like(new.loops))
    assert coverage.learned(looped).tolist() == [True, False] and coverage.outside(looped).all()


def test_a_mode_that_was_never_measured_is_unknown_without_loops() -> None:
    measured = [_dense(rows, "image.resize2d", method="linear") for rows in range(1, 20)]
    coverage = Coverage.of(Query.of(measured))
    asked = Query.of([_dense(2, "image.resize2d", method=method) for method in ("linear", "cubic")])
    assert coverage.learned(asked).tolist() == [True, False]
    looped = dataclasses.replace(asked, loops=np.zeros_like(asked.loops))
    assert coverage.learned(looped).all() and coverage.outside(looped).tolist() == [False, True]


def test_squares_tell_nothing_of_cubes() -> None:
    def power(exponent: float, rows: int) -> Operator:
        return dataclasses.replace(_dense(rows, "power"), structure=f"power(i0,const:float32[]={exponent})")

    coverage = Coverage.of(Query.of([power(2.0, rows) for rows in range(1, 20)]))
    asked = Query.of([power(exponent, 3) for exponent in (2.0, 0.5, 3.0, -1.5)])
    assert coverage.learned(asked).tolist() == [True, True, False, False]
    assert coverage.outside(asked).tolist() == [False, False, True, True]


def test_kernels_that_spend_their_time_on_what_few_do_are_outside() -> None:
    query = Query.of([_dense(rows) for rows in range(1, 200)])
    arithmetic, functions, gathered = (COSTS.index(name) for name in ("arithmetic", "functions", "gathered"))
    costs = np.array([arithmetic] * 190 + [functions] + [NO_COST] * 8)
    coverage = Coverage.of(query, main_costs=costs)
    assert coverage.mainly == {"arithmetic": 190, "functions": 1} and coverage.least == 1
    asked = np.array([arithmetic, functions, gathered, NO_COST])
    assert coverage.is_new_work(asked).tolist() == [False, False, True, False]
    assert not Coverage.of(query).is_new_work(asked).any(), "nothing is known of what kernels do"


def test_operators_that_were_taken_out_are_not_counted() -> None:
    query = Query.of([_dense(2), _dense(3, "nn.conv1d")])
    left = Coverage.of(query.take(np.array([0])))
    assert "nn.dense" in left.own and "nn.conv1d" not in left.own
    assert set(left.sizes) == {"nn.dense"}


def test_queries_keep_their_forms_when_they_are_joined() -> None:
    first, second = (Query.of([_dense(2, strides=[n]), _dense(3, strides=[5])]) for n in (1, 2))
    both = Query.joined([first, second])
    assert [both.forms[at] for at in both.form] == [q.forms[at] for q in (first, second) for at in q.form]
    assert len(both.forms) == 3
