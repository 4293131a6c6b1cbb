"""Determines which kernels a lowered module calls, in order, and which tensors they read and write."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from op_profiler.compilers.compiled_model import KernelCall, PlannedTensor
from op_profiler.compilers.relax.describe import tensors_of
from op_profiler.compilers.relax.rewrite import bindings_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, IRModule


@dataclasses.dataclass(frozen=True)
class ExecutablePlan:
    """Calls and tensors of a lowered module, as the fields of `CompiledModel` with the same names.

    Attributes:
        weights: ``tvm.runtime.Tensor`` by the names in `PlannedTensor.given`.
    """

    calls: tuple[KernelCall, ...]
    tensors: tuple[PlannedTensor, ...]
    outputs: tuple[int, ...]
    weights: dict[str, DeviceArray]


def plan_of(kernels: IRModule, inputs: Sequence[str] = ()) -> ExecutablePlan:
    """Return the calls and tensors of ``main``.

    Args:
        kernels: `kernels` of `op_profiler.compilers.relax.pipeline.LoweredModule`.
        inputs: names of the first parameters, because Relax's own importers rename the inputs of a model; further
            parameters keep their names.
    """
    walk = _Walk(kernels["main"], inputs)
    outputs = walk.numbers(kernels["main"].body.body)
    return ExecutablePlan(tuple(walk.calls), tuple(walk.tensors), outputs, walk.weights)


class _Walk:
    """Goes through the bindings of a function in order."""

    def __init__(self, function: Any, inputs: Sequence[str]) -> None:
        tvm = load_tvm()
        self._relax, self._call_tir = tvm.relax, tvm.ir.Op.get("relax.call_tir")
        self._constant = tvm.ir.GenericConst
        self.calls: list[KernelCall] = []
        self.tensors: list[PlannedTensor] = []
        self.weights: dict[str, DeviceArray] = {}
        self._numbers: dict[Any, tuple[int, ...]] = {}
        self._producers: dict[int, int] = {}
        for variable, name in itertools.zip_longest(function.params, inputs):
            self._numbers[variable] = self._new(variable.ty, given=str(variable.name) if name is None else name)
        for binding in bindings_of(function):
            self._numbers[binding.var] = self._bound(binding.value)

    def numbers(self, value: Any) -> tuple[int, ...]:
        """Return the numbers of the tensors of a value, tuples flattened."""
        if isinstance(value, self._relax.Tuple):
            return tuple(number for field in value.fields for number in self.numbers(field))
        if isinstance(value, self._relax.TupleGetItem):
            return self.numbers(value.tuple_value)[value.index : value.index + 1]
        if value not in self._numbers:
            given = f"constant {len(self._numbers)}" if isinstance(value, self._constant) else ""
            if given:
                self.weights[given] = value.value
            self._numbers[value] = self._new(value.ty, given=given)
        return self._numbers[value]

    def _new(self, ty: Any, given: str = "", view_of: int | None = None) -> tuple[int, ...]:
        first = len(self.tensors)
        self.tensors += [PlannedTensor(spec.shape, spec.dtype, given, view_of) for spec in tensors_of(ty)]
        return tuple(range(first, len(self.tensors)))

    def _bound(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, self._relax.Call):
            return self.numbers(value)
        if value.op != self._call_tir:  # what has no kernel shows its first argument in another shape
            shown = self.numbers(value.args[0]) if value.args else ()
            made = self._new(value.ty, view_of=shown[0] if shown else None)
            if shown and shown[0] in self._producers:
                self._producers |= dict.fromkeys(made, self._producers[shown[0]])
            return made
        label, reads, writes = str(value.args[0].name_hint), self.numbers(value.args[1]), self._new(value.ty)
        inputs = sorted({self._producers[number] for number in reads if number in self._producers})
        self._producers |= dict.fromkeys(writes, len(self.calls))
        self.calls.append(KernelCall(label, label, tuple(inputs), reads, writes))
        return writes
