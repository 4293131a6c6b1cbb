"""Networks that are drawn from seeds: the same ones everywhere, of bounded cost; the default compiler lowers them."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

COLLECTOR = Path(__file__).resolve().parents[2] / "collector"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
KNOWN_GFLOP = {  # of one small network of each family
    **{539: 0.0443, 162: 0.0905, 658: 0.0256, 466: 0.4182, 582: 0.2671, 253: 0.0257, 409: 0.0184, 368: 0.0615},
    **{70: 0.1593, 245: 0.0836, 281: 0.0502, 161: 0.0559, 177: 0.0661, 231: 0.0959, 252: 0.0178, 248: 0.0312},
    **{40: 0.0402, 276: 0.0095, 194: 0.008, 635: 0.0187, 205: 0.3397, 360: 0.0252, 499: 0.008, 673: 0.006},
}


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(COLLECTOR)


def test_a_name_has_the_family_and_the_kind_of_its_seed() -> None:
    from drawn_networks.seeds import KINDS, family_of, kind_of_seed, name_of, names, seed_of

    from op_profiler.prediction.latency.families import named_family

    for seed in range(200):
        name = name_of(seed)
        assert seed_of(name) == seed and named_family(name) == f"drawn_networks:{family_of(seed)}"
    assert [seed_of(name) for name in ("residual_3", "unseen_networks:tcn", "draw3-0000-db6cf180158a")] == [None] * 3
    parts = [set(names(0, 90, (kind,))) for kind in KINDS]
    assert not any(one & other for one, other in itertools.combinations(parts, 2))
    assert set.union(*parts) == set(names(0, 90)) and {len(part) for part in parts} == {30}
    assert {kind_of_seed(seed_of(name) or 0) for name in parts[2]} == {KINDS[2]}


def test_all_families_are_drawn_about_as_often_as_their_weights_say() -> None:
    from collections import Counter

    from drawn_networks.seeds import WEIGHTS, family_of

    drawn = Counter(map(family_of, range(5000)))
    for family, weight in WEIGHTS.items():
        assert drawn[family] == pytest.approx(5000 * weight / sum(WEIGHTS.values()), rel=0.3)


def test_names_are_printed_without_torch() -> None:
    words = [sys.executable, "-X", "importtime", "-m", "drawn_networks", "0", "9", "--kinds", "test"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(COLLECTOR)}, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == 3 and " torch" not in done.stderr


def test_another_family_of_a_seed_is_refused_with_its_name() -> None:
    import drawn_networks
    from drawn_networks.seeds import name_of

    assert name_of(3) == "drawn_networks:residual_3"
    with pytest.raises(AttributeError, match="the network of seed 3 is drawn_networks:residual_3"):
        _ = drawn_networks.plain_3


@needs_torch
def test_costs_are_within_bounds_and_stay_as_they_are() -> None:
    """Datasets have networks by their names: a seed of each family draws what it always drew."""
    from drawn_networks.networks import cost_of
    from drawn_networks.seeds import WEIGHTS, family_of

    assert {family_of(seed) for seed in KNOWN_GFLOP} == WEIGHTS.keys()
    costs = {seed: cost_of(seed) for seed in KNOWN_GFLOP}
    assert all(cost.bounded() for cost in costs.values())
    assert {seed: round(cost.flops / 1e9, 4) for seed, cost in costs.items()} == KNOWN_GFLOP


@needs_torch
def test_every_network_of_a_seed_is_the_same() -> None:
    import torch
    from drawn_networks.networks import network

    def shapes(seed: int) -> list[torch.Size]:
        model, inputs = network(seed)
        return [tensor.shape for tensor in (*model.state_dict().values(), *inputs)]

    torch.manual_seed(1)
    first = [shapes(seed) for seed in range(6)]
    torch.manual_seed(2)
    assert [shapes(seed) for seed in range(6)] == first


@needs_torch
@pytest.mark.parametrize(
    "seed", [*KNOWN_GFLOP, *(pytest.param(seed, marks=pytest.mark.slow) for seed in {*range(100)} - KNOWN_GFLOP.keys())]
)
def test_the_default_compiler_lowers_it(seed: int) -> None:
    from drawn_networks.__main__ import lowered
    from drawn_networks.seeds import name_of

    assert sum(operator.flops for operator in lowered(name_of(seed))) > 0
