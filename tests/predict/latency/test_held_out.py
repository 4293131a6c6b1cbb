"""What is left out where a network is held out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from op_profiler.predict.latency import fit as fitting
from op_profiler.predict.latency import held_out
from op_profiler.predict.latency.examples import Examples
from op_profiler.predict.latency.held_out import family_of, held_out_networks
from op_profiler.predict.latency.predictor import Predictor


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("vit", ["vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99"]),
        ("mobilenet_v3", ["mobilenet_v3_small", "mobilenet_v3_large", "of-mobilenet_v3_large-b1-71f989a87f99"]),
        ("mobilenet", ["mobilenet"]),
        ("resnet", ["resnet-18", "resnet-50", "resnet152"]),
        ("mnasnet", ["mnasnet0_5", "mnasnet1_0"]),
        ("shufflenet_v2", ["shufflenet_v2_x1_0"]),
        ("albert", ["albert", "of-albert-b1-s128-bd36e486a0bc"]),
    ],
)
def test_a_family_is_a_name_without_its_size(family: str, names: list[str]) -> None:
    assert {family_of(name) for name in names} == {family}


def test_drawn_batches_are_families_of_their_own() -> None:
    assert family_of("draw11-0000-db6cf180158a") != family_of("draw11-0001-ad5fbc77fa0d")


def test_a_network_is_held_out_with_its_family(known: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list(known.models)
    networks = np.flatnonzero(~known.sampled)
    names[networks[0]], names[networks[1]], names[0] = "vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99"
    for at in networks[2:]:
        names[at] = "another-34"
    examples = dataclasses.replace(known, models=names)
    learned: list[set[str]] = []
    fit = fitting.fit

    def noted(some: Examples, **options: object) -> Predictor:
        learned.append({some.models[model] for model in np.unique(some.model)})
        return fit(some, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(held_out, "fit", noted)
    found = [one.prediction.network.name for one in held_out_networks(examples, "roofline")]
    assert {"vit_b_16", "vit_l_16", "another-34"} == set(found)
    assert len(learned) == 2
    assert not learned[0] & {"vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99"}
    assert "another-34" in learned[0]
    assert "another-34" not in learned[1]
