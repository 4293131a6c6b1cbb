"""Loops in the assembly of compiled kernels: their instructions, counted by kind, and their text for llvm-mca.

A loop is the code between a label and a jump back to it. The code does not show how often a loop runs: the innermost
loops are assumed to be the hottest, and the work of an iteration is compared with the operator's total work.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator

_LABEL = re.compile(r"^([.\w$@]+):")
_JUMP = re.compile(r"^(?:j\w+|loop\w*)\s+([.\w$@]+)")
_LAMBDA = re.compile(r"(\.L__tvm_parallel_lambda[.\w]*)\b")
_LAUNCH = "TVMBackendParallelLaunch"
_STACK = re.compile(r"-?\d*\(%r[sb]p\)")
_MEMORY = re.compile(r"-?\w*\([^)]*\)")
_ADDRESSED = re.compile(r"(-?\d*)\((%\w+)?(?:, ?(%\w+)(?:, ?(\d))?)?\)")
_STEP = re.compile(r"^(?:addq|subq)\s+\$(-?\d+), (%\w+)")
_ADDRESS = re.compile(r"^leaq?\s+(-?\d+)\((%\w+)\), (%\w+)")
_FAR_BYTES = 256
_REGISTER_BITS = {"z": 512, "y": 256, "x": 128}
_ARITHMETIC = re.compile(
    r"^v?(?P<op>f(?:n?m)(?:add|sub)(?:sub|add)?\d*|add|sub|mul|div|min|max|sqrt|rsqrt14|rcp14)(?P<kind>[sp])(?P<type>[sdh])\b"
)
_INTEGER_DOT = re.compile(r"^vp(?:dpbusds?|dpwssds?|maddwd|maddubsw)\b")
_MOVE = re.compile(r"^v?(?:mov(?:[au]p[sd]|dq[au]\d*|s[sd]|[dq]|ntp[sd])|movl|movq|movb|movw)\b")
_TYPE_BITS = {"s": 32, "d": 64, "h": 16}


@dataclasses.dataclass(frozen=True)
class MachineLoop:
    """One innermost loop of a kernel, or the body of a kernel without loops.

    Attributes:
        body: instructions of the loop, AT&T syntax.
        depth: number of nested loops, including this loop; 0 for the body of a kernel without loops.
    """

    body: tuple[str, ...]
    depth: int

    @property
    def arithmetic(self) -> list[tuple[int, int]]:
        """For each arithmetic instruction (floating-point, or a product of integers): the number of elements, and the
        number of operations per element."""
        found = []
        for line in self.body:
            match = _ARITHMETIC.match(line)
            if match is not None:
                lanes = 1 if match["kind"] == "s" else _register_bits(line) // _TYPE_BITS[match["type"]]
                found.append((lanes, 2 if match["op"].startswith("f") else 1))
            elif _INTEGER_DOT.match(line) is not None:
                found.append((_register_bits(line) // 32, 2))
        return found

    @property
    def flops(self) -> int:
        """FLOPs of one iteration; a multiply-add counts two."""
        return sum(lanes * operations for lanes, operations in self.arithmetic)

    @property
    def fma_share(self) -> float:
        """Share of its arithmetic instructions that multiply and add; 0.0 if it has no arithmetic instructions."""
        arithmetic = self.arithmetic
        return sum(1 for _, operations in arithmetic if operations == 2) / len(arithmetic) if arithmetic else 0.0

    @property
    def stores(self) -> list[int]:
        """Number of bytes that each store to a tensor writes."""
        return [_moved_bytes(line) for line in self.body if _is_store(line) and not _STACK.search(line)]

    @property
    def lanes(self) -> float:
        """Mean number of 32-bit lanes of its arithmetic, or of its stores if it computes nothing; 0.0 if it has
        neither."""
        counts = [lanes for lanes, _ in self.arithmetic] or [max(size // 4, 1) for size in self.stores]
        return sum(counts) / len(counts) if counts else 0.0

    @property
    def vector_share(self) -> float:
        """Share of its arithmetic instructions (of its stores if it computes nothing) that use more than one lane."""
        counts = [lanes for lanes, _ in self.arithmetic] or [max(size // 4, 1) for size in self.stores]
        return sum(1 for lanes in counts if lanes > 1) / len(counts) if counts else 0.0

    @property
    def spills(self) -> int:
        """Number of instructions that read from the stack or write to it."""
        return sum(1 for line in self.body if _STACK.search(line))

    @property
    def calls(self) -> tuple[str, ...]:
        """Name of the called function of each call in the loop."""
        return tuple(line.split()[-1].lstrip("*").split("@")[0] for line in self.body if line.startswith("call"))

    @property
    def far_steps(self) -> tuple[int, ...]:
        """Steps in bytes by which accesses move through memory from one iteration to the next, only those that skip
        most of the bytes in between."""
        increments = self._increments()
        at: dict[tuple[str, str, int], set[int]] = {}
        for line in self.body:
            for offset, base, index, scale in () if line.startswith("lea") else _ADDRESSED.findall(line):
                if base not in ("%rsp", "%rbp", "%rip"):
                    at.setdefault((base, index, int(scale or 1)), set()).add(int(offset or 0))
        found = set()
        for (base, index, scale), offsets in at.items():
            whole = abs(increments.get(base, 0) + scale * increments.get(index, 0))
            ordered = sorted(offsets)
            starts = [ordered[0], *(high for low, high in zip(ordered, ordered[1:]) if high - low > _FAR_BYTES)]
            step = whole // len(starts)  # of an iteration that was unrolled so many times
            if step > _FAR_BYTES and all(high - low == step for low, high in zip(starts, starts[1:])):
                inside = [offset - ordered[0] for offset in ordered if len(starts) == 1 or offset < starts[1]]
                if max(inside) < step / 2:
                    found.add(step)
        return tuple(sorted(found))

    def _increments(self) -> dict[str, int]:
        """Return the constant by which an iteration increases each register; unchanged registers are missing."""
        found: dict[str, int] = {}
        for line in self.body:
            step, address = _STEP.match(line), _ADDRESS.match(line)
            if step is not None:
                found[step[2]] = found.get(step[2], 0) + (-1 if line.startswith("sub") else 1) * int(step[1])
            elif address is not None and address[2] == address[3]:
                found[address[2]] = found.get(address[2], 0) + int(address[1])
            elif line.startswith("incq "):
                found[line.split()[1]] = found.get(line.split()[1], 0) + 1
        return found

    def without_spills(self) -> tuple[str, ...]:
        """Return the body as it would be with enough registers: moves to and from the stack are left out, and other
        stack operands are replaced by registers."""
        kept = []
        for line in self.body:
            if not _STACK.search(line):
                kept.append(line)
            elif not _MOVE.match(line) and not line.startswith(
                ("push", "pop", "vbroadcast", "inc", "dec", "add", "sub")
            ):
                width = next((w for w in "zyx" if f"%{w}mm" in line), "x")
                kept.append(_STACK.sub(f"%{width}mm15", line) if "mm" in line else line)
        return tuple(kept)


@dataclasses.dataclass(frozen=True)
class KernelCode:
    """Facts read from a kernel's machine code.

    Attributes:
        loops: innermost loops, the deepest first; only the body if there are none.
        parallel: whether the kernel hands parts of its work to the thread pool.
    """

    loops: tuple[MachineLoop, ...]
    parallel: bool

    @property
    def hottest(self) -> MachineLoop:
        """The deepest loop with arithmetic; of several such loops, the one with most FLOPs per iteration.

        If no loop has arithmetic, it is the deepest loop; of several such loops, the one that stores most bytes.
        """
        computing = [loop for loop in self.loops if loop.flops]
        return max(computing or self.loops, key=lambda loop: (loop.depth, loop.flops, sum(loop.stores)))


def kernels_of(assembly: str, names: Iterable[str]) -> dict[str, KernelCode]:
    """Return the code of kernels by their names in the library; kernels that the text does not contain are left out.

    Args:
        assembly: assembly of one of TVM's LLVM modules (`Module.get_source("asm")`), AT&T syntax.
    """
    functions = _functions(assembly)
    found = {}
    for name in dict.fromkeys(names):
        first = next((f for f in (f"{name}_compute_", name) if f in functions), None)
        if first is None:
            continue
        reached = list(_reached(first, functions))
        loops = [loop for function in reached for loop in loops_of(functions[function])]
        if not loops:
            loops = [MachineLoop(tuple(line for line in functions[reached[-1]] if not _LABEL.match(line)), 0)]
        ordered = tuple(sorted(loops, key=lambda loop: -loop.depth))
        parallel = any(_LAUNCH in line for function in reached for line in functions[function])
        found[name] = KernelCode(ordered, parallel)
    return found


def loops_of(lines: list[str]) -> list[MachineLoop]:
    """Return the innermost loops of a function, given the lines of its assembly."""
    labels = {match[1]: number for number, line in enumerate(lines) if (match := _LABEL.match(line))}
    spans: dict[int, int] = {}
    for number, line in enumerate(lines):
        jump = _JUMP.match(line)
        start = labels.get(jump[1], number) if jump is not None else number
        if start < number:
            spans[start] = max(spans.get(start, 0), number)
    found = []
    for start, end in spans.items():
        if any(start < other <= end for other in spans):
            continue
        depth = sum(1 for s, e in spans.items() if s <= start and end <= e)
        found.append(MachineLoop(tuple(line for line in lines[start : end + 1] if not _LABEL.match(line)), depth))
    return found


def _functions(assembly: str) -> dict[str, list[str]]:
    """Return labels and instructions of each function, without directives and comments."""
    functions: dict[str, list[str]] = {}
    current: list[str] | None = None
    for raw in assembly.splitlines():
        if raw.startswith("\t.size\t"):
            current = None
        line = raw.split("#", 1)[0].strip().replace("\t", " ")
        label = _LABEL.match(line)
        if label is not None and (not label[1].startswith(".L") or label[1].startswith(".L__tvm_parallel_lambda")):
            current = functions.setdefault(label[1], [])
        elif label is not None and current is not None:
            if not label[1].startswith((".Ltmp", ".Lfunc")):
                current.append(line)
        elif current is not None and line and not line.startswith("."):
            current.append(line)
    return functions


def _reached(name: str, functions: dict[str, list[str]]) -> Iterator[str]:
    """Yield the name of a function, then the names of the functions that it hands to the thread pool."""
    yield name
    lambdas = dict.fromkeys(found for line in functions[name] for found in _LAMBDA.findall(line))
    for found in lambdas:
        if found in functions and found != name:
            yield from _reached(found, functions)


def _register_bits(line: str) -> int:
    """Return the bits of the widest vector register in an instruction; 64 if there is none."""
    return max((_REGISTER_BITS[found] for found in re.findall(r"%([xyz])mm\d", line)), default=64)


def _is_store(line: str) -> bool:
    return bool(_MOVE.match(line)) and bool(_MEMORY.search(line.rsplit(" ", 1)[-1])) and not line.endswith("%rip)")


def _moved_bytes(line: str) -> int:
    if re.match(r"^v?movs[sd]\b|^v?mov[dq]\b", line):
        return 8 if line.split()[0].endswith(("sd", "q")) else 4
    return _register_bits(line) // 8 if "mm" in line else 4
