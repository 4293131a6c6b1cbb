"""The compiler Relay, with AutoTVM's tasks and schedule records (TVM up to 0.19)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from op_profiler.c_compiler import make_library
from op_profiler.compilers.bound_kernel import Bound
from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, FusedOperators, Occurrence
from op_profiler.compilers.compiler import BuildOptions, Compiler
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.relay import (
    compiled_files,
    gpu_defaults,
    long_rows,
    lower,
    outer_products,
    packed_layouts,
)
from op_profiler.compilers.relay.applied_records import applied
from op_profiler.compilers.relay.calls import PackedCall, call_library, chain
from op_profiler.compilers.relay.chosen import LOOPS_BY_RULE, chosen_schedules, weigh_all
from op_profiler.compilers.relay.control import open_control
from op_profiler.compilers.relay.eight_bit_products import use_exact_products
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.relay.merge_parallel import merged
from op_profiler.compilers.relay.rebuilt import rebuilt_operator, relay_function
from op_profiler.compilers.relay.remote import RemoteGraph, probe_code
from op_profiler.compilers.relay.sums import build_sums
from op_profiler.compilers.relay.tasks import anchor_of, own_tasks, tunables
from op_profiler.compilers.relay.templates import register_templates
from op_profiler.compilers.relay.virtual_machine import VmKernels, operators_at_run_time
from op_profiler.compilers.tuning_contract import TEMPLATES
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.operators.cost import HEAVY
from op_profiler.schedules.schedule import OWN_TEMPLATE
from op_profiler.schedules.usable_records import UsableRecords, ruled
from op_profiler.tuning.candidate import TaskSpec

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.bound_kernel import BoundKernel
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.loop_nest import Kernel
    from op_profiler.compilers.relay.chosen import ChosenSchedules
    from op_profiler.compilers.remote_model import RemoteMachine, RemoteModel
    from op_profiler.compilers.sum_of_products import SumOfProducts
    from op_profiler.compilers.tvm_types import (
        DeviceArray,
        Function,
        IRModule,
        PackedFunction,
        RuntimeDevice,
        RuntimeModule,
        Target,
    )
    from op_profiler.measure.kernels import GraphKernels
    from op_profiler.operators.operator import Operator
    from op_profiler.targets.machine import TimedModel
    from op_profiler.tuning.task import Task
    from op_profiler.tuning.tunable import Tunable


class RelayCompiler(Compiler):
    """The compiler ``relay``, which builds a model by one call of `relay.build`."""

    name = "relay"
    takes_builds_of_targets = True
    linking = "tvm.contrib"
    needs = (
        "The compiler relay needs Relay and AutoTVM, TVM 0.8 to 0.19: source ./env_var.sh installs one, or set "
        "TVM_HOME to a build of your own."
    )

    def check_search(self, build: BuildOptions, *, tuned: bool, vendor: bool) -> None:
        """Accept every search: AutoTVM tunes for processors, GPUs and boards."""
        return

    def prepare_tvm(self, tvm: ModuleType) -> None:
        """Import AutoTVM, Relay and TOPI, and replace schedules and defaults of these that are slow or wrong."""
        from tvm import autotvm, relay, topi

        # Schedules for cuda ask for TopHub's reference logs over the network even where TOPHUB_LOCATION is NONE.
        autotvm.tophub.load_reference_log = lambda *_: []
        autotvm.task.space.FallbackConfigEntity.fallback_with_reference_log = gpu_defaults.choose
        autotvm.task.space.FallbackConfigEntity.define_split = gpu_defaults.define_split
        autotvm.task.space.FallbackConfigEntity.__setitem__ = gpu_defaults.set_knob
        for name in ("schedule_conv1d_ncw", "schedule_group_conv1d_ncw"):
            if hasattr(topi.x86, name):  # not both in TVM 0.8
                setattr(topi.x86, name, long_rows.in_short_vectors(getattr(topi.x86, name)))
        topi.x86.schedule_batch_matmul = outer_products.without_partial_sums(topi.x86.schedule_batch_matmul)
        use_exact_products(topi)
        packed_layouts.repair(tvm)
        # TVM calls it for every dimension that it lowers, and each call reads eighty values.
        if hasattr(relay.backend, "te_compiler"):  # not in TVM 0.8
            relay.backend.te_compiler.libinfo = functools.cache(tvm.support.libinfo)

    @interrupts_wait()
    def convert(
        self, model: ImportedModel, precision: str, inputs: Mapping[str, np.ndarray], host: Target
    ) -> ImportedModel:
        """Convert with Relay's mixed-precision pass (float16) or its quantizer (int8)."""
        from op_profiler.compilers.relay.precision import in_precision

        return in_precision(model, precision, inputs, host)

    def open_control(self, module: IRModule) -> tuple[str, ...]:
        """Return ``loops`` if the module has a recursive function, else ``branches`` if it has an ``If``."""
        return open_control(module)

    @interrupts_wait()
    def merge_parallel(self, model: ImportedModel) -> tuple[ImportedModel, tuple[str, ...]]:
        """Merge with Relay's CombineParallel passes."""
        return merged(model)

    @interrupts_wait()
    def operators(self, model: ImportedModel, target: Target, *, layers: bool = True) -> list[Occurrence]:
        """Run the passes of a build up to code generation; weights of heavy operators are not folded."""
        return lower.optimize(model, target, layers=layers)

    @interrupts_wait()
    def operators_of_module(
        self, module: IRModule, target: Target, params: dict[str, DeviceArray], weights: Collection[str]
    ) -> list[Occurrence]:
        """Optimize and fuse the module as a build would."""
        return lower.fuse(module, target, params, weights)

    def describe(self, function: Function, constant: tuple[bool, ...]) -> Operator:
        """Describe the ops, tensors and constants of the function."""
        return describe(function, constant)

    @interrupts_wait()
    def fuse(self, lower: Callable[[], Sequence[Occurrence]], target: Target, records: UsableRecords) -> FusedOperators:
        """Lower under schedule records. A build queries records of more computations than lowering does, because
        Winograd's algorithm changes what is lowered; this method makes the lowering query all of them."""
        with applied(records) as asked:
            occurrences = lower()
            choices = weigh_all(occurrences, target, by_rule=records.by_rule)
        by_rule = {o.operator.key for o in occurrences if choices.schedule_of(o).origin == "rule"}
        return FusedOperators(occurrences, _all_lookups(asked, occurrences, target), frozenset(by_rule))

    @interrupts_wait()
    def build(
        self, model: ImportedModel, target: Target, records: UsableRecords, executor: str = "graph"
    ) -> BuiltModel:
        """Run one `relay.build`, under AutoTVM's records."""
        compiled, choices, asked = _compile(model, target, records, executor)
        schedules = {o.operator.key: choices.schedule_of(o) for o in compiled.by_label.values()}
        return BuiltModel(compiled, schedules, asked)

    def load(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = 1
    ) -> GraphKernels:
        """Load the model in TVM's graph executor; `GraphKernels.moved` creates up to `copies` copies of it."""
        from op_profiler.compilers.relay import graph_executor

        if copies == 1:
            return graph_executor.load_graph(compiled, device, inputs)
        return graph_executor.load_in_turns(compiled, device, inputs, copies)

    def bind(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], blocks: Sequence[int]
    ) -> Bound:
        """Bind the kernels in the graph executor, whose graph gets the caller's storage plan."""
        from op_profiler.compilers.relay.graph_executor import bind_graph

        bound = bind_graph(compiled, device, inputs, blocks=blocks)
        return Bound(bound.kernels, bound.outputs)

    def weights(self, compiled: CompiledModel) -> dict[str, DeviceArray]:
        """Return a new dict of the library's arrays."""
        return dict(compiled.library.get_params())

    def with_own_weights(self, compiled: CompiledModel) -> CompiledModel:
        """Copy each weight on the device that contains it."""
        library = compiled.library
        params = {name: array.copyto(array.device) for name, array in library.get_params().items()}
        own = compiled_files.Library(library.get_graph_json(), library.get_lib(), params)
        return dataclasses.replace(compiled, library=own)

    def export(self, compiled: CompiledModel, path: Path) -> CompiledModel:
        """Link only the kernels into the library; the graph and the weights stay as they are."""
        library = compiled.library
        library.get_lib().export_library(str(path), fcompile=make_library)
        kernels = load_tvm().runtime.load_module(str(path))
        exported = compiled_files.Library(library.get_graph_json(), kernels, library.get_params())
        return dataclasses.replace(compiled, library=exported)

    def load_dynamic(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray]
    ) -> tuple[TimedModel, list[Operator]]:
        """Load the model in Relay's virtual machine, and profile one run to determine the shapes."""
        loaded = VmKernels(compiled, device, list(inputs.values()))
        return loaded, operators_at_run_time(compiled, loaded)

    def load_remote(
        self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]
    ) -> RemoteModel:
        """Upload the kernels to a remote graph executor, the debug executor where there is one."""
        return RemoteGraph(compiled, machine, inputs)

    def probe_code(self, target: Target) -> RuntimeModule:
        """Compile the functions of `ProbeCode` from tensor expressions."""
        code: RuntimeModule = probe_code(target)
        return code

    def kernel(self, compiled: CompiledModel, name: str) -> PackedFunction:
        """Look the function up in the library of kernels."""
        function: PackedFunction = compiled.library.get_lib().get_function(name, True)
        return function

    def bound_kernel(
        self, name: str, label: str, function: PackedFunction, arrays: Sequence[DeviceArray]
    ) -> BoundKernel:
        """Bind a call by ``TVMFuncCall``."""
        return PackedCall(name, label, function, arrays)

    def call_library(self) -> RuntimeModule:
        """Return a module that is built once per process."""
        return call_library()

    def chain(self, kernel: str, length: int, dtype: str) -> tuple[Sequence[BoundKernel], BoundKernel]:
        """Write the chain as a graph of TVM's graph executor."""
        return chain(kernel, length, dtype)

    def array_on(self, values: np.ndarray, device: RuntimeDevice) -> DeviceArray:
        """Copy with ``tvm.nd.array``."""
        array: DeviceArray = load_tvm().nd.array(values, device)
        return array

    def array_over(self, memory: np.ndarray, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """View the memory through DLPack, without a copy; `dtype` may be ``bool``."""
        everything = load_tvm().nd.from_dlpack(memory)  # it would read Booleans as 8-bit integers
        array: DeviceArray = everything._create_view(shape, dtype)
        return array

    def assembly(self, compiled: CompiledModel) -> str:
        """Return the assembly of the library; empty for a model of the executor ``vm``."""
        return str(compiled.library.get_lib().get_source("asm")) if compiled.executor == "graph" else ""

    def build_sums(self, sums: SumOfProducts, target: Target) -> PackedFunction:
        """Schedule the sums as tensor expressions."""
        return build_sums(sums, target)

    def vector_lanes(self, target: Target) -> int:
        """Return 16, 8 or 4, by the features of the target, as TOPI's schedules for x86 do."""
        x86 = load_tvm().target.x86
        with target:
            return int(x86.get_simd_32bit_lanes())

    def single_operator(self, occurrence: Occurrence) -> ImportedModel:
        """Wrap the fused function in a model; the function stays marked as primitive."""
        return lower.single_operator_model(occurrence)

    @interrupts_wait()
    def build_operator(self, occurrence: Occurrence, target: Target, records: UsableRecords) -> BuiltModel:
        """Build `single_operator` for the graph executor."""
        compiled, choices, asked = _compile(self.single_operator(occurrence), target, records, "graph")
        return BuiltModel(compiled, {occurrence.operator.key: choices.schedule_of(occurrence)}, asked)

    @interrupts_wait()
    def read_kernel(self, operator: Operator, target: Target, *, by_rule: bool = False) -> Kernel:
        """Lower the function that the description stands for, and read its loops or launches."""
        from op_profiler.compilers.relay.read_kernel import read_kernel

        with applied(UsableRecords.only_rule()) if by_rule else contextlib.nullcontext():
            return read_kernel(relay_function(operator), target, self.vector_lanes(target))

    @interrupts_wait()
    def tunables(
        self, model: ImportedModel, target: Target, keys: Collection[str] | None, space: str = TEMPLATES
    ) -> tuple[list[Tunable], list[Occurrence]]:
        """Consider all implementations of each heavy operator; an operator with a task is tunable."""
        register_templates()
        occurrences = self.operators(model, target)
        heavy = [o for o in occurrences if o.operator.anchor in HEAVY]
        wanted = [o for o in heavy if keys is None or o.operator.key in keys]
        with chosen_schedules() as choices:
            for occurrence in {o.operator.key: o for o in wanted}.values():
                choices.weigh(occurrence, target)
        return tunables(wanted, choices), occurrences

    def anchor(self, occurrence: Occurrence) -> Operator:
        """Return an operator that consists of the call of the heavy op alone."""
        return anchor_of(occurrence)

    @interrupts_wait()
    def described_anchor(self, operator: Operator) -> Operator:
        """Rebuild the function from the description; an operator of one op is its own anchor."""
        alone = len(operator.op_names) == 1
        return operator if alone else anchor_of(rebuilt_operator(operator))

    def own_tasks(self, anchor: Operator) -> tuple[TaskSpec, ...]:
        """Return a task of each template in `compilers.relay.templates` that fits the anchor."""
        return own_tasks(anchor)

    def prepare_search(self) -> None:
        """Import AutoTVM's features, Relay and TOPI, and register op_profiler's templates."""
        load_tvm()
        import tvm.topi.testing  # noqa: F401

        register_templates()

    def task(self, spec: TaskSpec, target: Target) -> Task:
        """Return a task of AutoTVM."""
        from op_profiler.compilers.relay.search_task import AutoTvmTask

        return AutoTvmTask(spec, target)

    @interrupts_wait()
    def tasks(self, occurrence: Occurrence, target: Target) -> tuple[TaskSpec, ...]:
        """Return the tasks of op_profiler's templates among the implementations that Relay considers for the operator;
        empty if its anchor is not a heavy op."""
        if occurrence.operator.anchor not in HEAVY:
            return ()
        register_templates()
        with chosen_schedules() as choices:
            choices.weigh(occurrence, target)
        found = choices.tasks_of(occurrence)
        return tuple(TaskSpec(name, arguments) for name, arguments in found if name.endswith(OWN_TEMPLATE))

    def write(self, folder: Path, compiled: CompiledModel) -> None:
        """Write graph, weights and the kernels as LLVM bitcode, PTX or cubin."""
        compiled_files.write_compiled(folder, compiled)

    def read(self, folder: Path, like: CompiledModel | None = None) -> CompiledModel:
        """Read the files that `write` wrote, without a linker and without executing code."""
        return compiled_files.read_compiled(folder, like)


RELAY = RelayCompiler()


def _compile(
    model: ImportedModel, target: Target, records: UsableRecords, executor: str
) -> tuple[CompiledModel, ChosenSchedules, frozenset[str]]:
    """Return the kernels, the schedules that the compiler chose, and the computations for which it looked up
    records."""
    with applied(records) as asked, chosen_schedules(by_rule=records.by_rule) as choices:
        compiled = lower.compile_model(model, target, executor)
    return compiled, choices, _all_lookups(asked, compiled.occurrences, target)


def _all_lookups(asked: Collection[str], occurrences: Iterable[Occurrence], target: Target) -> frozenset[str]:
    """Return the looked-up computations, and the names of what the rule changes in the loops of this model."""
    operators = [occurrence.operator for occurrence in occurrences] if str(target.kind.name) == "llvm" else []
    return frozenset({*asked, *(ruled(changed.NAME) for changed in LOOPS_BY_RULE if changed.concerns(operators))})
