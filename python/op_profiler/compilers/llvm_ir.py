"""Counts how often each instruction of a kernel runs, from the optimized LLVM IR of a build.

The bounds of a kernel's loops are constants in its code, so the trip count of each loop is known, and with it the
number of executions of each basic block: a static block frequency, as in Wu & Larus, Static branch frequency and
program profile analysis (MICRO 1994), with known trip counts instead of estimated ones. The part of a kernel that runs
in the thread pool is a separate function, whose outermost loop iterates over a part of the work; here it iterates over
all of it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

PARALLEL = "__tvm_parallel_lambda"
_COMPUTES = "_compute_"
_GUESSED_TRIPS, _GUESSED_FIRST_TRIPS = 8.0, 4.0
_MOST_STEPS = 64
"""Largest number of additions between the index of one iteration and the next; LLVM unrolls by less."""

_VECTORS = "vector.body"
"""LLVM's name of a vectorized loop. The remaining iterations are in ``vec.epilog.vector.body``, and then in a scalar
loop."""
_FIRST = ".prol"
"""LLVM's name of the loop that executes the first iterations of an unrolled loop, fewer than one unrolled iteration."""
_ALIKE = ".pre-phi"
"""LLVM's name of a value that is the same on all incoming paths."""
_TOO_FEW = "%min.iters.check"
"""LLVM's name of the check whether a loop has fewer iterations than one vector iteration."""

_LABEL = re.compile(r'^([\w.$"-]+):')
_NAME = re.compile(r'@"?([\w.$]+)"?\(')
_PHI = re.compile(r"^(%[\w.$-]+) = phi i\d+ (.*)$")
_INCOMING = re.compile(r"\[ ([^,]+), %([\w.$-]+) \]")
_STEP = re.compile(r"^%[\w.$-]+ = (add|or|sub)(?: nuw| nsw| disjoint)* i\d+ (%[\w.$-]+), (-?\d+)$")
_CAST = re.compile(r"^%[\w.$-]+ = (?:trunc|zext|sext)(?: nuw| nsw| nneg)* i\d+ (%[\w.$-]+) to i\d+$")
_COMPARE = re.compile(r"^%[\w.$-]+ = icmp(?: samesign)? (\w+) i\d+ ([^,]+), (.+)$")
_BRANCH = re.compile(r"^br i1 ([^,]+), label %([\w.$-]+), label %([\w.$-]+)")
_TARGET = re.compile(r"label %([\w.$-]+)")
_PARTS = re.compile(r"@llvm\.smin\.i\d+\(i\d+ %[\w.$-]+, i\d+ (\d+)\)")
_NUMBER = re.compile(r"^-?\d+$")


@dataclasses.dataclass(frozen=True)
class Block:
    """A basic block: instructions that always run together, and their number of executions in one call of their
    function."""

    instructions: tuple[str, ...]
    runs: float


@dataclasses.dataclass(frozen=True)
class LlvmFunction:
    """A function of a kernel.

    Attributes:
        parallel: whether it runs in the thread pool; if so, its counts are sums over all parts of the parallel loop.
        guessed: whether the trip count of a loop is not constant and was assumed.
    """

    name: str
    blocks: tuple[Block, ...]
    parallel: bool
    guessed: bool


def functions_of(code: str) -> list[LlvmFunction]:
    """Return the functions of a module that do a kernel's work; functions that only check arguments are left out.

    Args:
        code: optimized LLVM IR of a module of TVM (`Module.get_source("ll")`).
    """
    return [_function(name, lines) for name, lines in _texts(code)]


def _texts(code: str) -> Iterator[tuple[str, list[str]]]:
    """Yield names and lines; an instruction on several lines becomes one line, and debug marks are left out."""
    name = ""
    lines: list[str] = []
    for line in code.split("\n"):
        if line.startswith("define "):
            found = _NAME.search(line)
            name, lines = (found[1] if found is not None else ""), []
            if not (_COMPUTES in name or name.startswith(PARALLEL)):
                name = ""
        elif line.startswith("}"):
            if name:
                yield name, lines
            name = ""
        elif name and line and "#dbg_" not in line:
            if not line.startswith(" "):
                lines.append(line)
            elif lines and (line.startswith("   ") or line.startswith("  ]")):
                lines[-1] += line
            else:
                lines.append(line[2:].split(", !", 1)[0])


def _function(name: str, lines: Sequence[str]) -> LlvmFunction:
    graph = _Graph(lines, parallel=name.startswith(PARALLEL))
    runs = graph.runs()
    blocks = tuple(Block(tuple(graph.blocks[label]), runs[label]) for label in graph.order if runs[label] > 0)
    return LlvmFunction(name, blocks, graph.parallel, graph.guessed)


@dataclasses.dataclass(frozen=True)
class _Loop:
    """Labels of the blocks of a loop (`body`), and of the blocks that jump back to its first block (`latches`)."""

    body: frozenset[str]
    latches: tuple[str, ...]


class _Graph:
    """The control flow graph of a function.

    Attributes:
        blocks: instructions by label.
        order: labels in an order in which every block follows its predecessors, except along jumps back.
        loops: loops by the label of their first block.
    """

    def __init__(self, lines: Sequence[str], *, parallel: bool) -> None:
        self.parallel, self.guessed = parallel, False
        self.blocks: dict[str, list[str]] = {}
        self.defined: dict[str, str] = {}
        label = ""
        for line in lines:
            found = _LABEL.match(line)
            if found is not None:
                label = found[1]
                self.blocks[label] = []
            else:
                self.blocks.setdefault(label, []).append(line)
                if line.startswith("%"):
                    self.defined[line.split(" ", 1)[0]] = line
        self.next = {label: self._successors(block) for label, block in self.blocks.items()}
        self.order, backwards = self._ordered()
        self.loops = {head: self._loop(head, latches) for head, latches in backwards.items()}
        self.enclosing_loops = {label: self._enclosing_loops(label) for label in self.blocks}
        parts = _PARTS.search("\n".join(lines)) if parallel else None
        self.parts = float(parts[1]) if parts is not None else None

    def _successors(self, block: Sequence[str]) -> list[str]:
        last = block[-1] if block else ""
        if last.startswith(("br ", "switch ")):
            return [label for label in dict.fromkeys(_TARGET.findall(last)) if label in self.blocks]
        return []

    def _ordered(self) -> tuple[list[str], dict[str, list[str]]]:
        """Return the labels in reverse post-order, and the blocks that jump back to the first block of each loop."""
        first = next(iter(self.blocks))
        state, left, backwards = {first: "open"}, [], defaultdict(list)
        path = [(first, iter(self.next[first]))]
        while path:
            label, successors = path[-1]
            for successor in successors:
                if successor not in state:
                    state[successor] = "open"
                    path.append((successor, iter(self.next[successor])))
                    break
                if state[successor] == "open":
                    backwards[successor].append(label)
            else:
                state[label] = "done"
                left.append(label)
                path.pop()
        return left[::-1], dict(backwards)

    @functools.cached_property
    def _before(self) -> dict[str, list[str]]:
        before: dict[str, list[str]] = defaultdict(list)
        for label, successors in self.next.items():
            for successor in successors:
                before[successor].append(label)
        return before

    def _loop(self, head: str, latches: Sequence[str]) -> _Loop:
        body, waiting = {head}, list(latches)
        while waiting:
            label = waiting.pop()
            if label not in body:
                body.add(label)
                waiting += self._before[label]
        return _Loop(frozenset(body), tuple(latches))

    def _enclosing_loops(self, label: str) -> list[str]:
        """Return the first blocks of the loops that contain a block, the outermost first."""
        found = [head for head, loop in self.loops.items() if label in loop.body]
        return sorted(found, key=lambda head: -len(self.loops[head].body))

    def runs(self) -> dict[str, float]:
        """Return the number of executions of each block in a call of the function."""
        runs: dict[str, float] = defaultdict(float)
        runs[self.order[0]] = 1.0
        entered: dict[str, float] = {}
        for label in self.order:
            if label in self.loops:
                entered[label] = runs[label]
                runs[label] *= self._trips(label)
            enclosing = self.enclosing_loops[label]
            if enclosing:  # once an iteration at most, however many ways lead there
                runs[label] = min(runs[label], runs[enclosing[-1]])
            elif label != self.order[0]:
                runs[label] = min(runs[label], 1.0)
            onward = [successor for successor in self.next[label] if not self._is_back(label, successor)]
            inside = [successor for successor in onward if set(enclosing) <= set(self.enclosing_loops[successor])]
            for successor in onward:
                if successor in inside:
                    runs[successor] += runs[label] * self._share(label, successor, inside)
                else:  # a loop is left as often as it is entered
                    gone = next(head for head in enclosing if successor not in self.loops[head].body)
                    runs[successor] += min(entered[gone], runs[label])
        return runs

    def _is_back(self, label: str, successor: str) -> bool:
        return successor in self.loops and label in self.loops[successor].latches

    def _share(self, label: str, successor: str, among: Sequence[str]) -> float:
        """Return the share of a block's runs that continue at a successor: equal shares, but 0 for failures."""
        taken = [one for one in among if not self._is_rare_path(label, one)] or among
        return 1.0 / len(taken) if successor in taken else 0.0

    def _is_rare_path(self, label: str, successor: str) -> bool:
        """Return whether a successor runs only if there are too few iterations for a vector, or returns a failure."""
        branch = _BRANCH.match(self.blocks[label][-1])
        if branch is not None and branch[1].startswith(_TOO_FEW):
            return successor == branch[2]
        rest = [line for line in self.blocks[successor] if " = phi " not in line]
        return successor.startswith(("vec.epilog", "scalar.ph")) or (len(rest) == 1 and rest[0].startswith("ret "))

    def _trips(self, head: str) -> float:
        """Return the number of iterations of a loop each time it is entered."""
        loop = self.loops[head]
        leaving = [label for label in loop.body if any(s not in loop.body for s in self.next[label])]
        for label in sorted(leaving, key=lambda label: label not in loop.latches):
            found = self._counted(label, loop)
            if found is not None:
                return found
        if self.parts is not None and len(self.enclosing_loops[head]) == 1:
            return max(self.parts / self._stride(loop), 1.0) if self._is_main(head) else self._left_over()
        self.guessed = True
        return _GUESSED_FIRST_TRIPS if head.endswith(_FIRST) else _GUESSED_TRIPS

    def _is_main(self, head: str) -> bool:
        """Return whether an outermost loop is not the remainder of a vectorized or unrolled loop."""
        vectors = any(other.startswith(_VECTORS) for other in self._outermost)
        return not head.endswith(_FIRST) and (head.startswith(_VECTORS) or not vectors)

    def _left_over(self) -> float:
        """Return the mean number of iterations of a remainder: half of the iterations of one vector step."""
        others = [head for head in self._outermost if not head.endswith(_FIRST)]
        vectors = [head for head in others if _VECTORS in head] or others
        return max(min((self._stride(self.loops[head]) for head in vectors), default=0.0) / 2, 1.0)

    @functools.cached_property
    def _outermost(self) -> list[str]:
        """First blocks of the loops that are in no other loop."""
        return [head for head in self.loops if len(self.enclosing_loops[head]) == 1]

    def _counted(self, label: str, loop: _Loop) -> float | None:
        """Return the trip count from the comparison of the index with a constant that ends a block; None if the block
        ends differently."""
        branch = _BRANCH.match(self.blocks[label][-1])
        if branch is None:
            return None
        compared = self.defined.get(branch[1], "")
        if " = phi i1 " in compared:  # a loop of two trips: LLVM keeps only a flag for the first
            return 2.0 if sorted(value for value, _ in _INCOMING.findall(compared)) == ["false", "true"] else None
        found = _COMPARE.match(compared)
        if found is None:
            return None
        relation, value, bound = found.groups()
        if _NUMBER.match(value):
            value, bound = bound, value
        index, beyond = self._index(value)
        if index is None or not _NUMBER.match(bound):
            return None
        starts = [start for start, source in _INCOMING.findall(index[2]) if source not in loop.body]
        start, step = self._start(starts[0]) if starts else None, self._step(index, loop)
        if start is None or not step:
            return None
        distance = float(bound) - start
        if relation in ("eq", "ne"):
            trips = distance / step + (beyond == 0)
        else:  # the loop continues below the bound, or up to and including it
            goes_on_at = relation.endswith("e") == (branch[2] in loop.body)
            steps = (distance - beyond) / step
            trips = math.floor(steps) + 2 if goes_on_at else math.ceil(steps) + 1
        if trips < 1 and not _NUMBER.match(starts[0]):
            return 1.0  # on the usual path, the loops before it leave no iterations
        return trips if trips >= 1 else None

    def _start(self, value: str, behind: frozenset[str] = frozenset()) -> float | None:
        """Return the first value of an index; the largest one, after the first iterations, if several paths meet.

        Args:
            behind: indices that were already followed; they stop the recursion, because an index refers to itself.
        """
        if _NUMBER.match(value):
            return float(value)
        index, added = self._index(value)
        if index is None or index[1] in behind:
            return None
        ways = [self._start(one, behind | {index[1]}) for one, _ in _INCOMING.findall(index[2])]
        known = [way for way in ways if way is not None]
        return max(known) + added if known else None

    def _index(self, value: str) -> tuple[re.Match[str] | None, float]:
        """Return the index of a loop from which a value is computed, and the constant that was added to it."""
        added = 0.0
        for _ in range(_MOST_STEPS):
            made = self.defined.get(value, "")
            phi, step, cast = _PHI.match(made), _STEP.match(made), _CAST.match(made)
            if phi is not None and _ALIKE in value:
                value = _INCOMING.findall(phi[2])[0][0]
            elif phi is not None:
                return phi, added
            elif step is not None:
                added += float(step[3]) * (-1 if step[1] == "sub" else 1)
                value = step[2]
            elif cast is not None:
                value = cast[1]
            else:
                break
        return None, added

    def _step(self, index: re.Match[str], loop: _Loop) -> float:
        """Return the constant that an iteration adds to the index; 0 if it is not constant."""
        nexts = [value for value, source in _INCOMING.findall(index[2]) if source in loop.body]
        found, added = self._index(nexts[0]) if nexts else (None, 0.0)
        return added if found is not None and found[1] == index[1] else 0.0

    def _stride(self, loop: _Loop) -> float:
        """Return how many iterations of the source one iteration computes, for a loop without constant bounds."""
        found = [1.0]
        for latch in loop.latches:
            branch = _BRANCH.match(self.blocks[latch][-1])
            compared = _COMPARE.match(self.defined.get(branch[1], "")) if branch is not None else None
            for value in compared.groups()[1:] if compared is not None else ():
                index, _ = self._index(value)
                if index is not None:
                    found.append(abs(self._step(index, loop)))
        return max(found)
