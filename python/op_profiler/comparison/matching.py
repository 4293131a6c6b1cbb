"""Matching of the operators of two models: by workload key, otherwise by layer, otherwise by the position of their
calls."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Literal

How = Literal["key", "layers", "position"]


@dataclasses.dataclass(frozen=True)
class ComparedCall:
    """One call of an operator in a model.

    Attributes:
        key: workload key of the operator.
        anchor: heavy op of the operator.
        layers: layers of the user's model that the call computes, the anchor's first; empty if unknown.
    """

    key: str
    anchor: str
    layers: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Match:
    """A pair of matched operators of two models.

    Attributes:
        before, after: workload keys of the operators.
        how: what the match is based on: equal keys, layers, or positions of calls.
    """

    before: str
    after: str
    how: How


def match(before: Sequence[ComparedCall], after: Sequence[ComparedCall]) -> list[Match]:
    """Match the operators of two models, each at most once, in the order of `before`.

    Operators with the same key match. Each remaining operator of `before` is matched with the operator of `after` with
    which most of its calls are paired. Calls with the same first layer and anchor are paired, otherwise calls of the
    same anchor at the same position between calls that match.

    Args:
        before, after: the calls of each model in their order.
    """
    same = {call.key for call in before} & {call.key for call in after}
    found = {key: Match(key, key, "key") for key in same}
    ways: tuple[tuple[How, Callable[..., Iterator[tuple[str, str]]]], ...] = (
        ("layers", _of_one_layer),
        ("position", _in_one_place),
    )
    for how, pairs in ways:
        taken = {match.after for match in found.values()}
        votes = Counter(pair for pair in pairs(before, after, same) if pair[0] not in found and pair[1] not in taken)
        for (one, other), _ in votes.most_common():  # ties: in the order of the calls
            if one not in found and other not in taken:
                found[one] = Match(one, other, how)
                taken.add(other)
    order = list(dict.fromkeys(call.key for call in before))
    return sorted(found.values(), key=lambda match: order.index(match.before))


def _of_one_layer(
    before: Sequence[ComparedCall], after: Sequence[ComparedCall], same: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of calls with the same first layer and anchor; repeated calls of a layer are paired in order."""
    waiting: dict[Hashable, list[str]] = {}
    for call in after:
        if call.layers and call.key not in same:
            waiting.setdefault((call.layers[0], call.anchor), []).append(call.key)
    for call in before:
        if call.layers and call.key not in same and waiting.get((call.layers[0], call.anchor)):
            yield call.key, waiting[call.layers[0], call.anchor].pop(0)


def _in_one_place(
    before: Sequence[ComparedCall], after: Sequence[ComparedCall], same: set[str]
) -> Iterator[tuple[str, str]]:
    """Yield pairs of calls of the same anchor at the same position of the two sequences."""
    one, other = ([call.key if call.key in same else call.anchor for call in calls] for calls in (before, after))
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for first, second, length in matcher.get_matching_blocks():
        for i in range(length):
            pair = before[first + i].key, after[second + i].key
            if pair[0] not in same and pair[1] not in same:
                yield pair
