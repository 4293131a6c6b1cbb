"""`Spread`: intervals for families of models whose errors nothing was fitted to."""

from __future__ import annotations

import numpy as np

from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import Dense
from op_profiler.prediction.latency.intervals import WITHOUT_LOOPS, HeldOutErrors, Spread
from op_profiler.prediction.latency.query import Query
from op_profiler.prediction.latency.traffic import NAMES

FAMILIES, OPERATORS, FOLDS = 60, 40, 5


def _query() -> tuple[Query, np.ndarray]:
    """Return operators with known loops, and the family of each; the traffic of a network identifies its family."""
    operators = [described(Dense(1, 8 + n, 8)) for n in range(OPERATORS)] * FAMILIES
    family = np.repeat(np.arange(FAMILIES), OPERATORS)
    loops = np.ones((len(operators), len(NAMES)), dtype=np.float32)
    return Query.of(operators, traffic_bytes=family.astype(float), loops=loops), family


def _columns(query: Query) -> np.ndarray:
    return query.traffic_bytes[:, None].astype(np.float32)


def _errors(family: np.ndarray, blind_factor: float = 1.0) -> HeldOutErrors:
    """Return errors whose size differs between families."""
    random = np.random.default_rng(1)
    size = np.exp(random.normal(np.log(0.1), 0.8, FAMILIES))
    errors = size[family] * random.normal(size=len(family))
    fold = random.permutation(FAMILIES)[family] % FOLDS
    return HeldOutErrors({"regressed": errors, WITHOUT_LOOPS: blind_factor * errors}, fold, np.ones(len(family)))


def test_intervals_hold_for_families_that_the_scale_has_not_seen() -> None:
    """A scale that has seen a family expects its errors: the intervals of other families are too narrow then."""
    query, family = _query()
    errors = _errors(family)
    size, nowhere = np.abs(errors.by_source["regressed"]), np.zeros(len(query), dtype=bool)
    known = family < FAMILIES // 2
    part = HeldOutErrors(
        {name: values[known] for name, values in errors.by_source.items()}, errors.fold[known], errors.weight[known]
    )
    rest = query.take(~known)
    zeros = np.zeros(known.sum())
    spread, _ = Spread.of(query.take(known), _columns, part, zeros, zeros, nowhere[known])
    new = spread.half_width(rest, _columns(rest), "regressed")
    assert 0.8 <= (size[~known] <= new).mean() <= 0.97
    in_all_folds = np.arange(known.sum()) % FOLDS
    leaking = HeldOutErrors(part.by_source, in_all_folds, part.weight)
    leaked, _ = Spread.of(query.take(known), _columns, leaking, zeros, zeros, nowhere[known])
    assert leaked.quantiles["regressed"] < 0.9 * spread.quantiles["regressed"]


def test_half_widths_of_calibration_are_those_of_other_folds() -> None:
    query, family = _query()
    errors = _errors(family)
    zeros = np.zeros(len(query))
    spread, half = Spread.of(query, _columns, errors, zeros, zeros, zeros.astype(bool))
    assert abs((np.abs(errors.by_source["regressed"]) <= half).mean() - 0.9) < 0.01
    assert not np.allclose(half, spread.half_width(query, _columns(query), "regressed"))


def test_regressions_without_loops_have_a_quantile_of_their_own() -> None:
    query, family = _query()
    zeros = np.zeros(len(query))
    spread, _ = Spread.of(query, _columns, _errors(family, 3.0), zeros, zeros, zeros.astype(bool))
    blind = query.without_loops()
    ratio = spread.half_width(blind, _columns(blind), "regressed") / spread.half_width(
        query, _columns(query), "regressed"
    )
    np.testing.assert_allclose(ratio, 3.0, rtol=1e-6)


def test_too_few_errors_give_the_width_around_the_bound() -> None:
    query, family = _query()
    few = query.take(np.arange(len(query)) < 10)
    errors = HeldOutErrors({"regressed": np.full(10, 0.1)}, np.arange(10) % FOLDS, np.ones(10))
    spread, half = Spread.of(few, _columns, errors, np.linspace(-1, 1, 10), np.zeros(10), np.zeros(10, dtype=bool))
    assert spread.scale is None and np.isnan(half).all()
    np.testing.assert_allclose(spread.half_width(few, _columns(few), "regressed"), 1.0)


def test_widened_intervals_are_wider_for_every_source() -> None:
    query, family = _query()
    zeros = np.zeros(len(query))
    spread, _ = Spread.of(query, _columns, _errors(family), zeros, zeros, zeros.astype(bool))
    for asked in (query, query.without_loops()):
        usual, wide = (one.half_width(asked, _columns(asked), "regressed") for one in (spread, spread.widened(1.5)))
        np.testing.assert_allclose(wide, 1.5 * usual)
