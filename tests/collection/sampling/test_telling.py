"""The operators that calibrate measures first."""

from __future__ import annotations

import itertools

import numpy as np

from op_profiler.collection.sampling.telling import farthest_first, telling_batches


def test_each_place_is_the_farthest_from_those_before() -> None:
    places = np.random.default_rng(0).normal(size=(60, 3))
    chosen = farthest_first(places, 20, np.empty((0, 3)))
    assert len(set(chosen)) == 20
    for count in range(1, 20):
        distance = np.linalg.norm(places[:, None] - places[chosen[:count]], axis=2).min(axis=1)
        assert np.isclose(distance[chosen[count]], distance.max())


def test_what_earlier_batches_chose_is_not_chosen_again() -> None:
    places = np.random.default_rng(1).normal(size=(30, 2))
    first = farthest_first(places, 10, np.empty((0, 2)))
    second = farthest_first(places, 20, places[first])
    assert set(first) | set(second) == set(range(30))


def test_batches_are_the_same_for_a_seed() -> None:
    one, other = (list(itertools.islice(telling_batches(3), 3)) for _ in range(2))
    assert [(b.label, b.identity) for b in one] == [(b.label, b.identity) for b in other]
    assert len({str(b.identity) for b in one}) == 3
