"""Counts the work of a GPU kernel's launches, from TIR whose loops are bound to blocks and threads."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from op_profiler.compilers.loop_nest import WORK, LaunchedWork
from op_profiler.compilers.loop_reader import Expression, Language, Reader, Statement

_BINDS = ("thread_extent", "virtual_thread")
_WARP = 32
_SECTOR_BYTES = 32
_BANKS, _BANK_BYTES = 32, 4
_DOT_PRODUCT = "__dp4a"
"""An instruction that TVM calls as a function: the sum of four int8 products."""


@dataclasses.dataclass
class _Launch:
    """A launch that is being read; `blocks` and `threads` have the number along each axis (x, y, z)."""

    blocks: dict[str, int] = dataclasses.field(default_factory=dict)
    threads: dict[str, int] = dataclasses.field(default_factory=dict)
    statements: list[Statement] = dataclasses.field(default_factory=list)


class LaunchReader(Reader):
    """Reads a GPU's function as `Reader` does, but counts the work of each launch instead of returning loop nests.

    Loops over virtual threads count as loops of a thread, which does the work of several virtual threads; loops over
    blocks and threads do not.
    """

    def __init__(self, language: Language, function: Any) -> None:
        self._launches: list[_Launch] = []
        self._launch: _Launch | None = None
        self._axes: dict[int, str] = {}  # of the threads, by variable
        self._scopes: dict[int, str] = {}  # where a tensor is
        super().__init__(language, function)

    def launches(self) -> tuple[LaunchedWork, ...]:
        """Return the work of the launches, in order."""
        return tuple(map(self._counted, self._launches))

    def _visit(self, node: Any) -> None:
        tir = self._language.tir
        if isinstance(node, tir.AttrStmt) and str(node.attr_key) in _BINDS:
            self._bound(node)
            return
        super()._visit(node)
        if isinstance(node, tir.BufferStore) and self._launch is not None:
            self._launch.statements.append(self._statements[-1])

    def _bound(self, node: Any) -> None:
        """Read a loop that is bound to blocks, threads or virtual threads, and its body."""
        variable, extent = node.node.var, int(getattr(node.value, "value", 1))
        outermost = self._launch is None
        if self._launch is None:
            self._launch = _Launch()
            self._launches.append(self._launch)
        where, _, axis = str(node.node.thread_tag).partition(".")
        loops = len(self._loops)
        if where == "blockIdx":
            self._launch.blocks[axis] = extent
        elif where == "threadIdx":
            self._launch.threads[axis] = extent
            self._keep.append(variable)
            self._axes[self._language.identify(variable)] = axis
        else:
            self._keep.append(variable)
            self._loops.append((self._language.identify(variable), extent, "serial"))
        self._visit(node.body)
        del self._loops[loops:]
        if outermost:
            self._launch = None

    def _access(self, buffer: Any, indices: Any, statement: Statement, *, written: bool) -> None:
        super()._access(buffer, indices, statement, written=written)
        self._scopes[statement.accesses[-1][0]] = str(buffer.scope())

    def _condition(self, node: Any, statement: Statement) -> Expression:
        found = super()._condition(node, statement)
        if not self._places:
            statement.operations["integers"] = statement.operations.get("integers", 0) + _operators_in(found)
        return found

    def _called(self, node: Any, statement: Statement) -> Expression:
        if any(getattr(argument, "value", None) == _DOT_PRODUCT for argument in node.args[:1]):
            statement.count("mul")
            for argument in node.args[1:]:
                self._read(argument, statement)
            return 0
        return super()._called(node, statement)

    def _counted(self, launch: _Launch) -> LaunchedWork:
        work = dict.fromkeys(WORK, 0.0)
        for statement in launch.statements:
            trips = math.prod(extent for _, extent, _ in statement.loops)
            for name, amount in self._once(statement, launch.threads).items():
                work[name] += trips * amount
            work["fetches"] += self._waits(statement, trips)
        accesses = (access for statement in launch.statements for access in statement.accesses)
        shared = {tensor: item * size for tensor, _, _, item, size, _ in filter(self._shares, accesses)}
        blocks, threads = (math.prod(sizes.values()) for sizes in (launch.blocks, launch.threads))
        return LaunchedWork(blocks, threads, sum(shared.values()), work)

    def _once(self, statement: Statement, threads: dict[str, int]) -> dict[str, float]:
        """Return the work of a thread for one execution of a statement; sectors and shared accesses are of a warp."""
        found = {"integers": statement.operations.get("integers", 0.0)}
        counts = [statement.operations.get(name, 0.0) for name in ("add", "mul", "select")]
        found["arithmetic"] = sum(counts) - statement.operations.get("fma", 0.0)
        for kind, name in (("call", "functions"), ("div", "divisions")):
            found[name] = sum(amount for slow, amount, *_ in statement.slow if slow == kind)
        found |= dict.fromkeys(("accesses", "sectors", "shared"), 0.0)
        lanes = self._lanes(threads)
        for access in statement.accesses:
            tensor, _, _, item_bytes, _, place = access
            if self._shares(access):
                found["shared"] += _passes(_places(place, lanes) * item_bytes)
            elif self._scopes[tensor] == "global":
                found["accesses"] += 1
                found["sectors"] += len(np.unique(_places(place, lanes) * item_bytes // _SECTOR_BYTES))
        return found

    def _waits(self, statement: Statement, trips: int) -> float:
        """Return how often a thread waits for values that a statement reads from the GPU's memory.

        A sum waits at each term. Values in shared memory are waited for once the innermost loop has fetched them.
        """
        if self._shares(statement.accesses[-1]):
            return trips / statement.loops[-1][1] if len(statement.loops) > 1 else trips
        reads = any(self._scopes[tensor] == "global" for tensor, *_ in statement.accesses[:-1])
        return trips if reads and self._scopes[statement.accesses[-1][0]] != "global" else 0.0

    def _shares(self, access: tuple[Any, ...]) -> bool:
        return self._scopes[access[0]].startswith("shared")

    def _lanes(self, threads: dict[str, int]) -> dict[int, np.ndarray]:
        """Return the positions of the threads of the first warp along each axis, by variable."""
        number = np.arange(min(_WARP, math.prod(threads.values())))
        along = {}
        for axis in "xyz":
            along[axis] = number % threads.get(axis, 1)
            number = number // threads.get(axis, 1)
        return {variable: along[axis] for variable, axis in self._axes.items()}


def _places(place: Expression, lanes: dict[int, np.ndarray]) -> np.ndarray:
    """Return the index of each thread of a warp, with all loops at their first iteration."""
    if isinstance(place, int):
        return np.full(1, place)
    if place[0] == "v":
        return lanes.get(place[1], np.zeros(1, dtype=np.int64))
    if place[0] in ("load", "compared", "call"):
        return np.zeros(1, dtype=np.int64)
    one, other = (_places(part, lanes) for part in place[1:])
    if place[0] in ("//", "%"):
        other = np.where(other == 0, 1, other)
        return one // other if place[0] == "//" else one % other
    if place[0] in ("max", "min"):
        return np.maximum(one, other) if place[0] == "max" else np.minimum(one, other)
    return np.asarray({"+": np.add, "-": np.subtract, "*": np.multiply}[place[0]](one, other))


def _passes(addresses: np.ndarray) -> int:
    """Return the number of passes through shared memory: threads that read one word are served together, threads that
    read different words of one bank one after the other."""
    words = np.unique(addresses // _BANK_BYTES)
    return int(np.bincount(words % _BANKS).max())


def _operators_in(expression: Expression) -> int:
    if isinstance(expression, int) or expression[0] in ("v", "load"):
        return 0
    return 1 + sum(_operators_in(part) for part in expression[1:])
