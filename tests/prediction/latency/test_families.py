"""Which networks are of one family."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from op_profiler.prediction.latency.examples import Examples
from op_profiler.prediction.latency.families import families_in, named_family
from op_profiler.prediction.latency.open_predictor import examples_for


@pytest.mark.parametrize(
    ("family", "names"),
    [
        ("vit", ["vit_b_16", "vit_l_16", "of-vit_l_16-b1-71f989a87f99", "of-vit_l_16-b1-1x3x160x160-fedcba987654"]),
        ("mobilenet_v3", ["mobilenet_v3_small", "mobilenet_v3_large", "of-mobilenet_v3_large-b1-71f989a87f99"]),
        ("mnasnet", ["mnasnet0_5", "of-mnasnet0_5-b1-71f989a87f99-fedcba9876543210"]),
        ("mobilenet", ["mobilenet"]),
        ("resnet", ["resnet-18", "resnet-50", "resnet152"]),
        ("se_resnet", ["of-se_resnet50-b1-71f989a87f99"]),
        ("mnasnet", ["mnasnet0_75", "mnasnet1_0"]),
        ("shufflenet_v2", ["shufflenet_v2_x1_0"]),
        ("efficientnet_v2", ["efficientnet_v2_s"]),
        ("squeezenet_v1", ["squeezenet_v1.1"]),
        ("regnet", ["regnet_y_400mf", "regnet_x_800mf"]),
        ("albert", ["albert", "of-albert-b1-s128-bd36e486a0bc", "of-albert-b2-2x64_2x64-s64-bd36e486a0bc"]),
        ("inception_v3", ["inception_v3"]),
        ("resnext", ["resnext50_32x4d"]),
    ],
)
def test_a_name_without_its_size(family: str, names: list[str]) -> None:
    assert {named_family(name) for name in names} == {family}


def test_drawn_batches_are_families_of_their_own() -> None:
    assert named_family("draw11-0000-db6cf180158a") != named_family("draw11-0001-ad5fbc77fa0d")


@pytest.fixture
def networks(known: Examples) -> Examples:
    """Three of one thread count: the first spends 0.6 of its time in layers of the second, with other ops fused to
    them, and the second 0.3 in layers of the first; the third shares nothing. A batch is sampled from the second."""
    rows = np.arange(7)
    layers = known.operators[:6]
    fused = dataclasses.replace(layers[0], op_names=(*layers[0].op_names, "clip"), attrs=(*layers[0].attrs, {}))
    return dataclasses.replace(
        known.where(np.isin(np.arange(len(known)), rows)),
        operators=[*layers, fused],
        operator=np.array([0, 1, 6, 2, 3, 4, 0]),
        model=np.array([0, 0, 1, 1, 2, 2, 3]),
        latency_us=np.array([3.0, 2.0, 3.0, 7.0, 1.0, 1.0, 5.0]),
        occurrences=np.array([2, 2, 1, 1, 1, 1, 1]),
        models=["mobilenet_v1", "mobilenet", "unlike", "of-mobilenet-b1-71f989a87f99"],
        sampled=np.array([False, False, False, True]),
    )


def test_a_network_is_of_the_family_whose_layers_take_most_of_its_time(networks: Examples) -> None:
    family = families_in([networks])
    assert family["mobilenet_v1"] == family["mobilenet"] == family["of-mobilenet-b1-71f989a87f99"]
    assert family["unlike"] == "unlike"
    less = dataclasses.replace(networks, latency_us=np.array([2.0, 3.0, 3.0, 7.0, 1.0, 1.0, 5.0]))
    assert families_in([less])["mobilenet_v1"] == "mobilenet_v1"


def test_networks_of_several_devices_are_compared(networks: Examples) -> None:
    """The two networks need not have been measured on one device."""
    parts = [networks.where(networks.model == model) for model in (0, 1)]
    apart = [families_in([part]) for part in parts]
    assert families_in(parts)["mobilenet_v1"] == "mobilenet" != apart[0]["mobilenet_v1"]


def test_networks_that_differ_by_a_token_are_one_family(networks: Examples) -> None:
    """A layer whose sizes differ by 5 % at most is a layer of both networks."""
    layer = networks.operators[2]

    def family(factor: float) -> str:
        batch, channels, *rest = layer.inputs[0].shape
        tensor = dataclasses.replace(layer.inputs[0], shape=(batch, round(factor * channels), *rest))
        other = dataclasses.replace(layer, inputs=(tensor, *layer.inputs[1:]))
        nearly = [*networks.operators[:4], other, *networks.operators[5:]]
        found = families_in([dataclasses.replace(networks, operators=nearly, operator=np.array([0, 1, 6, 2, 4, 4, 0]))])
        return found["unlike"]

    assert family(1.01) == "mobilenet"
    assert family(1.2) == "unlike"


def test_included_networks_with_the_same_layers_are_one_family() -> None:
    found = families_in([examples_for(db=None, device="amd-epyc-family-25-model-17")])
    assert found["deit"] == found["vit_b_16"] != found["bert"]
