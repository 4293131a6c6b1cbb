"""Reads the loops and indices of a TIR function into plain values, for either TVM's node classes (`Language`)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from op_profiler.compilers.compiled_model import Launch
from op_profiler.compilers.loop_nest import Access, Loop, LoopNest
from op_profiler.compilers.tvm_build import load_tvm

_KINDS = ("serial", "parallel", "vectorized", "unrolled")
_INSTRUCTIONS = frozenset(
    {
        *("shift_left", "shift_right", "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
        *("q_multiply_shift", "call_llvm_pure_intrin", "call_llvm_intrin"),
    }
)
"""Calls that are compiled to one or two instructions: integers, and a processor's instructions for sums of int8."""
_NOTHING = frozenset({"likely", "reinterpret"})
_DIVISIONS = frozenset({"sqrt", "rsqrt"})
"""Calls that are compiled to an instruction of the division unit."""
_DIMENSIONS = {"blockIdx": "grid", "threadIdx": "block"}
_CALLS = {"erf": 1.5, "tanh": 2.0, "pow": 2.5}
"""Time of a call of the C library, relative to one evaluation of exp, on the two processors with included data."""

Expression = int | tuple[Any, ...]
"""An index: a number, ``("v", variable)``, ``("load",)``, or an operator and its arguments."""


@dataclasses.dataclass(frozen=True)
class Language:
    """The node classes of TIR in one version of TVM, and functions that read these nodes.

    Attributes:
        tir: module with the node classes.
        call, load: classes of a call and of a read of a tensor.
        identify: returns a number that identifies an object as long as it exists.
        tensor: returns the object that stands for the memory of a buffer.
        arguments: returns such an object for each tensor that a function takes.
    """

    tir: ModuleType
    call: type
    load: Any
    identify: Callable[[Any], int]
    tensor: Callable[[Any], Any]
    arguments: Callable[[Any], Iterable[Any]]


class Statement:
    """One store that a `Reader` has not yet converted to a `LoopNest`; its indices are still expressions."""

    def __init__(self, loops: Sequence[tuple[int, int, str]] = (), guards: Sequence[frozenset[int]] = ()) -> None:
        self.loops = list(loops)
        self.guards = list(guards)
        lanes = frozenset(variable for variable, _, kind in loops if kind == "vectorized")
        if any(lanes & variables for variables in guards):  # TVM then makes a serial loop of the lanes
            self.loops = [
                (variable, extent, _KINDS[0] if variable in lanes else kind) for variable, extent, kind in loops
            ]
        self.accesses: list[tuple[int, bool, bool, int, int, Expression]] = []
        self.operations: dict[str, float] = {}
        self.slow: list[tuple[str, float, int, int, Expression]] = []
        self.called: set[tuple[Any, ...]] = set()

    def count(self, name: str) -> None:
        """Add one operation of this kind, such as ``mul``, ``add`` or ``fma``."""
        self.operations[name] = self.operations.get(name, 0) + 1

    def count_slow(self, name: str, first: int, operands: Expression, amount: float = 1.0) -> None:
        """Count a division or a call with these operands `amount` times. The last accesses of the statement, from
        index `first` on, are those of the operands."""
        self.slow.append((name, amount, first, len(self.accesses), operands))


class Reader:
    """Reads the loop nests of a function from its body, in which tensors are flat and loops still have their
    annotations.

    Each object of TVM is visited once, because each visit takes a microsecond.
    """

    def __init__(self, language: Language, function: Any) -> None:
        tir = language.tir
        self._language = language
        self._binary = {tir.Add: "+", tir.Sub: "-", tir.Mul: "*", tir.FloorDiv: "//", tir.FloorMod: "%"}
        self._binary |= {tir.Div: "//", tir.Mod: "%", tir.Max: "max", tir.Min: "min"}
        self._compared = (tir.LT, tir.LE, tir.GT, tir.GE, tir.EQ, tir.NE, tir.And, tir.Or)
        # a TVM has one of the two: a node around the scope of the variable, or one in front of it
        self._bindings = tuple(getattr(tir, name) for name in ("LetStmt", "Bind") if hasattr(tir, name))
        self._loops: list[tuple[int, int, str]] = []
        self._guards: list[frozenset[int]] = []  # loop variables of the conditions around
        self._places = 0  # how deep in an index or a condition, whose arithmetic does not count
        self._values: dict[int, Expression] = {}
        self._keep: list[Any] = []  # a handle names a variable as long as something holds it
        self._tensors: dict[int, tuple[int, bool]] = {}
        self._statements: list[Statement] = []
        for memory in language.arguments(function):
            self._tensor(memory, argument=True)
        self._visit(function.body)

    def nests(self) -> tuple[LoopNest, ...]:
        """Return the loop nests, in the order of the statements."""
        return tuple(map(_nest, self._statements))

    def _tensor(self, variable: Any, *, argument: bool = False) -> tuple[int, bool]:
        handle = self._language.identify(variable)
        if handle not in self._tensors:
            self._keep.append(variable)
            self._tensors[handle] = (len(self._tensors), argument)
        return self._tensors[handle]

    def _visit(self, node: Any) -> None:
        tir = self._language.tir
        if isinstance(node, tir.For):
            variable = node.loop_var
            self._keep.append(variable)
            kind = _KINDS[int(node.kind)] if int(node.kind) < len(_KINDS) else "parallel"  # a GPU's threads
            self._loops.append((self._language.identify(variable), _number(node.extent), kind))
            self._visit(node.body)
            self._loops.pop()
        elif isinstance(node, tir.SeqStmt):
            for part in node.seq:
                self._visit(part)
        elif isinstance(node, tir.IfThenElse):
            self._guards.append(_variables(self._read(node.condition, Statement())))
            self._visit(node.then_case)
            if node.else_case is not None:
                self._visit(node.else_case)
            self._guards.pop()
        elif isinstance(node, self._bindings):
            self._keep.append(node.var)
            self._values[self._language.identify(node.var)] = self._read(node.value, Statement())
            if hasattr(node, "body"):
                self._visit(node.body)
        elif isinstance(node, tir.BufferStore):
            statement = Statement(self._loops, self._guards)
            self._read(node.value, statement)
            self._access(node.buffer, node.indices, statement, written=True)
            self._statements.append(statement)
        elif hasattr(node, "body"):
            self._visit(node.body)

    def _access(self, buffer: Any, indices: Any, statement: Statement, *, written: bool) -> None:
        shape = [_number(d) for d in buffer.shape]
        place: Expression = 0
        self._places += 1
        for size, index in zip(shape, indices):
            place = ("+", ("*", place, size), self._read(index, statement))
        self._places -= 1
        item = load_tvm().DataType(str(buffer.dtype))
        tensor, argument = self._tensor(self._language.tensor(buffer))
        statement.accesses.append((tensor, argument, written, max(item.bits // 8, 1), math.prod(shape), place))

    def _read(self, node: Any, statement: Statement) -> Expression:
        """Return a value as an expression; its reads and operations are added to the statement."""
        tir = self._language.tir
        operator = self._binary.get(type(node))
        if isinstance(node, tir.IntImm):
            return int(node.value)
        if isinstance(node, tir.Var):
            handle = self._language.identify(node)
            return self._values.get(handle, ("v", handle))
        if operator is not None:
            first = len(statement.accesses)
            found = (operator, self._read(node.a, statement), self._read(node.b, statement))
            self._count(node, found, statement, first)
            return found
        if isinstance(node, self._language.load):
            buffer = node.buffer if hasattr(node, "buffer") else node.source
            self._access(buffer, node.indices, statement, written=False)
            return ("load",)
        if isinstance(node, (tir.Cast, tir.Broadcast)):
            return self._read(node.value, statement)
        if isinstance(node, tir.Ramp):
            return self._read(node.base, statement)
        if isinstance(node, tir.Not):
            return self._read(node.a, statement)
        if isinstance(node, tir.Select):
            return self._chosen((node.condition, node.true_value, node.false_value), statement)
        if isinstance(node, self._language.call):
            return self._called(node, statement)
        if isinstance(node, tir.Let):
            self._keep.append(node.var)
            self._values[self._language.identify(node.var)] = self._read(node.value, statement)
            return self._read(node.body, statement)
        if isinstance(node, self._compared):
            return ("compared", self._read(node.a, statement), self._read(node.b, statement))
        return 0

    def _count(self, node: Any, found: tuple[Any, ...], statement: Statement, first: int) -> None:
        """Count one operation of a value; operations of indices are not counted."""
        if self._places:
            return
        operator = found[0]
        number = getattr(node.b, "value", node.b)
        if operator == "//" and not isinstance(number, (int, float, self._language.tir.FloatImm)):
            statement.count_slow("div", first, found)
            return
        statement.count("mul" if operator in ("*", "//") else "add")  # TVM takes the inverse of a number
        if operator == "+" and any(isinstance(side, self._language.tir.Mul) for side in (node.a, node.b)):
            statement.count("fma")

    def _chosen(self, parts: Sequence[Any], statement: Statement) -> Expression:
        if not self._places:
            statement.count("select")
        self._condition(parts[0], statement)
        value = self._read(parts[1], statement)
        self._read(parts[2], statement)
        return value

    def _condition(self, node: Any, statement: Statement) -> Expression:
        self._places += 1
        found = self._read(node, statement)
        self._places -= 1
        return found

    def _called(self, node: Any, statement: Statement) -> Expression:
        name = getattr(node.op, "name", "").rpartition(".")[2]
        if name == "if_then_else":
            return self._chosen(node.args, statement)
        first = len(statement.accesses)
        values = [self._read(argument, statement) for argument in node.args]
        same = (name, *values, *statement.accesses[first:])
        if same in statement.called:  # a value that is used twice was written out twice
            return values[0] if values else 0
        statement.called.add(same)
        if name in _INSTRUCTIONS and not self._places:
            statement.count("mul")
        elif name not in _NOTHING and not self._places:
            kind = "div" if name in _DIVISIONS else "call"
            statement.count_slow(kind, first, ("call", *values), _CALLS.get(name, 1.0))
        return values[0] if values else 0


def _number(value: Any) -> int:
    """Return an extent; 1 if it is known only at run time."""
    number = getattr(value, "value", value)
    return number if isinstance(number, int) else 1


def _nest(statement: Statement) -> LoopNest:
    """Return the loop nest of a statement.

    A loop over fused axes is split where indices divide its variable; strides are differences of indices.
    """
    divisors: dict[int, set[int]] = {}
    for *_, place in statement.accesses:
        _divisors(place, divisors)
    loops: list[Loop] = []
    steps: list[tuple[int, int]] = []
    for variable, extent, kind in statement.loops:
        chain = [1]
        for divisor in sorted(divisors.get(variable, ())):
            if 1 < divisor < extent and divisor % chain[-1] == 0:
                chain.append(divisor)
        extents = [after // before for before, after in zip(chain, chain[1:])] + [-(-extent // chain[-1])]
        loops += [Loop(size, kind) for size in reversed(extents)]
        steps += [(variable, step) for step in reversed(chain)]
    order = sorted(range(len(loops)), key=lambda n: loops[n].kind == "vectorized")
    loops, steps = [loops[n] for n in order], [steps[n] for n in order]
    accesses = []
    for tensor, argument, written, item, elements, place in statement.accesses:
        start = _value(place, -1, 0)
        strides = tuple(abs(_value(place, variable, step) - start) for variable, step in steps)
        accesses.append(Access(tensor, argument, written, item, elements, strides, _gathers(place)))
    operations = dict(statement.operations)
    for name, amount, first, last, operands in statement.slow:  # LLVM takes what does not change in a loop out of it
        used = _variables(operands)
        changing = [
            n
            for n, (variable, _) in enumerate(steps)
            if variable in used or any(access.strides[n] for access in accesses[first:last])
        ]
        inside = math.prod(loop.extent for loop in loops[max(changing, default=-1) + 1 :])
        operations[name] = operations.get(name, 0) + amount / inside
    conditions = frozenset().union(*statement.guards)
    guarded = frozenset(n for n, (variable, _) in enumerate(steps) if variable in conditions)
    return LoopNest(tuple(loops), tuple(accesses), operations, len(statement.guards), guarded)


def _variables(place: Expression) -> frozenset[int]:
    """Return the loop variables in an expression."""
    if isinstance(place, int):
        return frozenset()
    if place[0] == "v":
        return frozenset([place[1]])
    return frozenset().union(*(_variables(part) for part in place[1:]))


def _divisors(place: Expression, found: dict[int, set[int]]) -> None:
    """Add the numbers by which the indices divide each variable to `found`."""
    if isinstance(place, int) or place[0] == "v":
        return
    if place[0] in ("//", "%") and isinstance(place[2], int) and place[2] > 0:
        inner, factor = place[1], 1
        if isinstance(inner, tuple) and inner[0] == "//" and isinstance(inner[2], int):
            inner, factor = inner[1], inner[2]
        if isinstance(inner, tuple) and inner[0] == "v":
            found.setdefault(inner[1], set()).add(factor * place[2])
    for part in place[1:]:
        _divisors(part, found)


def _value(place: Expression, variable: int, step: int) -> int:
    """Return the index for which one variable is `step` and all others are 0."""
    if isinstance(place, int):
        return place
    if place[0] == "v":
        return step if place[1] == variable else 0
    if place[0] in ("load", "compared"):
        return 0
    one, other = (_value(part, variable, step) for part in place[1:])
    if place[0] in ("//", "%"):
        return 0 if other == 0 else one // other if place[0] == "//" else one % other
    return {"+": one + other, "-": one - other, "*": one * other, "max": max(one, other), "min": min(one, other)}[
        place[0]
    ]


def _gathers(place: Expression) -> bool:
    if isinstance(place, int) or place[0] == "v":
        return False
    return place[0] == "load" or any(_gathers(part) for part in place[1:])


def parallel_loops_of(body: Any, tir: ModuleType) -> list[int]:
    """Return the number of iterations of each parallel loop of a function, in order and without nested loops; 0 for a
    number that is not static. Empty if iterations wait for each other, so that the loop cannot be divided freely.

    Args:
        body: body of the function, in plain loops.
        tir: module with the node classes.
    """
    loops: list[int] = []
    waits = False

    def visit(statement: Any) -> None:
        nonlocal waits
        waits |= isinstance(statement, tir.AttrStmt) and str(statement.attr_key).startswith("pragma_parallel")
        if isinstance(statement, tir.For) and int(statement.kind) == tir.ForKind.PARALLEL:
            loops.append(int(statement.extent.value) if isinstance(statement.extent, tir.IntImm) else 0)
        else:
            for child in _children(statement):
                visit(child)

    visit(body)
    return [] if waits else loops


def launches_in(body: Any, tir: ModuleType) -> list[Launch]:
    """Return the launches of a GPU's function in order; a size that is known only at run time counts as 1.

    Args:
        body, tir: as for `parallel_loops_of`.
    """
    launches: list[Launch] = []

    def visit(statement: Any, inside: Launch | None) -> None:
        tag, extent = _bound(statement, tir)
        where, _, axis = tag.partition(".")
        if where in _DIMENSIONS:
            if inside is None:
                inside = {"grid": [1, 1, 1], "block": [1, 1, 1]}
                launches.append(inside)
            inside[_DIMENSIONS[where]]["xyz".index(axis)] = _number(extent)
        for child in _children(statement):
            visit(child, inside)

    visit(body, None)
    return launches


def _bound(statement: Any, tir: ModuleType) -> tuple[str, Any]:
    """Return the axis that a statement binds, such as ``blockIdx.x``, and its size; empty if it binds none."""
    if isinstance(statement, tir.For) and statement.thread_binding is not None:
        return str(statement.thread_binding.thread_tag), statement.extent
    if isinstance(statement, tir.AttrStmt) and str(statement.attr_key) == "thread_extent":
        return str(statement.node.thread_tag), statement.value
    return "", None


def _children(statement: Any) -> list[Any]:
    """Return the statements inside a statement."""
    if hasattr(statement, "seq"):
        return list(statement.seq)
    names = ("body", "then_case", "else_case", "block", "init")
    return [child for name in names if (child := getattr(statement, name, None)) is not None]
