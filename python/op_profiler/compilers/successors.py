"""Finds which calls of a graph replaced which, after a compiler pass that does not report it.

Calls that kept their numbers delimit a region of new calls as they delimited a region of old ones. Within the two
regions, calls of the same op are paired in order; each remaining old call belongs to all calls of the new region. A
region without old calls was inserted by the compiler, such as a layout transformation: it belongs to its readers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from op_profiler.compilers.tvm_types import Call

Names = tuple[str, ...]

_COMPUTES_NOTHING = frozenset({"nn.dropout"})  # in a trained model; the passes take it out
_RESULT = "the result"


@dataclasses.dataclass(frozen=True)
class CallGraph:
    """The calls of a function.

    Attributes:
        calls: the calls, each after the calls that it reads.
        ops: name of the op of each call.
        numbers: for each call, the number that identifies it in another graph; None for calls that a pass created.
        reads: for each call, the positions of the calls that it reads, and the names of variables.
        results: positions of the calls that the function returns.
    """

    calls: list[Call]
    ops: list[str]
    numbers: list[int | None]
    reads: list[frozenset[int | str]]
    results: frozenset[int | str]


@dataclasses.dataclass(frozen=True)
class _Region:
    """A connected region of calls without numbers that are in both graphs, and the numbers around it."""

    members: list[int]
    above: set[int | str]
    below: set[int | str]


def successors(old: CallGraph, new: CallGraph, names: Sequence[Names]) -> dict[int, Names]:
    """Return the names for each call of the new graph whose number is None, by the position of the call: the names of
    the calls of the old graph that it replaced.

    Args:
        names: names, such as locations, of each call of the old graph, in order.
    """
    missing = {place for place, number in enumerate(new.numbers) if number is None}
    if old.ops == new.ops:
        return {place: names[place] for place in missing}
    present = set(new.numbers)
    known = {number: names[place] for place, number in enumerate(old.numbers) if number is not None}
    lost = {place for place, number in enumerate(old.numbers) if number not in present}
    before = _regions(old, lost)
    found: dict[int, Names] = {}
    for region in _regions(new, missing):
        sources = [r for r in before if r.above & region.above and r.below & region.below]
        sources = sources or [r for r in before if r.below & region.below]
        sources = sources or [r for r in before if r.above & region.above]
        if sources:
            found |= _shared(old, sorted({m for r in sources for m in r.members}), new, region.members, names)
        else:
            neighbours = _names_at(region.below, known) or _names_at(region.above, known)
            found |= dict.fromkeys(region.members, neighbours)
    return found


def _shared(
    old: CallGraph, olds: list[int], new: CallGraph, news: list[int], names: Sequence[Names]
) -> dict[int, Names]:
    """Return the names that new calls get from old ones."""
    found: dict[int, Names] = {}
    olds = [place for place in olds if old.ops[place] not in _COMPUTES_NOTHING]
    left = set(olds)
    for op in dict.fromkeys(new.ops[place] for place in news):
        givers = [place for place in olds if old.ops[place] == op]
        takers = [place for place in news if new.ops[place] == op]
        left -= set(givers)
        if len(givers) == len(takers):
            found |= {taker: names[giver] for giver, taker in zip(givers, takers, strict=True)}
        elif givers:
            found |= dict.fromkeys(takers, united(names[giver] for giver in givers))
    others = [place for place in news if place not in found]
    of_all = united(names[place] for place in olds)
    of_left = united(names[place] for place in olds if place in left)
    found |= dict.fromkeys(others, of_left or of_all)
    if not others:
        found = {place: united([own, of_left]) for place, own in found.items()}
    return found


def _regions(graph: CallGraph, members: Collection[int]) -> list[_Region]:
    """Return the connected regions of some calls of a graph."""
    region_of: dict[int, _Region] = {}
    for place in sorted(members):
        region = _Region([place], set(), set())
        region_of[place] = region
        for source in graph.reads[place]:
            if isinstance(source, str) or source not in members:
                region.above.add(source if isinstance(source, str) else _number(graph, source))
                continue
            other = region_of[source]
            if other is not region:
                other.members.extend(region.members)
                other.above.update(region.above)
                region_of |= dict.fromkeys(region.members, other)
                region = other
    for place, sources in enumerate(graph.reads):
        if place not in members:
            for source in sources:
                if isinstance(source, int) and source in members:
                    region_of[source].below.add(_number(graph, place))
    for result in graph.results:
        if isinstance(result, int) and result in members:
            region_of[result].below.add(_RESULT)
    return [dataclasses.replace(r, members=sorted(r.members)) for r in {id(r): r for r in region_of.values()}.values()]


def _number(graph: CallGraph, place: int) -> int:
    number = graph.numbers[place]
    assert number is not None, "calls outside of a region have numbers"
    return number


def _names_at(boundary: set[int | str], known: Mapping[int, Names]) -> Names:
    """Return the names of the calls on one side of a region."""
    return united(known.get(number, ()) for number in sorted(n for n in boundary if isinstance(n, int)))


def united(many: Iterable[Names]) -> Names:
    """Return all names, each once, in the order of their first occurrence."""
    return tuple(dict.fromkeys(name for names in many for name in names))
