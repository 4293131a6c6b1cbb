"""The model of a request as it is compiled: loaded, in its precision, with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from op_profiler.building.agreement import with_agreement
from op_profiler.building.requested_inputs import given_inputs, random_inputs, static_inputs
from op_profiler.building.requested_target import compiled_for, load_target, silent, target_for
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import ModelError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.lowered_cache import original_model
from op_profiler.targets import TARGETS
from op_profiler.targets.target import resolve_target

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel


def load_model(
    request: BuildRequest, announce: Callable[..., None] = silent, compared_kinds: set[str] | None = None
) -> tuple[ImportedModel, dict[str, np.ndarray], Any]:
    """Return the model in its precision, the user's inputs (empty if not given), and the target to compile for.

    Args:
        announce: called with the name of each stage before the stage begins.
        compared_kinds: as in `with_agreement`.

    Raises:
        ModelError: the model cannot be lowered, or its outputs differ from those of its own framework.
    """
    COMPILERS.get(request.compiler).expect_model(request.model)
    target = load_target(request, announce)
    announce(stage="lowering")
    model = original_model(request.model)
    _check_control(request, model)
    target = target_for(model, request.kind, request.precision, target)
    inputs = given_inputs(request, model)
    model = with_agreement(request, model, inputs, announce, compared_kinds)
    if request.precision != "float32" and not FRONTENDS.get(request.model.source).has_precisions:
        if request.precision == "int8":
            announce(stage="calibrating")
        host = compiled_for(TARGETS.get("llvm"), "int8", resolve_target("llvm"))
        model = compiler_in_use().convert(
            model, request.precision, inputs or random_inputs(static_inputs(model, request)), host
        )
    return model, inputs, target


def _check_control(request: BuildRequest, model: ImportedModel) -> None:
    """Reject models that the graph executor cannot run, and whose calls cannot be counted before a run.

    Raises:
        ModelError: the message names the executor that can run it.
    """
    open_ones = compiler_in_use().open_control(model.mod) if request.executor != "vm" else ()
    if open_ones:
        what = " and ".join(open_ones)
        raise ModelError(
            f"{model.name} has {what} that only run time decides, so its calls are not known beforehand; measure it "
            "with op-profiler collect --executor vm"
        )


def notes_of_control(model: ImportedModel) -> tuple[str, ...]:
    """Return a note for the user if the model has branches or loops whose number of runs is unknown, so that calls in
    them are counted once; otherwise nothing."""
    what = " and ".join(compiler_in_use().open_control(model.mod))
    return (f"calls in {what} are counted once: their number is known only after a run",) if what else ()
