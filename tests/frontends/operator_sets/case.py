"""One case of an operator: a model, its inputs, what its own framework computes, and what the importer makes of it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Arrays = Mapping[str, Any]

_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-3, "float64": 1e-3}


class Outcome(enum.StrEnum):
    """What became of a case."""

    AGREES = "agrees"
    REFUSED = "refused"
    DIFFERS = "differs"
    CRASHES = "crashes"
    INVALID = "invalid"
    ABSENT = "absent"


class NoSuchCaseError(LookupError):
    """A case that is counted before it is known whether there is one."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One model of one operator.

    Attributes:
        framework: onnx, torch or tflite.
        operator: the name that counts.
        what: what is off its default, with the version of the operator where there are several.
        load: the model as the tool imports it, and its inputs by name.
        expected: outputs of the framework; raises where it takes the model for wrong.
        compare_values: false where values are random or their order is open: count, shapes and types are compared.
        rounding: difference in units of the last place that two quantized outputs may have.
    """

    framework: str
    operator: str
    what: str
    load: Callable[[], tuple[Any, Arrays]]
    expected: Callable[[], Sequence[Any]]
    compare_values: bool = True
    rounding: int = 0

    @property
    def name(self) -> str:
        return f"{self.operator}: {self.what}"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one case, and why."""

    outcome: Outcome
    detail: str = ""

    @property
    def has_text_of_tvm(self) -> bool:
        """Whether a refusal is no sentence to a user."""
        from op_profiler.compilers.tvm_errors import is_internal

        return self.outcome is Outcome.REFUSED and is_internal(self.detail)


def judge(case: Case, execute: Callable[[Any, Arrays], list[Any]] | None = None) -> Verdict:
    """Import, build and run one case, and compare it with its framework.

    Args:
        execute: builds and runs a model; None for `run`, as the tool does.

    A process that dies here says nothing: who runs many cases takes that for `Outcome.CRASHES`.
    """
    from op_profiler.errors import OpProfilerError

    try:
        expected = [np.asarray(one) for one in case.expected()]
    except NoSuchCaseError:
        return Verdict(Outcome.ABSENT)
    except Exception as error:  # whatever the framework raises of a model that it takes for wrong
        return Verdict(Outcome.INVALID, _one_line(error))
    try:
        model, arrays = case.load()
        outputs = (execute or run)(model, arrays)
    except OpProfilerError as error:
        return Verdict(Outcome.REFUSED, _one_line(error))
    except Exception as error:  # a traceback to a user
        return Verdict(Outcome.CRASHES, f"{type(error).__name__}: {_one_line(error)}")
    wrong = difference(outputs, expected, values=case.compare_values, rounding=case.rounding)
    return Verdict(Outcome.DIFFERS, wrong) if wrong else Verdict(Outcome.AGREES)


def difference(outputs: Sequence[Any], expected: Sequence[Any], *, values: bool = True, rounding: int = 0) -> str:
    """What is different: count, shape, type or values; empty where nothing is."""
    if len(outputs) != len(expected):
        return f"{len(outputs)} outputs in place of {len(expected)}"
    for place, (one, right) in enumerate(zip(outputs, expected, strict=True)):
        if one.shape != right.shape:
            return f"output {place} has the shape {one.shape} in place of {right.shape}"
        if one.dtype != right.dtype:
            return f"output {place} has the type {one.dtype} in place of {right.dtype}"
        if values and (wrong := _farthest(one, right, rounding)):
            return f"output {place}: {wrong}"
    return ""


def _farthest(one: Any, right: Any, rounding: int) -> str:
    if right.dtype.kind not in "fiu" or not right.size:
        wrong = int((one != right).sum())
        return f"{wrong} of {right.size} values differ" if wrong else ""
    a, b = one.astype("float64"), right.astype("float64")
    with np.errstate(invalid="ignore"):
        off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    allowed = _TOLERANCE.get(str(right.dtype), 0.0) * scale or rounding
    if not (np.isnan(off).any() or off.max() > allowed):
        return ""
    return f"off by up to {off.max():.4g} where values reach {scale:.4g}; {int((off > allowed).sum())} of {off.size}"


def run(model: Any, arrays: Arrays) -> list[Any]:
    """Build a model as the tool does, and run it once; by the virtual machine where only run time tells sizes."""
    import tvm

    from op_profiler.building.requested_target import target_for
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.errors import OpProfilerError
    from op_profiler.targets import TARGETS
    from op_profiler.targets.target import resolve_target

    target = target_for(model, TARGETS.get("llvm"), "float32", resolve_target("llvm"))
    try:
        compiled = compile_model(model, target)
    except OpProfilerError:
        compiled = compile_model(model, target, "vm")
    wanted = {spec.name: arrays[spec.name] for spec in model.inputs}
    if compiled.executor == "vm":
        machine = tvm.runtime.vm.VirtualMachine(compiled.library, tvm.cpu())
        made = machine.invoke("main", **{name: tvm.nd.array(value) for name, value in wanted.items()})
        return [made.numpy()] if hasattr(made, "numpy") else [one.numpy() for one in made]
    from tvm.contrib import graph_executor

    library = compiled.library
    executor = graph_executor.create(library.get_graph_json(), library.get_lib(), tvm.cpu())
    executor.set_input(**library.get_params(), **{name: tvm.nd.array(value) for name, value in wanted.items()})
    executor.run()
    return [executor.get_output(i).numpy() for i in range(executor.get_num_outputs())]


def _one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if len(lines) > 3 else " ".join(lines)
    return (text.split("does not lower: ")[-1] or type(error).__name__)[:300]
