"""From a request to the model that is compiled: loaded, in its precision, with its inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.building.input_arrays import read_arrays
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.errors import ModelError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.input_shapes import free_sizes, shapes_by_name
from op_profiler.operators.cost import HEAVY
from op_profiler.targets import TARGETS

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.measure.measurement import Precision
    from op_profiler.targets.target_kind import TargetKind


def silent(**event: object) -> None:
    """In place of an announcement."""


def load_target(request: BuildRequest, announce: Callable[..., None] = silent) -> Target:
    """What a request is compiled for, once this process has the TVM of its compiler.

    Args:
        announce: told the stage before it begins.
    """
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.targets.target import resolve_target, use_build_for

    announce(stage="loading TVM")
    use_build_for(request.target, compiler=request.compiler)
    load_tvm()
    return compiled_for(request.kind, request.precision, resolve_target(request.target))


def load_model(
    request: BuildRequest, announce: Callable[..., None] = silent
) -> tuple[ImportedModel, dict[str, np.ndarray], Any]:
    """The model in its precision, the inputs that the user gave (or none), and the target to compile for.

    Args:
        announce: told the stage before it begins.

    Raises:
        ModelError: it cannot be lowered, or computes something else than in its own framework.
    """
    from op_profiler.building.agreement import with_agreement
    from op_profiler.targets.target import resolve_target

    COMPILERS.get(request.compiler).expect_model(request.model)
    target = load_target(request, announce)
    announce(stage="lowering")
    model = original_model(request.model)
    _check_control(request, model)
    target = target_for(model, request.kind, request.precision, target)
    inputs = given_inputs(request, model)
    model = with_agreement(request, model, inputs, announce)
    if request.precision != "float32" and not FRONTENDS.get(request.model.source).has_precisions:
        if request.precision == "int8":
            announce(stage="calibrating")
        host = compiled_for(TARGETS.get("llvm"), "int8", resolve_target("llvm"))
        model = compiler_in_use().convert(
            model, request.precision, inputs or random_inputs(static_inputs(model, request)), host
        )
    return model, inputs, target


def _check_control(request: BuildRequest, model: ImportedModel) -> None:
    """Refuse what the graph executor does not run, and whose calls cannot be counted before it runs.

    Raises:
        ModelError: names the executor that runs it.
    """
    open_ones = compiler_in_use().open_control(model.mod) if request.executor != "vm" else ()
    if open_ones:
        what = " and ".join(open_ones)
        raise ModelError(
            f"{model.name} has {what} that only run time decides, so its calls are not known beforehand; measure it "
            "with op-profiler collect --executor vm"
        )


def notes_of_control(model: ImportedModel) -> tuple[str, ...]:
    """What the user should know of calls that were counted without a run."""
    what = " and ".join(compiler_in_use().open_control(model.mod))
    return (f"calls in {what} are counted once: only a run tells how often they happen",) if what else ()


def compiled_for(kind: TargetKind, precision: Precision, target: Target) -> Target:
    """The target that a model in a precision is compiled for."""
    return kind.for_int8(target) if precision == "int8" else target


def target_for(model: ImportedModel, kind: TargetKind, precision: Precision, target: Target) -> Target:
    """The target that a loaded model is compiled for: one that came quantized is as one that was asked for in int8."""
    return compiled_for(kind, "int8" if _came_quantized(model) else precision, target)


def _came_quantized(model: ImportedModel) -> bool:
    """Whether a model has heavy operators of eight bits by itself, as files of quantizers have."""
    from op_profiler.compilers.tvm_build import load_tvm

    relay, found = getattr(load_tvm(), "relay", None), False
    main = model.mod["main"]
    if relay is None:  # today's TVM converts nothing to int8
        return False

    def visit(node: object) -> None:
        nonlocal found
        if isinstance(node, relay.Call) and getattr(node.op, "name", "").replace("qnn.", "nn.") in HEAVY:
            found |= getattr(node.args[0].checked_type, "dtype", "") in ("int8", "uint8")

    relay.analysis.post_order_visit(main, visit)
    return found


def original_model(request: ModelRequest) -> ImportedModel:
    """The model as its source has it."""
    from op_profiler.frontends.lowered_cache import load_cached

    return load_cached(FRONTENDS.get(request.source), request)


def random_inputs(specs: list[InputSpec]) -> dict[str, np.ndarray]:
    """The same arrays in every process."""
    import numpy as np

    rng = np.random.default_rng(0)
    return {spec.name: spec.random(rng) for spec in specs}


def given_inputs(request: BuildRequest, model: ImportedModel) -> dict[str, np.ndarray]:
    """The arrays of ``--inputdata``; empty where none were given.

    Raises:
        UsageError: the file does not hold an array of the right shape for every input.
    """
    if request.input_data is None:
        return {}
    arrays = read_arrays(Path(request.input_data))
    found = {}
    for spec in static_inputs(model, request):
        array = arrays.get(spec.name)
        if array is None or array.shape != tuple(spec.shape):
            have = "no such array" if array is None else f"shape {array.shape}"
            raise UsageError(
                f"--inputdata: {model.name} needs {spec.name!r} of shape {tuple(spec.shape)}; there is {have}"
            )
        found[spec.name] = array.astype(spec.dtype)
    return found


def static_inputs(model: ImportedModel, request: BuildRequest) -> list[Any]:
    """The model's inputs with every dynamic dimension replaced by the size that the user gave.

    Raises:
        ModelError: there are dynamic dimensions, and no sizes for them or not the executor that can run them.
    """
    if all(None not in spec.shape for spec in model.inputs):
        return list(model.inputs)
    specs = []
    given = shapes_by_name(request.model, [spec.name for spec in model.inputs])
    for spec in model.inputs:
        if None in spec.shape:
            shape = given.get(spec.name, ())
            fixed = all(size in (None, wanted) for size, wanted in zip(spec.shape, shape))
            if len(shape) != len(spec.shape) or not fixed or request.executor != "vm":
                free = free_sizes({one.name: one.shape for one in model.inputs})
                raise ModelError(
                    f"{model.name} cannot be measured: {free}. Add --executor vm where sizes depend on values"
                )
            spec = dataclasses.replace(spec, shape=shape)
        specs.append(spec)
    return specs
