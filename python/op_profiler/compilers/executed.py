"""Counts the instructions that a kernel executes, by class, from the LLVM IR of its build.

A schedule does not determine the instructions: LLVM may compile a loop with a condition to vectors, to scalars or to a
gather, which differ by tens of cycles per element.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

from op_profiler.compilers.llvm_ir import PARALLEL, functions_of

CLASSES = (
    "arithmetic",
    "comparisons",
    "divisions",
    "integers",
    "integer_vectors",
    "products",
    "integer_divisions",
    "loads",
    "scalar_loads",
    "stores",
    "scalar_stores",
    "gathered",
    "masked",
    "inserted",
    "extracted",
    "shuffled",
    "selected",
    "converted",
    "exponentials",
    "functions",
    "runtime_calls",
    "branches",
    "odd_registers",
    "odd_lanes",
)
"""Classes of instructions. Vectors count by the registers that they fill, gathers by element, and functions by element
and by their cost (`FUNCTION_COSTS`). Vectors whose length is not a power of two count a second time by registers
(``odd_registers``). If they are longer than a register and pass from one block of code to the next, as the sums of a
loop do, LLVM takes them apart and passes each lane in a register of its own (``odd_lanes``; `getVectorTypeBreakdown` in
LLVM's TargetLoweringBase.cpp)."""

_TYPE = re.compile(r"<(\d+) x (float|double|half|bfloat|ptr|i\d+)>|\b(float|double|half|bfloat|ptr|i\d+)\b")
_BITS = {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}
_CALLED = re.compile(r"@([\w.]+)\(")
_COPIED = re.compile(r"i64 (\d+), i1")
_LAUNCHED = re.compile(rf"@({PARALLEL}[.\d]*)\b")
_VALUE_BITS = 32
_DIVISION_BITS = 256.0
"""Width of a vector in bits up to which a division takes as long as that of a single value."""
_CONSTANT_DIVISOR = re.compile(r", (?:splat \(\w+ )?(-?\d[\d.e+-]*)\)?$")
_OF_ROUNDED_QUOTIENT, _OF_SHIFTS = 4, 3
"""Number of instructions of a remainder by a power of two, and of those next to the product in a quotient by a
constant."""
_SPLAT = ("poison,", "i64 0")
"""Insertion of an element into all lanes; together with the following shuffle, it is a load."""
_FREE = frozenset({"phi", "getelementptr", "ret", "alloca", "unreachable", "freeze", "fence", "extractvalue"})
_BY_REGISTER = {
    **dict.fromkeys(("fadd", "fsub", "fmul", "fneg"), "arithmetic"),
    "fcmp": "comparisons",
    "mul": "products",
    "select": "selected",
}
_INTEGER = frozenset({"add", "sub", "shl", "lshr", "ashr", "and", "or", "xor", "icmp"})
_INTEGER_DIVISIONS = frozenset({"sdiv", "udiv", "srem", "urem"})
_CONVERSIONS = frozenset({"fptrunc", "fpext", "sitofp", "uitofp", "fptosi", "fptoui"})
_RESIZED = frozenset({"sext", "zext", "trunc", "bitcast"})
_EXPONENTIAL = re.compile(r"^(llvm\.exp2?(\.|$)|exp2?f?$)")
_ARITHMETIC = re.compile(
    r"fma|fmuladd|minnum|maxnum|minimum|maximum|fabs|copysign|floor|ceil|round|trunc|rint|nearbyint"
)
_NOTHING = re.compile(r"dbg|lifetime|assume|prefetch|experimental")
FUNCTION_COSTS = {
    **{"erf": 1.0, "erfc": 1.5, "exp10": 0.5, "expm1": 0.8, "log": 0.6, "log2": 0.6, "log10": 0.8, "log1p": 0.8},
    **{"sin": 0.65, "cos": 0.65, "tan": 1.3, "asin": 1.1, "acos": 1.1, "atan": 1.1, "atan2": 2.0, "pow": 0.9},
    **{"sinh": 1.3, "cosh": 1.0, "tanh": 1.3, "asinh": 2.0, "acosh": 1.1, "atanh": 1.8, "fmod": 1.7, "cbrt": 1.0},
}
"""Time of glibc's functions for one value, relative to ``erff``: 9 ns for a standard normal value on family 6 model 167
(measured by hand, 2026-11-28). Functions that branch on the value take up to twice as long if signs differ."""


@dataclasses.dataclass(frozen=True)
class Executed:
    """Instruction counts of one call of a kernel.

    Attributes:
        parallel: number of instructions of each class that the thread pool executes, all threads together.
        serial: number of all other instructions of each class.
        guessed: whether the trip count of a loop was assumed.
    """

    parallel: dict[str, float]
    serial: dict[str, float]
    guessed: bool


def executed(code: str, lanes: int) -> Executed:
    """Count the instructions that a kernel executes.

    Args:
        code: optimized LLVM IR of a module with one kernel (`Module.get_source("ll")`).
        lanes: number of 32-bit values in a vector register of the target.
    """
    functions, vector_bits = functions_of(code), _VALUE_BITS * lanes
    launches: dict[str, float] = {}
    for function in functions:
        for block in function.blocks if not function.parallel else ():
            for name in _LAUNCHED.findall("\n".join(block.instructions)):
                launches[name] = launches.get(name, 0.0) + block.runs
    parallel, serial = (dict.fromkeys(CLASSES, 0.0) for _ in range(2))
    for function in functions:
        counts, times = (parallel, launches.get(function.name, 1.0)) if function.parallel else (serial, 1.0)
        for block in function.blocks:
            for instruction in _without_second_halves(block.instructions):
                for name, amount in _counted(instruction, vector_bits):
                    counts[name] += amount * block.runs * times
    return Executed(parallel, serial, any(function.guessed for function in functions))


def _without_second_halves(instructions: Sequence[str]) -> list[str]:
    """Return the instructions without cosines of values whose sine is computed too: LLVM computes both in one call."""
    sines = {_CALLED.split(line)[-1] for line in instructions if "@llvm.sin." in line}
    return [line for line in instructions if not ("@llvm.cos." in line and _CALLED.split(line)[-1] in sines)]


def _counted(instruction: str, vector_bits: int) -> Iterator[tuple[str, float]]:
    """Yield the classes of one instruction, each with its amount."""
    text = instruction.split(" = ", 1)[-1]
    operation, _, rest = text.partition(" ")
    if operation in ("tail", "musttail", "notail"):
        operation, _, rest = rest.partition(" ")
    lanes, bits = _width(rest)
    registers = math.ceil(lanes * bits / vector_bits)
    odd = lanes.bit_count() > 1
    if operation == "phi" and odd and registers > 1:
        yield "odd_lanes", lanes
    if operation in _FREE:
        return
    if odd:
        yield "odd_registers", registers
    if operation in _BY_REGISTER:
        yield _BY_REGISTER[operation], registers
    elif operation in _INTEGER:
        yield ("integer_vectors", registers) if lanes > 1 else ("integers", 1)
    elif operation in ("load", "store"):
        yield (f"{operation}s", _pieces(lanes, bits, vector_bits)) if lanes > 1 else (f"scalar_{operation}s", 1)
    elif operation == "call":
        yield from _of_call(rest, lanes, bits, vector_bits)
    elif operation == "br":
        if rest.startswith("i1"):
            yield "branches", 1
    elif operation == "switch":
        yield "branches", 1
    elif operation == "fdiv":
        yield "divisions", max(lanes * bits / _DIVISION_BITS, 1.0)
    elif operation == "frem" and _is_power_of_two(_divisor(rest)):
        if lanes.bit_count() == 1:
            yield "arithmetic", _OF_ROUNDED_QUOTIENT * registers
        else:  # LLVM takes the vector apart
            yield from (("arithmetic", _OF_ROUNDED_QUOTIENT * lanes), ("extracted", lanes), ("inserted", lanes))
    elif operation == "frem":  # LLVM calls the C library for each lane
        yield "functions", lanes * FUNCTION_COSTS["fmod"]
    elif operation in _INTEGER_DIVISIONS and (divisor := _divisor(rest)) is not None:  # a product in place of it
        yield "products", 0 if _is_power_of_two(divisor) else registers
        yield ("integer_vectors", _OF_SHIFTS * registers) if lanes > 1 else ("integers", _OF_SHIFTS)
    elif operation in _INTEGER_DIVISIONS:
        yield "integer_divisions", lanes
    elif operation == "insertelement":
        if not (_SPLAT[0] in rest and rest.endswith(_SPLAT[1])):
            yield "inserted", 1
    elif operation == "shufflevector":
        if not rest.endswith("zeroinitializer"):
            yield "shuffled", registers
    elif operation == "extractelement":
        yield "extracted", 1
    elif operation in _CONVERSIONS or (operation in _RESIZED and lanes > 1):
        yield "converted", registers


def _of_call(rest: str, lanes: int, bits: int, vector_bits: int) -> Iterator[tuple[str, float]]:
    called = _CALLED.search(rest)
    name = called[1] if called is not None else ""
    pieces = _pieces(lanes, bits, vector_bits)
    if _EXPONENTIAL.search(name):
        yield "exponentials", lanes
    elif (function := _function_called(name)) is not None:
        yield "functions", lanes * FUNCTION_COSTS[function]
    elif not name.startswith("llvm."):
        yield ("arithmetic" if _ARITHMETIC.match(name) else "runtime_calls"), 1
    elif "memcpy" in name or "memset" in name or "memmove" in name:
        size = _COPIED.search(rest)
        registers = math.ceil(int(size[1]) * 8 / vector_bits) if size is not None else 1
        yield "stores", registers
        if "memset" not in name:
            yield "loads", registers
    elif "gather" in name or "scatter" in name:
        yield "gathered", _lanes_of_mask(rest)
    elif "masked" in name:
        yield "masked", pieces
    elif "sqrt" in name:
        yield "divisions", max(lanes * bits / _DIVISION_BITS, 1.0)
    elif _ARITHMETIC.search(name):
        yield "arithmetic", math.ceil(lanes * bits / vector_bits)
    elif not _NOTHING.search(name):
        yield ("integer_vectors", pieces) if lanes > 1 else ("integers", 1)


def _divisor(rest: str) -> float | None:
    """Return the constant that a vector or a value is divided by; None if the divisor is not constant."""
    found = _CONSTANT_DIVISOR.search(rest)
    return float(found[1]) if found is not None else None


def _is_power_of_two(value: float | None) -> bool:
    return value is not None and abs(math.frexp(value)[0]) == 0.5


def _function_called(name: str) -> str | None:
    """Return the key of `FUNCTION_COSTS` for a call or an intrinsic of this name; None if the table lacks it."""
    plain = name.removeprefix("llvm.").partition(".")[0]
    return next((one for one in (plain, plain.removesuffix("f")) if one in FUNCTION_COSTS), None)


def _lanes_of_mask(rest: str) -> int:
    found = re.search(r"<(\d+) x i1>", rest)
    return int(found[1]) if found is not None else 1


def _width(rest: str) -> tuple[int, int]:
    """Return the number of lanes and the bits of the first type that an instruction names."""
    found = _TYPE.search(rest)
    if found is None:
        return 1, 64
    kind = found[2] or found[3]
    return int(found[1] or 1), _BITS.get(kind) or int(kind[1:])


def _pieces(lanes: int, bits: int, vector_bits: int) -> int:
    """Return the number of instructions that load or store a vector: one per full register, and one per power of two of
    the rest."""
    each = max(vector_bits // bits, 1)
    return lanes // each + (lanes % each).bit_count()
