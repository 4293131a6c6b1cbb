"""Fused functions for batches, from points of the kinds and from models."""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Callable, Iterable, Sequence

from op_profiler.compilers.compiled_model import Occurrence
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import last_line
from op_profiler.compilers.tvm_types import Target
from op_profiler.frontends.sample import Sampled, name_of_batch
from op_profiler.operators.kinds.point import Point, Scope

_ONLY_LAYOUT = frozenset({"layout_transform", "expand_dims", "squeeze", "reshape"})
_LAYOUT_SHARE = 0.1
_RANK_OF_WEIGHTS, _RANK_OF_BLOCKS = 2, 5
_REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, AssertionError)
"""What TVM raises where it has no schedule or cannot infer a type; its own errors are `RuntimeError`s."""


def operators_of_points(
    points: Sequence[Point], target: Target, seed: int, refused: Callable[[str], None] = lambda reason: None
) -> list[Occurrence]:
    """Lower points to operators, each once.

    Changes of layout alone stand in front of every convolution and would be half of all operators; a few are kept, and
    all that no convolution brings along: of what has two axes, as the weight of a dense layer that is packed at run
    time, and from one block of channels to another.

    Args:
        points: of one precision.
        refused: told of each point that the compiler does not take; the others are lowered all the same.
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
    import numpy as np

    tvm, fuse = load_tvm(), compiler_in_use().operators_of_module
    scope = Scope(tvm.relay)
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
    """Whether it is a change of layout alone, as a convolution brings it along."""
    operator = occurrence.operator
    of_weights = any(len(tensor.shape) == _RANK_OF_WEIGHTS for tensor in operator.inputs)
    of_blocks = all(len(tensor.shape) == _RANK_OF_BLOCKS for tensor in (*operator.inputs, *operator.outputs))
    return set(operator.op_names) <= _ONLY_LAYOUT and not of_weights and not of_blocks


def distinct(occurrences: Iterable[Occurrence]) -> list[Occurrence]:
    """The first occurrence of each operator that can be put into a batch: its inputs are tensors of known shape."""
    found: dict[str, Occurrence] = {}
    for occurrence in occurrences:
        if _is_static(occurrence):
            found.setdefault(occurrence.operator.key, occurrence)
    return list(found.values())


def sampled(occurrence: Occurrence) -> Sampled:
    """An operator as a batch keeps it."""
    return Sampled(str(load_tvm().ir.save_json(occurrence.function)), occurrence.constant)


def batch_name(label: str, identity: object) -> str:
    """Return a name from the label and from everything that decides the batch's content.

    Args:
        identity: plain JSON values.
    """
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
    return name_of_batch(re.sub(r"[^A-Za-z0-9_.]+", "-", label), digest)


def _is_static(occurrence: Occurrence) -> bool:
    tvm = load_tvm()
    types = [parameter.checked_type for parameter in occurrence.function.params]
    return all(
        isinstance(ty, tvm.relay.TensorType) and all(isinstance(d, tvm.tir.IntImm) for d in ty.shape) for ty in types
    )
