"""What is left out where a network is held out."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import DatasetError
from op_profiler.prediction.latency import fit as fitting
from op_profiler.prediction.latency import held_out, held_out_errors
from op_profiler.prediction.latency.base import Base
from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.families import families_in
from op_profiler.prediction.latency.held_out import (
    family_groups,
    fitted_without,
    held_out_networks,
    looking_up,
)
from op_profiler.prediction.latency.operator_predictor import MEASURED, OperatorPredictor, query_of


@pytest.fixture
def two_families(known: Examples) -> Examples:
    """Networks of vit, and those of another family."""
    names = list(known.models)
    networks = np.flatnonzero(~known.sampled)
    names[networks[0]], names[networks[1]], names[0] = "vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99"
    for at in networks[2:]:
        names[at] = "another-34"
    return dataclasses.replace(known, models=names)


def test_a_network_is_held_out_with_its_family(two_families: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[set[str]] = []
    fit = fitting.fit

    def noted(some: Examples, **options: object) -> OperatorPredictor:
        learned.append({some.models[model] for model in np.unique(some.model)})
        return fit(some, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(held_out, "fit", noted)
    found = [one.prediction.network.name for one in held_out_networks(two_families, "roofline")]
    assert {"vit_b_16", "vit_l_16", "another-34"} == set(found)
    assert len(learned) == 2
    assert not learned[1] & {"vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99"}
    assert "another-34" in learned[1]
    assert "another-34" not in learned[0]


def test_each_fit_is_announced_and_counted_before(two_families: Examples) -> None:
    told: list[str] = []
    for split in ("random", "model"):
        held_out.evaluate(two_families, split, "roofline", announce=told.append)
    assert told == ["random: roofline", "model: roofline, families 1 of 2", "model: roofline, families 2 of 2"]
    assert [held_out.fits_of(two_families, split) for split in ("random", "model")] == [1, 2]
    with pytest.raises(DatasetError, match="two different ones"):
        held_out.fits_of(dataclasses.replace(two_families, models=["one"] * len(two_families.models)), "model")


def test_families_are_held_out_in_groups(known: Examples) -> None:
    names = [f"network{chr(97 + n)}-{n}" for n in range(len(known.models))]
    groups = family_groups(dataclasses.replace(known, models=names))
    assert len(groups) == 7
    inside = ~known.sampled[known.model]
    assert (np.sum(groups, axis=0)[inside] == 1).all()
    for held in groups:
        assert not set(known.model[held]) & set(known.model[~held])
    with pytest.raises(DatasetError, match="two different ones"):
        family_groups(dataclasses.replace(known, models=["network-1"] * len(names)))


def test_operators_of_what_is_held_out_are_looked_up_but_nothing_is_fitted_to_them(two_families: Examples) -> None:
    _, held = family_groups(two_families)
    network = ~two_families.sampled[two_families.model]
    inside, outside = np.flatnonzero(held & network)[0], np.flatnonzero(~held & network)[0]
    operator = two_families.operator.copy()
    operator[outside] = operator[inside]  # both networks call it
    examples = dataclasses.replace(two_families, operator=operator)
    plain = fitted_without(examples, held, "lookup")
    asked = query_of(examples).take(np.array([inside]))
    assert plain.predict(asked).tier[0] != MEASURED
    found = looking_up(plain, examples.where(~held)).predict(asked)
    assert found.tier[0] == MEASURED and found.latency_us[0] == examples.latency_us[outside]


def test_ops_of_what_is_held_out_are_not_known(known: Examples) -> None:
    only = [dataclasses.replace(known.operators[0], op_names=("einsum",)), *known.operators[1:]]
    examples = dataclasses.replace(known, operators=only)
    left = fitting.fit(examples.where(examples.operator != 0), choice="roofline")
    assert "einsum" not in left.coverage.own and left.coverage.own
    assert "einsum" in fitting.fit(examples, choice="roofline").coverage.own


def test_other_devices_teach_nothing_of_what_is_held_out(two_families: Examples) -> None:
    names = [f"network{chr(97 + n)}-{n}" for n in range(len(two_families.models))]
    other = dataclasses.replace(two_families, models=names)
    left = held_out._without(other, {two_families.operators[0].key}, {"networka-0"})
    assert 0 < len(left) < len(other)
    assert 0 not in left.operator and not (left.model == 0).any()
    kept = (other.operator != 0) & (other.model != 0)
    assert len(left) == kept.sum()


def test_all_others_that_ship_teach(two_families: Examples) -> None:
    (device,) = two_families.devices
    other = dataclasses.replace(two_families, devices=[dataclasses.replace(device, processor="another")])
    assert fitting.examples_of_other_processors(two_families, [two_families, other]) == [other]


def test_who_has_many_networks_is_taught_rare_ops_alone(
    two_families: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    (device,) = two_families.devices
    rare = [
        dataclasses.replace(operator, op_names=(*operator.op_names, "einsum")) if n == 0 else operator
        for n, operator in enumerate(two_families.operators)
    ]
    other = dataclasses.replace(
        two_families, operators=rare, devices=[dataclasses.replace(device, processor="another")]
    )
    query = query_of(two_families)
    (training_set,) = fitting._training_sets(two_families, query, [other])[1]
    assert len(training_set.query) == len(other), "few networks: all is taught"
    monkeypatch.setattr(fitting, "_FEW_NETWORKS", 1)
    monkeypatch.setattr(fitting, "_FEW_WITH_OP", 2)
    _, (training_set,) = fitting._training_sets(two_families, query, [other])
    assert 0 < len(training_set.query) == (other.operator == 0).sum()
    assert all("einsum" in training_set.query.op_sets[at] for at in training_set.query.vocabulary)
    monkeypatch.setattr(fitting, "vector_ratio", lambda first, own: 0.5)
    training_set_of, elsewhere = fitting._training_sets(two_families, query, [other])
    assert training_set_of(two_families, query).base.vector_ratio == 1.0 and not elsewhere, "own vectors"


def test_intervals_are_calibrated_on_whole_families(two_families: Examples) -> None:
    families = families_in([two_families])
    names = np.array([families[name] for name in two_families.models])[two_families.model]
    splits = list(held_out_errors._splits(two_families, 2, 0))
    assert len(splits) == 2
    for train, held in splits:
        assert not set(names[held]) & set(names[~held]), "a family is in one part"
        assert not set(two_families.workload[held]) & set(two_families.workload[train])


def test_base_models_are_fitted_without_what_is_held_out(
    two_families: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted: list[int] = []
    base_fit = Base.fit

    def counted(roofline: Any, query: Any, *rest: Any) -> Any:
        fitted.append(len(query))
        return base_fit(roofline, query, *rest)

    monkeypatch.setattr(Base, "fit", counted)
    fitting.fit(two_families, choice="xgboost", folds=2)
    assert fitted[0] == len(two_families) and len(fitted) == 3 and max(fitted[1:]) < len(two_families)


def test_operators_are_widened_where_networks_are_off_by_more_than_all_of_them(
    two_families: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting, "_FEWEST_NETWORKS", 1)
    half = np.full(len(two_families), 0.1)
    assert fitting._of_networks(two_families, np.full(len(two_families), 0.3), half) == pytest.approx((1.0, 3.0))
    assert fitting._of_networks(two_families, np.full(len(two_families), 0.1), half) == pytest.approx((1.0, 1.0))
    correlation, widening = fitting._of_networks(two_families, np.full(len(two_families), 1e-4), half)
    assert correlation < 0.1 and widening == 1.0
    monkeypatch.setattr(fitting, "_FEWEST_NETWORKS", 1000)
    assert fitting._of_networks(two_families, np.full(len(two_families), 0.3), half) == (1.0, 1.0), "too few networks"
