"""Lowers points (sampled shapes) to fused operators for batches, and names batches."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import Target
from op_profiler.frontends.sample import SampledOperator, name_of_batch
from op_profiler.operators.kinds.point import Point, Scope
from op_profiler.operators.kinds.sizes import LARGEST_BLOCK

_ONLY_LAYOUT = frozenset({"layout_transform", "expand_dims", "squeeze", "reshape"})
_LAYOUT_SHARE = 0.1
_RANK_OF_WEIGHTS, _RANK_OF_BLOCKS = 2, 5
_REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
"""Errors that TVM raises if it has no schedule or cannot infer a type; `TVMError` is a `RuntimeError`."""


def operators_of_points(
    points: Sequence[Point], target: Target, seed: int, refused: Callable[[str], None] = lambda reason: None
) -> list[Occurrence]:
    """Lower points to operators, and return each distinct operator once.

    Every convolution is preceded by layout transformations, which would be half of all operators, so only a random
    tenth of these is included. Layout transformations that do not belong to a convolution are all included: those of
    tensors with two axes, such as the weight of a dense layer that is packed at run time, and those from one block size
    of channels to another.

    Args:
        points: points of one precision.
        seed: seed for the choice of layout transformations.
        refused: called with the reason for each point that the compiler rejects; the other points are still lowered.
    """
    try:
        lowered = _lowered(points, target)
    except _REFUSALS:
        lowered = []
        for point in points:
            try:
                lowered += _lowered([point], target)
            except _REFUSALS as error:
                refused(f"{point} cannot be lowered: {last_line(error)}")
    rng = random.Random(seed)
    return [o for o in distinct(lowered) if not _only_lays_out(o) or rng.random() < _LAYOUT_SHARE]


@interrupts_wait()
def _lowered(points: Sequence[Point], target: Target) -> list[Occurrence]:
    tvm, compiler = load_tvm(), compiler_in_use()
    fuse, on_processor = compiler.operators_of_module, target.kind.name == "llvm"
    scope = Scope(tvm.relay, lanes=compiler.vector_lanes(target) if on_processor else LARGEST_BLOCK)
    outputs = [point.expression(scope) for point in points]
    main = tvm.relay.Function([*scope.inputs, *scope.weights], tvm.relay.Tuple(outputs))
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(main))
    if points[0].precision != "int8":
        return fuse(module, target, {}, {variable.name_hint for variable in scope.weights})
    # What TVM computes from weights of int8 is fused with what reads it, unless it can be folded as in a network.
    values = {}
    for variable in module["main"].params[len(scope.inputs) :]:
        ty = variable.checked_type
        values[variable.name_hint] = tvm.nd.array(np.full([int(size) for size in ty.shape], 2, ty.dtype))
    return fuse(module, target, values, ())


def _only_lays_out(occurrence: Occurrence) -> bool:
    """Return whether an operator is only a layout transformation that belongs to a convolution."""
    operator = occurrence.operator
    of_weights = any(len(tensor.shape) == _RANK_OF_WEIGHTS for tensor in operator.inputs)
    of_blocks = all(len(tensor.shape) == _RANK_OF_BLOCKS for tensor in (*operator.inputs, *operator.outputs))
    return set(operator.op_names) <= _ONLY_LAYOUT and not of_weights and not of_blocks


def distinct(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """Return the first occurrence of each distinct operator whose inputs are tensors of static shape."""
    found: dict[str, Occurrence] = {}
    for occurrence in occurrences:
        if _is_static(occurrence):
            found.setdefault(occurrence.operator.key, occurrence)
    return list(found.values())


def sampled(occurrence: Occurrence) -> SampledOperator:
    """Return an operator in the form in which the file of a batch stores it."""
    return SampledOperator(str(load_tvm().ir.save_json(occurrence.function)), occurrence.constant)


def batch_name(label: str, identity: object) -> str:
    """Return the name of a batch: its label and a hash of everything that determines its content.

    Args:
        identity: JSON-serializable value that determines the content.
    """
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return name_of_batch(re.sub(r"[^A-Za-z0-9_.]+", "-", label), digest)


def _is_static(occurrence: Occurrence) -> bool:
    tvm = load_tvm()
    types = [parameter.checked_type for parameter in occurrence.function.params]
    return all(
        isinstance(ty, tvm.relay.TensorType) and all(isinstance(d, tvm.tir.IntImm) for d in ty.shape) for ty in types
    )
