"""Results of compilers: the operator calls of a model, and models that are ready to run."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.operators.locations import values
from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    from op_profiler.schedules.schedule import Schedule

Launch = dict[str, list[int]]
"""One launch of a GPU kernel: ``grid`` and ``block``, each x, y, z."""


@dataclasses.dataclass(frozen=True)
class Occurrence:
    """One call of an operator in a model.

    Attributes:
        operator: the called operator.
        label: the compiler's name of the function; the fused function and the kernel in the built model have the same
            label.
        function: the operator as an object of the compiler, for example a fused Relay function.
        constant: for each parameter of the function, whether the model passes a constant (a weight).
        anchor_signature: the key by which the compiler chooses a schedule.
        locations: texts of the `operators.locations.Location` of the operator's ops, the anchor's first and the others
            in execution order; empty if unknown.
        pipeline: pipeline that lowers the model, see `op_profiler.compilers.pipelines`.
    """

    operator: Operator
    label: str
    function: Any
    constant: tuple[bool, ...]
    anchor_signature: str
    locations: tuple[str, ...] = ()
    pipeline: str = DEFAULT_PIPELINE

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers of the user's model that this call computes, in the order of `locations`."""
        return values(self.locations, "layer")


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """A tensor of a built model.

    Attributes:
        given: name of the input or weight; empty for computed tensors.
        view_of: index of the tensor of which this tensor is a view in another shape, which no kernel computes; None if
            this tensor is not a view.
    """

    shape: tuple[int, ...]
    dtype: str
    given: str = ""
    view_of: int | None = None


@dataclasses.dataclass(frozen=True)
class KernelCall:
    """A call of a kernel in a built model.

    Attributes:
        name: name of the function in the library.
        label: `Occurrence.label` of its operator.
        inputs: positions, in execution order, of the calls whose outputs this call reads; ascending, no duplicates.
        reads, writes: indices in `CompiledModel.tensors` of the tensors that the function reads and writes. Its
            arguments are first the tensors that it reads, then those that it writes.
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
        library: kernels, with the compiler's own plan of their calls.
        occurrences: calls of operators in execution order, as they are before the compiler plans kernel calls.
        by_label: one occurrence for every kernel, by its label.
        build_seconds: time that the compiler took.
        executor: ``graph``, or ``vm`` if shapes are known only at run time.
        calls: calls of kernels in execution order, with the data flow; empty for the vm.
        tensors: tensors that the kernels read and write; empty for the vm.
        outputs: numbers of the tensors that are outputs of the model.
        launches: by label, the launches of each kernel on a GPU; empty for processors and for the vm.
        loops: by label, the number of iterations of each parallel loop of a kernel on a processor, in order; kernels
            without such loops are missing.
        code: by label, the readable code of each kernel before its loops are unrolled; long code is left out.
        left_out: names of the compiler's passes that could not be applied.
        notes: notes about the build for the user.
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

    def locations_of(self, labels: Sequence[str]) -> list[tuple[str, ...]]:
        """Return `Occurrence.locations` for each kernel call; empty for a call whose label does not occur equally often
        in `occurrences` and in `labels`.

        Args:
            labels: labels of all calls in execution order. Calls with equal labels are assigned to the occurrences with
                this label in order.
        """
        waiting: dict[str, list[tuple[str, ...]]] = {}
        for occurrence in self.occurrences:
            waiting.setdefault(occurrence.label, []).append(occurrence.locations)
        known = {label: iter(calls) for label, calls in waiting.items() if len(calls) == labels.count(label)}
        return [next(known[label]) if label in known else () for label in labels]

    def layers_of(self, labels: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the layers of each kernel call, as `locations_of` returns the locations."""
        return [values(locations, "layer") for locations in self.locations_of(labels)]

    def launch_counts(self, labels: Sequence[str]) -> tuple[int, ...]:
        """Return the number of kernels that a GPU launches for each call of `labels`."""
        return tuple(len(self.launches.get(label, ())) for label in labels)

    def only_read(self, weights: Collection[str]) -> dict[str, int]:
        """Return, by name, the indices in `tensors` of those `weights` that only kernels read. Weights that are outputs
        or are viewed in another shape are left out, because their memory belongs to the executor."""
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
        schedules: schedules of the operators in the build, by workload key.
        asked: computations for which the build looked up schedule records.
        refused: the computations in `asked` whose record did not fit.
        notes: notes for the user about the build and the records that it used.
        kept: name of the build in the cache (`building.build_cache.read_kept`); empty if it is not in the cache.
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
        occurrences: the operators in the order of their calls.
        asked: computations for which the build would look up schedule records.
        by_rule: keys of the operators whose schedules the rule of ``--schedules rule`` would choose.
        notes: notes for the user about the records that a build would use.
    """

    occurrences: Sequence[Occurrence]
    asked: frozenset[str]
    by_rule: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
