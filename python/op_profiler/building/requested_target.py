"""The target that the model of a request is compiled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from op_profiler.compilers.relay_rewriting import calls_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.cost import HEAVY
from op_profiler.targets.target import resolve_target, use_build_for

if TYPE_CHECKING:
    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.measure.measurement import Precision
    from op_profiler.targets.target_kind import TargetKind


def silent(**event: object) -> None:
    """Ignore an announcement."""


def load_target(request: BuildRequest, announce: Callable[..., None] = silent) -> Target:
    """Return the target of a request; this process then uses the TVM of the request's compiler.

    Args:
        announce: called with the name of each stage before the stage begins.
    """
    announce(stage="loading TVM")
    use_build_for(request.target, compiler=request.compiler)
    load_tvm()
    return compiled_for(request.kind, request.precision, resolve_target(request.target))


def compiled_for(kind: TargetKind, precision: Precision, target: Target) -> Target:
    """Return the target for which a model in this precision is compiled: `target`, or for int8 a variant of it."""
    return kind.for_int8(target) if precision == "int8" else target


def target_for(model: ImportedModel, kind: TargetKind, precision: Precision, target: Target) -> Target:
    """Return the target for which a loaded model is compiled; a model that is already quantized is treated like
    int8."""
    return compiled_for(kind, "int8" if _came_quantized(model) else precision, target)


def _came_quantized(model: ImportedModel) -> bool:
    """Return whether a model already has heavy 8-bit operators, as files of quantizers have."""
    if getattr(load_tvm(), "relay", None) is None:  # today's TVM converts nothing to int8
        return False
    calls = calls_in(model.mod["main"])
    heavy = [call for call in calls if getattr(call.op, "name", "").replace("qnn.", "nn.") in HEAVY]
    return any(getattr(call.args[0].checked_type, "dtype", "") in ("int8", "uint8") for call in heavy)
