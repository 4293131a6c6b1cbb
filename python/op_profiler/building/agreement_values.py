"""Inputs with which an imported model is compared with its own framework, and the decision whether two outputs agree.

The two sides add in different orders, so their outputs differ by rounding, and a deep or badly conditioned network
amplifies the difference. The amplification is measured: the framework also runs on inputs whose last digit is changed,
torch also with the last digit of each sum changed, and rounding may change outputs as much as that does (the condition
of a problem; Higham, Accuracy and Stability of Numerical Algorithms, 2002, 1.6).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from op_profiler.compilers.imported_model import InputSpec

_ROUNDINGS = 80
"""Allowed error of sums of some thousand products, in units of the last digit. Generous: errors of resnet18,
squeezenet1_1 and bert were at most 4 % of the limit (by hand); an artificial fault exceeds it by far.
"""
_CONDITION = 8
"""Factor between the effect of rounding in each layer and the effect of rounding of the inputs alone."""
_QUANTIZED_STEP = 0.02
"""Step of an 8-bit number, by which roundings of frameworks differ, relative to the values of a usual tensor."""
_WHOLE_SHARE = 1e-3
"""For integers, such as positions of the largest value: the share of elements that ties may change."""
_UNDECIDED = 0.2
"""If rounding may cause errors above this limit, the comparison decides nothing."""
_DEPENDS = 1e-3
"""If outputs change relatively less than this when all inputs change, they show little of what was computed."""
SCALES = (1.0, 1e3, 1e6, 1e9)
"""Scales of the inputs: networks with untrained weights may shrink signals layer by layer until only biases remain."""


@dataclasses.dataclass(frozen=True)
class Difference:
    """Comparison of two outputs.

    Attributes:
        why: what differs in kind: count, shape or type; empty if only values may differ.
        error: largest difference of two elements, divided by the framework's element plus a typical one (absolute
            values); for integers, the share of elements that differ.
        allowed: error that rounding explains; infinite if rounding decides the values.
        shows: whether agreement proves that both compute the same; False if the values hardly depend on the inputs.
    """

    why: str = ""
    error: float = 0.0
    allowed: float = 0.0
    shows: bool = True

    @property
    def agrees(self) -> bool:
        """Whether both outputs have the same kind and the error is at most what rounding explains."""
        return not self.why and self.error <= self.allowed

    @property
    def is_decided(self) -> bool:
        """Whether the values can be judged: rounding explains errors of at most 0.2, or the kinds differ."""
        return bool(self.why) or self.allowed <= _UNDECIDED


def batches_of(
    specs: Sequence[InputSpec], given: Mapping[str, np.ndarray], scale: float = 1.0
) -> list[dict[str, np.ndarray]]:
    """Return four batches of inputs: two that differ in every element, and the same two with the last digit changed.

    In the second batch, numbers have the opposite sign, so conditions, booleans and counts differ.

    Args:
        given: the user's inputs, whose elements are reversed for the second batch.
        scale: scale of the numbers that are not integers.
    """
    rng = np.random.default_rng(0)
    drawn = {s.name: s.random(rng) for s in specs}
    drawn = {name: (a * scale).astype(a.dtype) if a.dtype.kind == "f" else a for name, a in drawn.items()}
    first = drawn | dict(given)
    second = {s.name: np.flip(first[s.name]) if s.name in given else _mirrored(first[s.name], s) for s in specs}
    return [first, second, _moved(first, rng), _moved(second, rng)]


def _mirrored(array: np.ndarray, spec: InputSpec) -> np.ndarray:
    if array.dtype.kind == "f":
        return (-2 * array).astype(array.dtype)
    return (spec.low + spec.high - 1 - array.astype(np.int64)).astype(array.dtype)


def _moved(batch: Mapping[str, np.ndarray], rng: np.random.Generator) -> dict[str, np.ndarray]:
    def one(array: np.ndarray) -> np.ndarray:
        if array.dtype.kind != "f":
            return array
        digits = np.finfo(array.dtype).eps * rng.uniform(-1, 1, array.shape)
        return (array * (1 + digits)).astype(array.dtype)

    return {name: one(array) for name, array in batch.items()}


def dependence(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    """Return the relative change of the outputs when all inputs change, the smallest over the outputs; infinite if no
    output is floating point, NaN if some values are not finite.

    Args:
        first, second: all outputs, for two batches of inputs that differ in every element.
    """
    pairs = [(a, b) for a, b in zip(first, second) if a.dtype.kind == "f" and a.shape == b.shape and a.size]
    shares = [_rms(a.astype(np.float64) - b) / (_rms(a) or 1.0) for a, b in pairs]
    return math.nan if any(map(math.isnan, shares)) else min(shares, default=math.inf)


def _rms(values: np.ndarray) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        size = float(np.sqrt(np.mean(np.square(values, dtype=np.float64))))
    return size if math.isfinite(size) else math.nan


def depth_of(calls: int) -> float:
    """Return the factor by which errors of a model's layers add up if they are independent: the square root of
    `calls`, the number of kernel calls."""
    return math.sqrt(max(calls, 1))


def difference(
    ours: np.ndarray,
    theirs: np.ndarray,
    moved: np.ndarray,
    other: np.ndarray,
    *,
    depth: float,
    digits: str,
    quantized: bool,
) -> Difference:
    """Compare an output of an imported model with that of the model in its own framework.

    Args:
        ours: the model's output; `theirs`: the framework's output for the same inputs.
        moved: the framework's output for inputs whose last digit is changed.
        other: the framework's output for other inputs.
        depth: `depth_of` the model.
        digits: type of the model's least exact numbers, such as ``float16``.
        quantized: whether the model computes in integers of few bits.
    """
    if ours.shape != theirs.shape:
        return Difference(why=f"has shape {ours.shape}, which is {theirs.shape} in its own framework")
    kinds = {ours.dtype.kind, theirs.dtype.kind}
    if len(kinds) > 1 and kinds & {"b", "f"}:
        return Difference(why=f"is of {ours.dtype}, which is {theirs.dtype} in its own framework")
    if not theirs.size:
        return Difference()
    if theirs.dtype.kind == "f" or quantized:
        unit = _ROUNDINGS * _eps(digits) if not quantized else _QUANTIZED_STEP
        size = _rms(theirs)
        moves = _rms(theirs.astype(np.float64) - other) if other.shape == theirs.shape else size
        typical = min(size, moves) if moves > unit * size else size  # less is rounding, and no measure of anything
        own = _relative(moved, theirs, typical)
        allowed = depth * (unit + _CONDITION * own) if math.isfinite(own) else math.inf
        shows = not moves < _DEPENDS * size and not (size and not moves)
        return Difference(error=_relative(ours, theirs, typical), allowed=allowed, shows=shows)
    own = float(np.mean(moved != theirs))
    return Difference(error=float(np.mean(ours != theirs)), allowed=_WHOLE_SHARE + depth * _CONDITION * own)


def _eps(digits: str) -> float:
    """Return the distance from 1 to the next number; most frameworks add float16 in float32, TVM does not."""
    return {"float16": 2.0**-14, "bfloat16": 2.0**-11}.get(digits, 2.0**-23)


def _relative(ours: np.ndarray, theirs: np.ndarray, typical: float) -> float:
    """Return the largest difference, divided by the sum of the size of the value and of a usual value; infinite if only
    one of the two values is finite, or if they are infinite with different signs.
    """
    a, b = ours.astype(np.float64).ravel(), theirs.astype(np.float64).ravel()
    finite = np.isfinite(b)
    if not np.array_equal(np.isfinite(a), finite) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return math.inf
    a, b = a[finite], b[finite]
    if not a.size:
        return 0.0
    scale = np.abs(b) + (0.0 if math.isnan(typical) else typical)
    with np.errstate(invalid="ignore", divide="ignore"):
        errors = np.where(a == b, 0.0, np.abs(a - b) / scale)
    return float(errors.max())
