"""The operators that calibrate measures first."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from op_profiler.collection.sampling.telling import nearest_first, telling_batches


def test_each_takes_most_off_the_distance_of_what_is_wanted() -> None:
    rng = np.random.default_rng(0)
    wanted, pool, weight = rng.normal(size=(30, 3)), rng.normal(size=(60, 3)), rng.uniform(size=30)
    distance = np.linalg.norm(wanted[:, None] - pool, axis=2)
    chosen = list(itertools.islice(nearest_first(wanted, weight, pool), 8))
    for count in range(1, 8):
        left = [weight @ distance[:, [*chosen[:count], at]].min(axis=1) for at in range(60)]
        assert np.isclose(left[chosen[count]], min(left))


def test_it_ends_where_none_comes_nearer() -> None:
    places = np.random.default_rng(1).normal(size=(12, 2))
    far = places + 100.0
    chosen = list(nearest_first(places, np.ones(12), np.concatenate([far, places])))
    assert set(chosen) == set(range(12, 24))


def test_batches_are_the_same_for_a_seed() -> None:
    one, other = (list(itertools.islice(telling_batches(3), 3)) for _ in range(2))
    assert [(b.label, b.identity) for b in one] == [(b.label, b.identity) for b in other]
    assert len({str(b.identity) for b in one}) == 3


def test_convolutions_and_products_come_first_and_go_on_without_end() -> None:
    """What networks spend their time on; some thousand operators are more than what is wanted."""
    batches = list(itertools.islice(telling_batches(0), 60))
    points = batches[0].identity[1]  # type: ignore[index]
    kinds = [str(point).partition("(")[0] for point in points]
    assert kinds.count("Conv2d") + kinds.count("Dense") >= len(kinds) / 2
    assert {"BatchMatmul", "Softmax"} <= set(kinds)
    chosen = [batch for batch in batches if "cached" not in batch.label]
    measured = [str(point).partition("(")[0] for batch in chosen[:6] for point in batch.identity[1]]  # type: ignore[index]
    assert {"Conv2dTranspose", "LayerNorm", "Concatenate"} <= set(measured)  # in three minutes, beside what is chosen
    assert len(chosen[-1].identity[1]) == len(points)  # type: ignore[index]
    assert "cached" in batches[1].label, "what a call costs is known early"
    assert len({batch.label for batch in batches}) == len(batches)


def test_where_what_ships_was_removed_operators_are_random(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    there = next(telling_batches(0)).identity
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    here = next(telling_batches(0)).identity
    assert here != there and len(here[1]) == len(there[1])  # type: ignore[index]
