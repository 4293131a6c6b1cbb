"""The compiler Relax, of TVM 0.25 and later, with op_profiler's default schedules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, FusedOperators, Occurrence
from op_profiler.compilers.compiler import BuildOptions, Compiler
from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE, STOCK
from op_profiler.compilers.relax import cuda_libraries, own_importers, tvm_package
from op_profiler.compilers.relax.calls import FfiCall, call_library
from op_profiler.compilers.relax.own_importers import load_itself, load_refused
from op_profiler.compilers.relax.single import operator_model
from op_profiler.compilers.relax.target import fields_of
from op_profiler.compilers.relax.tuning.workload import computation
from op_profiler.compilers.relax.vectors import vectors_of
from op_profiler.compilers.tuning_contract import TEMPLATES
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import ModelError, OpProfilerError, UsageError
from op_profiler.frontends.frontend import AUTO
from op_profiler.schedules.records import DATABASES

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.bound_kernel import BoundKernel
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.loop_nest import Kernel
    from op_profiler.compilers.relax.library import VmLibrary
    from op_profiler.compilers.remote_model import RemoteMachine, RemoteModel
    from op_profiler.compilers.sum_of_products import SumOfProducts
    from op_profiler.compilers.tvm_types import (
        DeviceArray,
        IRModule,
        PackedFunction,
        RuntimeDevice,
        RuntimeModule,
        Target,
    )
    from op_profiler.frontends.frontend import Frontend, ModelRequest
    from op_profiler.operators.operator import Operator
    from op_profiler.schedules.usable_records import UsableRecords
    from op_profiler.targets.machine import LoadedModel
    from op_profiler.tuning.candidate import TaskSpec
    from op_profiler.tuning.task import Task
    from op_profiler.tuning.tunable import Tunable

_RELAY, _ITSELF = "relay", "relax"
_TARGETS = ("llvm", "cuda", "pynq", "arm_cpu")


class RelaxCompiler(Compiler):
    """The compiler ``relax``: a model is one Relax module, which the virtual machine runs."""

    name = "relax"
    pipelines = (DEFAULT_PIPELINE, STOCK)
    importers = (AUTO, _RELAY, _ITSELF)
    native_flags = ("-DTVM_FFI",)
    record_form = DATABASES
    tuner = "trees"
    spaces = (TEMPLATES, "automatic")
    only_calls_tell_loops = True
    cuda_runtime = tvm_package.CUDA_RUNTIME
    needs = f"The compiler relax needs a TVM of its own: {tvm_package.INSTALL}"

    def check(self, request: BuildOptions) -> None:
        """Raise UsageError for options that Relax does not support, OpProfilerError if its TVM is missing."""
        tvm_package.check()
        if request.kind.name not in _TARGETS:
            raise UsageError(f"--compiler relax compiles for --target {', '.join(_TARGETS)}")
        if request.kind.on_gpu:
            self._check_gpu(request)
        if request.precision != "float32":
            raise UsageError("--compiler relax measures models as they are: --precision float32")
        if request.model.past is not None and request.model.importer != AUTO:
            raise UsageError("steps of decoders are made here, and not imported: leave out --importer")
        if request.place is not None and request.model.past is not None:
            raise UsageError("steps of decoders are measured on this machine only: leave out --host")
        if request.executor != "default":
            raise UsageError("--compiler relax has one executor, its own virtual machine: leave out --executor")

    def _check_gpu(self, request: BuildOptions) -> None:
        if request.place is not None:
            raise UsageError("--compiler relax measures the GPU of this machine: leave out --host and --port")
        if request.model.past is not None:
            raise UsageError("--compiler relax runs decoders on processors: leave out --prefill and --decode")
        lacking = cuda_libraries.missing()
        if lacking:
            raise OpProfilerError(f"target cuda under --compiler relax: this machine lacks {'; '.join(lacking)}")

    def tvm_identity(self, packages: Sequence[str]) -> str:
        """Return ``apache-tvm VERSION`` for the TVM in `own_packages`; ``none`` if there is no TVM."""
        version = tvm_package.version()
        return "none" if version is None else f"apache-tvm {version}"

    def own_packages(self) -> Path | None:
        """Return the folder of the TVM with Relax, whether it exists or not."""
        return tvm_package.folder()

    def activate_tvm(self) -> None:
        """Import the TVM with Relax, and put its folder first in ``sys.path`` and ``PYTHONPATH``."""
        tvm_package.activate()

    def prepare_tvm(self, tvm: ModuleType) -> None:
        """Import ``relax``, ``s_tir`` and ``tirx``, which only a TVM with Relax has."""
        from tvm import relax, s_tir, tirx  # noqa: F401

    def target(self, text: str) -> Target:
        """Return the target; this TVM's ``Target`` requires the options as a dict, to which the text is converted."""
        return load_tvm().target.Target(fields_of(text))

    def expect_model(self, request: ModelRequest) -> None:
        """Start the process that imports with Relay; decoder steps and ``--importer relax`` need none."""
        if request.past is None and request.importer != _ITSELF:
            from op_profiler.compilers.relax.relay_models import begin

            begin(request)

    def load_model(self, frontend: Frontend, request: ModelRequest) -> ImportedModel:
        """Import with Relay, or with Relax if Relay rejects the model; ``--importer`` restricts this to one of them."""
        from op_profiler.compilers.relax.relay_models import load_from_relay

        if request.past is not None:
            return self.load_step(request)
        if request.importer == _ITSELF:
            return load_itself(frontend, request)
        try:
            return load_from_relay(request)
        except ModelError as refused:
            if request.importer == _RELAY:
                raise
            return load_refused(frontend, request, refused)

    def load_step(self, request: ModelRequest) -> ImportedModel:
        """Make the step from the sizes in the decoder's configuration, with random weights."""
        from op_profiler.compilers.relax.decoder.model import load_step

        return load_step(request)

    @interrupts_wait()
    def import_program(self, form: str, name: str, program: object, inputs: Mapping[str, object]) -> IRModule | None:
        """Import with Relax's own importers; never returns None."""
        module: IRModule = own_importers.import_program(form, name, program, inputs)
        return module

    def structural_hash(self, module: IRModule) -> str:
        """Hash with ``tvm_ffi``, the package that contains the hash function in this TVM."""
        import tvm_ffi

        return str(tvm_ffi.structural_hash(module))

    def open_control(self, module: IRModule) -> tuple[str, ...]:
        """Return ``branches`` if any function has an ``If``; Relax has no loops."""
        relax = load_tvm().relax
        found: set[str] = set()

        def note(one: object) -> None:
            if isinstance(one, relax.If):
                found.add("branches")

        for function in module.functions.values():
            if isinstance(function, relax.Function):
                relax.analysis.post_order_visit(function, note)
        return tuple(sorted(found))

    @interrupts_wait()
    def operators(self, model: ImportedModel, target: Target, *, layers: bool = True) -> list[Occurrence]:
        """Lower with the model's pipeline and return the calls of kernels; `layers` is ignored."""
        from op_profiler.compilers.relax import compiling

        return compiling.operators(model, target)

    @interrupts_wait()
    def fuse(self, lower: Callable[[], Sequence[Occurrence]], target: Target, records: UsableRecords) -> FusedOperators:
        """Lower the model; records are looked up only if it uses the default pipeline."""
        occurrences = lower()
        ours = [one for one in occurrences if one.function is not None and one.pipeline == DEFAULT_PIPELINE]
        by_label = {one.label: one.function for one in ours}
        return FusedOperators(occurrences, frozenset(map(computation, by_label.values())))

    @interrupts_wait()
    def build(
        self, model: ImportedModel, target: Target, records: UsableRecords, executor: str = "graph"
    ) -> BuiltModel:
        """Compile with the model's pipeline; for a decoder step, also its attention kernels. Ignores `executor`."""
        from op_profiler.compilers.relax import compiling

        return compiling.build(model, target, records)

    def load_remote(
        self, compiled: CompiledModel, machine: RemoteMachine, inputs: dict[str, np.ndarray]
    ) -> RemoteModel:
        """Upload the kernels, and the virtual machine's code if the remote runtime can load it."""
        from op_profiler.compilers.relax.remote import RemoteVm

        return RemoteVm(compiled, machine, inputs)

    def probe_code(self, target: Target) -> RuntimeModule:
        """Compile the two functions of `relax.probe`."""
        from op_profiler.compilers.relax.remote import probe_code

        code: RuntimeModule = probe_code(target)
        return code

    def kernel(self, compiled: CompiledModel, name: str) -> PackedFunction:
        """Look the function up in the library of kernels."""
        library: VmLibrary = compiled.library
        return library.kernel(name)

    def bound_kernel(
        self, name: str, label: str, function: PackedFunction, arrays: Sequence[DeviceArray]
    ) -> BoundKernel:
        """Bind a call by ``TVMFFIFunctionCall``."""
        return FfiCall(name, label, function, arrays)

    def call_library(self) -> RuntimeModule:
        """Return a module that is built once per process."""
        return call_library()

    def chain(self, kernel: str, length: int, dtype: str) -> tuple[Sequence[BoundKernel], BoundKernel]:
        """Build the chain as a function of Relax and run it once in the virtual machine."""
        from op_profiler.compilers.relax.kernels import chain

        return chain(kernel, length, dtype)

    def array_on(self, values: np.ndarray, device: RuntimeDevice) -> DeviceArray:
        """Copy with ``tvm.runtime.tensor``."""
        array: DeviceArray = load_tvm().runtime.tensor(values, device)
        return array

    def array_over(self, memory: np.ndarray, shape: tuple[int, ...], dtype: str) -> DeviceArray:
        """View the memory through DLPack, without a copy."""
        array: DeviceArray = load_tvm().runtime.from_dlpack(memory.view(dtype).reshape(shape))
        return array

    def load(
        self, compiled: CompiledModel, device: RuntimeDevice, inputs: dict[str, np.ndarray], copies: int = 1
    ) -> LoadedModel:
        """Run a model, or a decoder step, once in the virtual machine; `copies` is ignored."""
        from op_profiler.compilers.relax.decoder.library import DecoderLibrary, load_step
        from op_profiler.compilers.relax.kernels import load_kernels

        if isinstance(compiled.library, DecoderLibrary):
            return load_step(compiled.library, compiled.occurrences, device, inputs)
        return load_kernels(compiled.library.executable, device, inputs)

    def weights(self, compiled: CompiledModel) -> dict[str, DeviceArray]:
        """Return a new dict of the library's arrays."""
        return dict(compiled.library.weights)

    def with_own_weights(self, compiled: CompiledModel) -> CompiledModel:
        """Copy the weights to memory of the processor."""
        return dataclasses.replace(compiled, library=compiled.library.with_own_weights())

    def export(self, compiled: CompiledModel, path: Path) -> CompiledModel:
        """Link only the kernels into the library; the virtual machine's code stays as it is."""
        return dataclasses.replace(compiled, library=compiled.library.exported(path))

    def build_sums(self, sums: SumOfProducts, target: Target) -> PackedFunction:
        """Schedule the sums in TIR."""
        from op_profiler.compilers.relax.sums import build_sums

        return build_sums(sums, target)

    def vector_lanes(self, target: Target) -> int:
        """Return the number of float32 values in a vector register of the target (`vectors_of`)."""
        return vectors_of(target).lanes

    def single_operator(self, occurrence: Occurrence) -> ImportedModel:
        """Wrap the kernel in a model; raise ModelError for attention, which needs a KV cache."""
        if occurrence.function is None:
            raise ModelError(f"{occurrence.operator.name} runs over a KV cache, and so in its model only")
        return operator_model(occurrence)

    @interrupts_wait()
    def build_operator(self, occurrence: Occurrence, target: Target, records: UsableRecords) -> BuiltModel:
        """Build `single_operator`; raise ModelError also if a schedule record no longer fits the kernel."""
        from op_profiler.compilers.relax import compiling

        return compiling.build_operator(self.single_operator(occurrence), occurrence, target, records)

    @interrupts_wait()
    def tunables(
        self, model: ImportedModel, target: Target, keys: Collection[str] | None, space: str = TEMPLATES
    ) -> tuple[list[Tunable], list[Occurrence]]:
        """Lower the model; each distinct kernel with knobs is one tunable."""
        from op_profiler.compilers.relax.tuning.tunables import tunables

        occurrences = self.operators(model, target)
        return tunables(occurrences, target, keys, space), occurrences

    def anchor(self, occurrence: Occurrence) -> Operator:
        """Return the whole operator: a task of Relax schedules the fused function."""
        return occurrence.operator

    def task(self, spec: TaskSpec, target: Target) -> Task:
        """Return the task of the sketch or the rule that the template of `spec` names."""
        from op_profiler.compilers.relax.tuning import automatic, task

        is_sketch = spec.template.startswith(automatic.PREFIX)
        return (automatic.SketchTask if is_sketch else task.KernelTask)(spec, target)

    @interrupts_wait()
    def tasks(self, occurrence: Occurrence, target: Target) -> tuple[TaskSpec, ...]:
        """Return the task of the default rule, if the rule has knobs and the kernel writes one tensor."""
        from op_profiler.compilers.relax.tuning.tunables import spec_of

        spec = spec_of(occurrence, target)
        return () if spec is None else (spec,)

    @interrupts_wait()
    def read_call(self, occurrence: Occurrence, target: Target) -> Kernel:
        """Read the loops of the operator's function; raise ModelError for GPUs, and for attention over a KV cache."""
        from op_profiler.compilers.relax import gpu, read_kernel

        if occurrence.function is None or gpu.is_gpu(target):
            return self.read_kernel(occurrence.operator, target)  # refuses: over a KV cache, or no loops of a processor
        return read_kernel.read_kernel(occurrence.function, target, self.vector_lanes(target))

    def write(self, folder: Path, compiled: CompiledModel) -> None:
        """Write the virtual machine's code, the kernels as LLVM bitcode, and the weights."""
        from op_profiler.compilers.relax.compiled_files import write_compiled

        write_compiled(folder, compiled)

    def read(self, folder: Path, like: CompiledModel | None = None) -> CompiledModel:
        """Read the files that `write` wrote, without a linker and without executing code."""
        from op_profiler.compilers.relax.compiled_files import read_compiled

        return read_compiled(folder, like)


RELAX = RelaxCompiler()
