"""The contract of a compiler: import a model, lower it to operators, build its kernels, store and read builds.

A process uses one build of TVM, and so one compiler, which `compiler_in_use` returns. Compilers return the types of
`op_profiler.compilers.compiled_model`; only the compiler itself interprets the functions, tasks and libraries in them.
A compiler is a module in a separate folder, and an entry of `op_profiler.compilers.COMPILERS`.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from op_profiler.compilers.pipelines import DEFAULT_PIPELINE, file_of
from op_profiler.compilers.runtime_contract import RuntimeContract
from op_profiler.compilers.tuning_contract import TuningContract
from op_profiler.errors import ModelError, UnknownNameError, UsageError
from op_profiler.frontends.frontend import AUTO
from op_profiler.registry import DEFAULT_COMPILER, registry_of

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

    from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, FusedOperators, Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.loop_nest import Kernel
    from op_profiler.compilers.tvm_types import DeviceArray, Function, IRModule, Target
    from op_profiler.frontends.frontend import Frontend, ModelRequest
    from op_profiler.operators.operator import Operator
    from op_profiler.schedules.usable_records import UsableRecords


_VARIABLE = "OP_PROFILER_COMPILER"


class TargetOptions(Protocol):
    """The properties of a kind of target that a compiler uses (`op_profiler.targets.target_kind.TargetKind`)."""

    name: ClassVar[str]
    on_gpu: ClassVar[bool]


class BuildOptions(Protocol):
    """The properties of a request that a compiler uses (`op_profiler.building.request.BuildRequest`)."""

    @property
    def model(self) -> ModelRequest:
        """The model and how it is imported."""

    @property
    def kind(self) -> TargetOptions:
        """The kind of target that the kernels are compiled for."""

    @property
    def place(self) -> object | None:
        """The machine behind RPC that runs the kernels; None for this machine."""

    @property
    def precision(self) -> str:
        """``float32``, ``float16`` or ``int8``."""

    @property
    def executor(self) -> str:
        """``default`` (the graph executor), or ``vm`` for dynamic shapes."""


class NotKept(ValueError):
    """Raised if a built model cannot be written to files, or if files contain no valid built model."""


class Compiler(RuntimeContract, TuningContract):
    """One compiler, without state; nothing heavy is imported before a method needs it.

    A ``target`` is a `tvm.target.Target`.

    Attributes (beside those of its base classes):
        takes_builds_of_targets: whether each target kind may use a TVM build of its own (`TargetKind.tvm_build`). If
            false, one TVM build compiles for all target kinds.
        pipelines: names of its pipelines from models to kernels. If there are several, a user's pipeline is accepted
            too, and `ImportedModel.pipeline` selects one.
        importers: names of the importers that it supports. `AUTO` is the first one: the compiler chooses the importer.
        linking: package of its TVM that contains the modules ``cc`` and ``tar``, which create files of compiled code.
        needs: a sentence for users without a suitable TVM: which TVM the compiler requires, and how to install it.
        only_calls_tell_loops: whether the loops of a kernel can be read only from a call in a lowered model
            (`read_call`), not from the description of the operator (`read_kernel`).
        cuda_runtime: CUDA library with which its TVM runs on GPUs.
    """

    takes_builds_of_targets: ClassVar[bool] = False
    pipelines: ClassVar[tuple[str, ...]] = (DEFAULT_PIPELINE,)
    importers: ClassVar[tuple[str, ...]] = (AUTO,)
    linking: ClassVar[str] = "tvm.support"
    needs: ClassVar[str]
    only_calls_tell_loops: ClassVar[bool] = False
    cuda_runtime: ClassVar[str] = "libcudart.so.12"

    def has(self, method: str) -> bool:
        """Return whether this compiler overrides a method of `Compiler`; the defaults raise an error or do nothing."""
        return getattr(type(self), method) is not getattr(Compiler, method)

    def require(self, method: str, option: str) -> None:
        """Reject an option that needs a method which this compiler does not have (`has`).

        Args:
            option: option by which the user requested what the method does.

        Raises:
            UsageError: the message names the compilers that have it.
        """
        if not self.has(method):
            raise self._refusal(method, option)

    def _refusal(self, method: str, option: str) -> UsageError:
        others = [name for name, one in registry_of("compilers").available() if one.has(method)]
        hint = f"give --compiler {' or '.join(others)}" if others else "leave one of them out"
        return UsageError(f"{option} is not there for --compiler {self.name}; {hint}")

    def check(self, request: BuildOptions) -> None:
        """Reject requests that this compiler does not support, without importing TVM.

        Args:
            request: a request that another compiler may support.

        Raises:
            UsageError: the message names the option and its allowed values.
        """
        return

    def check_importer(self, name: str) -> None:
        """Reject an importer that is not in `importers`.

        Raises:
            UsageError: the message lists the allowed values.
        """
        if len(self.importers) == 1 and name not in self.importers:
            raise UsageError(f"--importer {name}: the compiler {self.name} has one importer; leave --importer out")
        if name not in self.importers:
            raise UnknownNameError("importer", name, self.importers)

    def check_pipeline(self, name: str) -> None:
        """Reject a pipeline that is neither one of `pipelines` nor the user's, without importing anything.

        Raises:
            UsageError: the message lists the allowed values.
        """
        if name in self.pipelines:
            return
        if len(self.pipelines) == 1:
            raise UsageError(f"--pipeline {name}: the compiler {self.name} has one pipeline; leave --pipeline out")
        if ":" not in name:
            raise UnknownNameError("pipeline", name, self.pipelines, "One of yours is MODULE:FUNCTION.")
        file_of(name)

    def check_search(self, build: BuildOptions, *, tuned: bool, vendor: bool) -> None:
        """Reject searches for schedules that this compiler does not support, without importing TVM. By default, all
        searches are rejected except those for this machine's processor.

        Args:
            tuned: whether a search is requested.
            vendor: whether a comparison with the kernels of a vendor's library is requested.

        Raises:
            UsageError: the message names the option and the compilers that support it.
        """
        refused = {
            "--vendor": vendor,
            "--iftune with --host": tuned and build.place is not None,
            f"--iftune with --target {build.kind.name}": tuned and build.kind.on_gpu,
        }
        for option in (option for option, asked in refused.items() if asked):
            raise self._refusal("check_search", option)

    def tvm_identity(self, packages: Sequence[str]) -> str:
        """Return package and version of the TVM that this compiler uses, without importing it; ``none`` if not found.

        Args:
            packages: packages that contain TVM for a kind of target; the first installed one is used.
        """
        for name in packages:
            try:
                return f"{name} {metadata.version(name)}"
            except metadata.PackageNotFoundError:
                continue
        return "none"

    def own_packages(self) -> Path | None:
        """Return the folder of packages that a process can import only after it called `activate_tvm`; None if there is
        no such folder."""
        return None

    def activate_tvm(self) -> None:
        """Put the compiler's TVM first on the module path of this process and of its child processes. Called before TVM
        is imported; not called if ``TVM_HOME`` or a kind of target provides a TVM.

        Raises:
            OpProfilerError: a package or a library is missing; the message names it.
        """
        return

    @abc.abstractmethod
    def prepare_tvm(self, tvm: ModuleType) -> None:
        """Import and set up the parts of TVM that this compiler needs; `tvm` was just imported.

        Raises:
            ImportError: this TVM lacks a part.
        """

    def target(self, text: str) -> Target:
        """Return the `tvm.target.Target` of a target string such as ``llvm -mcpu=znver4``.

        Raises:
            ValueError, TypeError, RuntimeError: TVM does not understand it.
        """
        import tvm

        return tvm.target.Target(text)

    def expect_model(self, request: ModelRequest) -> None:
        """Start the part of `load_model` that runs in another process. Called before TVM is imported in this process,
        so that the two run in parallel."""
        return

    def load_model(self, frontend: Frontend, request: ModelRequest) -> ImportedModel:
        """Import the requested model with the frontend of its source.

        Raises:
            ModelError: the model cannot be read, or one of its operators is not supported (named in the message).
        """
        return frontend.load(request)

    def load_step(self, request: ModelRequest) -> ImportedModel:
        """Return a step of a decoder whose KV cache already contains `ModelRequest.past` tokens of each sequence.

        Raises:
            ModelError: there is no such decoder, or this compiler does not support decoders.
        """
        raise ModelError(f"the compiler {self.name} takes no steps of decoders")

    def import_program(self, form: str, name: str, program: object, inputs: Mapping[str, object]) -> IRModule | None:
        """Import a program of a framework as a module of this compiler; return None if the compiler uses Relay's
        modules.

        Args:
            form: ``torch``, ``onnx`` or ``tflite``.
            name: name of the model, for error messages.
            program: a torch module, a ``ModelProto``, or a ``tflite.Model``.
            inputs: for each input by name, in order: an example tensor (``torch``) or an `InputSpec` (other forms).

        Raises:
            ModelError: an operator of it is not supported (named in the message).
        """
        return None

    def structural_hash(self, module: IRModule) -> str:
        """Return the hash of a model's module, including constants but not the names of variables."""
        import tvm

        return str(tvm.ir.structural_hash(module))

    def open_control(self, module: IRModule) -> tuple[str, ...]:
        """Return the kinds of control flow that depend on data (``branches``, ``loops``); empty if there is none."""
        return ()

    def convert(
        self, model: ImportedModel, precision: str, inputs: Mapping[str, np.ndarray], host: Target
    ) -> ImportedModel:
        """Convert a model to another precision; the specs of its inputs stay the same.

        Args:
            precision: ``float32``, ``float16`` or ``int8``.
            inputs: inputs with which int8 is calibrated.
            host: target of this machine's processor, on which int8 is calibrated, wherever the model will run.

        Raises:
            ModelError: the model cannot be converted, or this compiler does not support the conversion.
        """
        raise ModelError(f"the compiler {self.name} does not convert models to {precision}")

    def merge_parallel(self, model: ImportedModel) -> tuple[ImportedModel, tuple[str, ...]]:
        """Merge operators that read the same input into one kernel.

        The results may differ from the model's in the last digits, because a wider kernel sums in another order.

        Returns:
            The model, and the merged kinds of operators: empty if the compiler cannot merge, or if there is nothing to
            merge. `ImportedModel.content` includes the merged kinds.
        """
        return model, ()

    @abc.abstractmethod
    def operators(self, model: ImportedModel, target: Target, *, layers: bool = True) -> list[Occurrence]:
        """Lower and fuse a model; return the operators that a build would compile, in the order of their calls.

        Args:
            layers: False: `Occurrence.layers` is not needed and may be empty; tracking it takes time.

        Raises:
            ModelError: the compiler rejects the model.
        """

    def operators_of_module(
        self, module: IRModule, target: Target, params: dict[str, DeviceArray], weights: Collection[str]
    ) -> list[Occurrence]:
        """Return what `operators` returns, for a Relay module.

        Args:
            params: weights by the name of the variable of ``main`` to which they are bound.
            weights: names of further variables that stand for weights.

        Raises:
            ModelError: this compiler does not read Relay modules.
        """
        raise ModelError(f"the compiler {self.name} takes no modules of Relay")

    def describe(self, function: Function, constant: tuple[bool, ...]) -> Operator:
        """Return the operator of a fused Relay function.

        Args:
            function: a typed function.
            constant: for each of its parameters, whether the model passes a constant (a weight).

        Raises:
            ModelError: this compiler does not read Relay functions.
        """
        raise ModelError(f"the compiler {self.name} takes no functions of Relay")

    @abc.abstractmethod
    def fuse(self, lower: Callable[[], Sequence[Occurrence]], target: Target, records: UsableRecords) -> FusedOperators:
        """Return the operators that a build with these schedule records would compile, and the computations for which
        it would look up records.

        Args:
            lower: called without arguments; lowers the model and returns its operators, as `operators` does.
        """

    @abc.abstractmethod
    def build(
        self, model: ImportedModel, target: Target, records: UsableRecords, executor: str = "graph"
    ) -> BuiltModel:
        """Build a model once: its kernels, its operators and their schedules come from one compilation.

        Args:
            executor: ``graph``, or ``vm`` if shapes are known only at run time.

        Raises:
            ModelError: the compiler rejects the model; the message names the operator if it is known.
        """

    @abc.abstractmethod
    def single_operator(self, occurrence: Occurrence) -> ImportedModel:
        """Return a model of a single operator; the operator's weights are inputs of the model. The operator is not
        split, and its layouts are not changed."""

    @abc.abstractmethod
    def build_operator(self, occurrence: Occurrence, target: Target, records: UsableRecords) -> BuiltModel:
        """Build the model that `single_operator` returns; `BuiltModel.schedules` contains the operator's schedule under
        the operator's key.

        Raises:
            ModelError: the compiler rejects the operator.
        """

    def read_kernel(self, operator: Operator, target: Target, *, by_rule: bool = False) -> Kernel:
        """Return the loops of an operator's kernel under the schedule that a build would use. This takes hundredths of
        a second, because nothing is run.

        Args:
            by_rule: whether the build is one with ``--schedules rule``.

        Raises:
            ModelError: this compiler does not support this, for this operator or at all.
        """
        raise ModelError(f"{self.name} cannot describe the loops of {operator.name}")

    def read_call(self, occurrence: Occurrence, target: Target) -> Kernel:
        """Return the loops as `read_kernel` does, for a call in a lowered model: the function of the call may determine
        the kernel where the operator's description does not."""
        return self.read_kernel(occurrence.operator, target)

    @abc.abstractmethod
    def write(self, folder: Path, compiled: CompiledModel) -> None:
        """Write a built model into an existing folder.

        Raises:
            NotKept: the library has a form that cannot be stored.
            OSError: the disk is full, or a similar error.
        """

    @abc.abstractmethod
    def read(self, folder: Path, like: CompiledModel | None = None) -> CompiledModel:
        """Read a model that `write` wrote. The caller must have verified that the files are unchanged.

        Args:
            like: the same built model, if this process already has it. Then only code and weights are read from the
                files, into separate memory.

        Raises:
            NotKept, OSError, ValueError, KeyError, TypeError: the files do not contain a model that can be read.
        """


def use_compiler(name: str) -> None:
    """Make this process and its child processes use a compiler; see `op_profiler.compilers.tvm_build.use_build`.

    Raises:
        UnknownNameError: there is no such compiler.
    """
    registry_of("compilers").check(name)
    os.environ[_VARIABLE] = name


def compiler_in_use() -> Compiler:
    """Return the compiler of this process; relay by default."""
    found: Compiler = registry_of("compilers").get(os.environ.get(_VARIABLE, DEFAULT_COMPILER))
    return found
