"""A draw of groups of rows from a stream."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from op_profiler.dataset.draw import GroupDraw


def drawn(stream: Iterable[str], most: int) -> tuple[Counter[str], int]:
    """How many rows of each group are held in the end, and how many are not."""
    draw, held = GroupDraw(most), Counter[str]()
    for group in stream:
        if draw.takes(group):
            assert draw.wants(group)
            held[group] += 1
            for gone in draw.dropped():
                assert not draw.wants(gone)
                del held[gone]
        assert held.total() <= most
    for gone in draw.rest():
        del held[gone]
    return held, draw.left_out


def test_all_is_kept_where_it_is_not_too_much() -> None:
    assert drawn("aabbbc", 6) == (Counter("aabbbc"), 0)


def test_groups_are_whole_and_the_same_wherever_their_rows_stand() -> None:
    names = [f"group {n}" for n in range(500)]
    rows = Counter({name: 1 + n % 7 for n, name in enumerate(names)})
    turns = [name for turn in range(7) for name in names if turn < rows[name]]
    (one, left), (other, _) = drawn(turns, 400), drawn(sorted(turns), 400)
    assert all(rows[name] == count for name, count in one.items())
    assert left == len(turns) - one.total() and one.total() > 300
    assert one == other == drawn(turns[::-1], 400)[0]


def test_no_name_is_more_likely_than_another() -> None:
    held, _ = drawn((f"{n:016x}" for n in range(20_000)), 2_000)
    tenths = Counter(int(name, 16) // 2_000 for name in held)
    assert held.total() == 1_600 and all(100 < tenths[n] < 300 for n in range(10)), tenths


def test_a_group_that_is_larger_than_all_that_may_be_held_ends() -> None:
    assert drawn("a" * 100, 10) == (Counter("a" * 10), 90)
