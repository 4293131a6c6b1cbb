"""The operators that calibrate measures first."""

from __future__ import annotations

import itertools
import json

from op_profiler.collection.sampling.telling import POINTS_FILE, digest, informative_batches, pool


def test_batches_are_the_same_for_a_seed() -> None:
    one, other = (list(itertools.islice(informative_batches(3), 3)) for _ in range(2))
    assert [(b.label, b.identity) for b in one] == [(b.label, b.identity) for b in other]
    assert len({str(b.identity) for b in one}) == 3


def test_what_was_chosen_comes_first_and_random_ones_go_on_without_end() -> None:
    batches = list(itertools.islice(informative_batches(0), 60))
    chosen = [batch for batch in batches if "cached" not in batch.label]
    points = [point for batch in chosen for point in batch.identity[1]]  # type: ignore[index]
    numbers = json.loads(POINTS_FILE.read_text())["numbers"]
    drawn = list(itertools.islice(pool(), max(numbers) + 1))
    assert points[: len(numbers)] == [drawn[number].identity() for number in numbers]
    assert len(points) > len(numbers) == len(set(numbers))
    kinds = [kind for kind, _ in points[:200]]  # in three minutes or so
    assert {"Conv2d", "Dense", "BatchMatmul", "Softmax", "Elementwise", "Pool2d"} <= set(kinds)
    assert ["cached" in batch.label for batch in batches[:4]] == [False, True] * 2, "what a call costs is known early"
    assert len({batch.label for batch in batches}) == len(batches)


def test_the_numbers_still_stand_for_the_points_that_were_chosen() -> None:
    """Where this fails what is drawn has changed: choose again with collector/choose_telling.py."""
    found = json.loads(POINTS_FILE.read_text())
    drawn = list(itertools.islice(pool(), max(found["numbers"]) + 1))
    assert digest([drawn[number] for number in found["numbers"]]) == found["digest"]
