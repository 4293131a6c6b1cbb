"""What compilers give: operators where a model calls them, and models that are ready to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    from op_profiler.schedules.schedule import Schedule

Launch = dict[str, list[int]]
"""One launch of a GPU's kernel: ``grid`` and ``block``, each x, y, z."""


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """One call of an operator in a model.

    Attributes:
        operator: what is called.
        label: the compiler's name of the function that stays the same from fusing to the kernels of the built model.
        function: the compiler's own form of it.
        constant: for each of its parameters, whether the model passes a constant (a weight).
        anchor_signature: what the compiler chooses a schedule by.
        layers: of the user's model that went into this call, that of the anchor first and the others in the order of
            execution; empty where they are not known.
        pipeline: that the model is lowered by, see `op_profiler.compilers.pipelines`.
    """

    operator: Operator
    label: str
    function: Any
    constant: tuple[bool, ...]
    anchor_signature: str
    layers: tuple[str, ...] = ()
    pipeline: str = DEFAULT_PIPELINE


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """A tensor of a built model.

    Attributes:
        given: name of the input or the weight that it is; empty for what the model computes.
        view_of: number of the tensor that it shows in another shape, without a kernel; None where it is none.
    """

    shape: tuple[int, ...]
    dtype: str
    given: str = ""
    view_of: int | None = None


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """A call of a kernel in a built model.

    Attributes:
        name: of the function in the library.
        label: `Occurrence.label` of what it computes.
        inputs: the calls whose outputs it reads, each once, rising: numbers in execution order.
        reads, writes: numbers of the tensors that the function takes, in this order.
    """

    name: str
    label: str
    inputs: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class CompiledModel:
    """A model that is ready to run.

    Attributes:
        library: of kernels, with the compiler's own plan of their calls.
        occurrences: calls of operators in execution order, as the compiler has them before it plans their calls.
        by_label: one occurrence for every kernel that may be called, by its label.
        build_seconds: time that the compiler took.
        executor: ``graph``, or ``vm`` where shapes are known at run time only.
        calls: of kernels in execution order, with who reads whose output; empty for the vm.
        tensors: that the kernels read and write; empty for the vm.
        outputs: numbers of the tensors that the model answers with.
        launches: by label, how a GPU launches each kernel; empty for processors and for the vm.
        loops: the same for a processor: how many iterations each parallel loop of a kernel has, in order;
            kernels without such loops are left out.
        code: by label, the code of each kernel before its loops are unrolled, for people to read; those that are too
            long are left out.
        left_out: names of the compiler's passes that could not be used.
        notes: what the user should know about the build.
    """

    library: Any
    occurrences: tuple[Occurrence, ...]
    by_label: dict[str, Occurrence]
    build_seconds: float
    executor: str
    calls: tuple[KernelCall, ...] = ()
    tensors: tuple[PlannedTensor, ...] = ()
    outputs: tuple[int, ...] = ()
    launches: dict[str, list[Launch]] = dataclasses.field(default_factory=dict)
    loops: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    code: dict[str, str] = dataclasses.field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def layers_of(self, labels: Sequence[str]) -> list[tuple[str, ...]]:
        """`Occurrence.layers` of the calls of kernels.

        Args:
            labels: of all calls, in the order of their execution. Calls with the same label compute the same, and come
                in the order of `occurrences`.
        """
        waiting: dict[str, list[tuple[str, ...]]] = {}
        for occurrence in self.occurrences:
            waiting.setdefault(occurrence.label, []).append(occurrence.layers)
        known = {label: iter(layers) for label, layers in waiting.items() if len(layers) == labels.count(label)}
        return [next(known[label]) if label in known else () for label in labels]

    def launch_counts(self, labels: Sequence[str]) -> tuple[int, ...]:
        """How many kernels a GPU launches for each call of `labels`."""
        return tuple(len(self.launches.get(label, ())) for label in labels)

    def only_read(self, weights: Collection[str]) -> dict[str, int]:
        """Of these weights those that only kernels read, with the numbers of their tensors; of what is seen in another
        shape or answered, the memory is the executor's."""
        viewed = {*self.outputs, *(tensor.view_of for tensor in self.tensors)}
        return {
            tensor.given: number
            for number, tensor in enumerate(self.tensors)
            if tensor.given in weights and number not in viewed
        }


@dataclasses.dataclass(frozen=True)
class BuiltModel:
    """A model that was built with schedule records.

    Attributes:
        schedules: what the build gave to the operators, by workload key.
        asked: computations that it looked for schedule records of.
        refused: those of them whose record was there and did not fit.
        notes: what the user should know about the build and the records that it took.
        kept: where the cache keeps it (`building.build_cache.read_kept`); empty where it does not.
    """

    compiled: CompiledModel
    schedules: dict[str, Schedule]
    asked: frozenset[str]
    refused: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    kept: str = ""


@dataclasses.dataclass(frozen=True)
class FusedOperators:
    """The operators that a build would compile.

    Attributes:
        occurrences: in the order of the calls.
        asked: computations that the build would look for schedule records of.
        notes: what the user should know about the records that it would take.
    """

    occurrences: Sequence[Occurrence]
    asked: frozenset[str]
    notes: tuple[str, ...] = ()
