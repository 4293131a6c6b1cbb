"""The contract of a compiler: from models to kernels, and what the rest of the package asks about the way there.

A process holds one build of TVM, and so one compiler: `compiler_in_use` gives it. What a compiler returns are the types
of `op_profiler.compilers.compiled_model`; the functions, tasks and libraries in them are its own, and go back to it.

A compiler is a module in a folder of its own, and an entry of `op_profiler.compilers.COMPILERS`.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.importers import AUTO
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.compilers.runtime_contract import RuntimeContract
from op_profiler.compilers.tuning_contract import TuningContract
from op_profiler.errors import ModelError

if TYPE_CHECKING:
    from types import ModuleType

    import numpy as np

    from op_profiler.building.request import BuildRequest
    from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel, FusedOperators, Occurrence
    from op_profiler.compilers.imported_model import ImportedModel
    from op_profiler.compilers.loop_nest import Kernel
    from op_profiler.compilers.tvm_types import IRModule, Target
    from op_profiler.frontends.frontend import Frontend, ModelRequest
    from op_profiler.operators.operator import Operator
    from op_profiler.schedules.usable_records import UsableRecords


_VARIABLE = "OP_PROFILER_COMPILER"


class NotKept(ValueError):
    """A built model that cannot be written to files, or files that hold none."""


class Compiler(RuntimeContract, TuningContract):
    """One compiler. It has no state, and imports nothing heavy before a question needs it; a ``target`` is a
    `tvm.target.Target`.

    Attributes (beside those of its parts):
        name: that it is chosen by.
        takes_builds_of_targets: a kind of targets may bring the build of TVM that compiles for it
            (`TargetKind.tvm_build`); else one build compiles for all of them.
        beyond_collecting: what it can do beside lowering, building and measuring models: some of `abilities.ABILITIES`.
        pipelines: names of its ways from models to kernels. Where there are several it takes a user's too, and goes
            the way of `op_profiler.compilers.pipelines.pipeline_in_use`.
        importers: who may read a model for it, `AUTO` first, which is its own choice.
        linking: package of its TVM with ``cc`` and ``tar``, which make files of compiled code.
        needs: what it needs of TVM and how to get it: a sentence for who has none that it can use.
        only_calls_tell_loops: a description of an operator does not tell the loops of its kernel, a call in a lowered
            model does.
        cuda_runtime: library of CUDA that its TVM runs on GPUs with.
    """

    name: ClassVar[str]
    takes_builds_of_targets: ClassVar[bool] = False
    beyond_collecting: ClassVar[frozenset[str]] = frozenset()
    pipelines: ClassVar[tuple[str, ...]] = (DEFAULT_PIPELINE,)
    importers: ClassVar[tuple[str, ...]] = (AUTO,)
    linking: ClassVar[str] = "tvm.support"
    needs: ClassVar[str]
    only_calls_tell_loops: ClassVar[bool] = False
    cuda_runtime: ClassVar[str] = "libcudart.so.12"

    def check(self, request: BuildRequest) -> None:
        """Refuse what it cannot do, without importing TVM.

        Args:
            request: which could be done by another compiler.

        Raises:
            UsageError: names the option, and what it may be.
        """
        return

    def tvm_identity(self, packages: Sequence[str]) -> str:
        """Which TVM it uses, told without importing it: ``none`` where there is none.

        Args:
            packages: that bring TVM for a kind of target; the first that is installed is used.
        """
        for name in packages:
            try:
                return f"{name} {metadata.version(name)}"
            except metadata.PackageNotFoundError:
                continue
        return "none"

    def own_packages(self) -> Path | None:
        """A folder of packages that only processes which have called `activate_tvm` see; None where there is none."""
        return None

    def activate_tvm(self) -> None:
        """Put its TVM in front of any other on the path of this process and of those that it starts, before the first
        import. Not called where ``TVM_HOME`` or a kind of target brings one.

        Raises:
            OpProfilerError: something is missing; says what.
        """
        return

    @abc.abstractmethod
    def prepare_tvm(self, tvm: ModuleType) -> None:
        """Import what it needs of a TVM that was just imported, and set that up.

        Raises:
            ImportError: this TVM has no such thing.
        """

    def target(self, text: str) -> Target:
        """The `tvm.target.Target` of a line of options such as ``llvm -mcpu=znver4``.

        Raises:
            ValueError, TypeError, RuntimeError: TVM does not understand it.
        """
        import tvm

        return tvm.target.Target(text)

    def expect_model(self, request: ModelRequest) -> None:
        """Begin what another process does of `load_model`; called before TVM is imported, which takes as long."""
        return

    def load_model(self, frontend: Frontend, request: ModelRequest) -> ImportedModel:
        """The model that a source has under this name.

        Raises:
            ModelError: it cannot be read, or an operator of it is not supported (named in the message).
        """
        return frontend.load(request)

    def import_program(self, form: str, name: str, program: object, inputs: Mapping[str, object]) -> IRModule | None:
        """A program of a library as a module of this compiler's own; None where it takes those of Relay.

        Args:
            form: ``torch``, ``onnx`` or ``tflite``.
            name: of the model, for errors.
            program: a module of torch, a ``ModelProto``, a ``tflite.Model``.
            inputs: by name in their order, example tensors of torch, and the `InputSpec` of the others.

        Raises:
            ModelError: an operator of it is not supported (named in the message).
        """
        return None

    @abc.abstractmethod
    def convert(
        self, model: ImportedModel, precision: str, inputs: Mapping[str, np.ndarray], host: Target
    ) -> ImportedModel:
        """The same model computing in another precision; its inputs stay as they are.

        Args:
            precision: ``float32``, ``float16`` or ``int8``.
            inputs: what int8 is calibrated with.
            host: target of this machine's processor, which int8 is calibrated on wherever the model will run.

        Raises:
            ModelError: it cannot be converted.
        """

    @abc.abstractmethod
    def merge_parallel(self, model: ImportedModel) -> tuple[ImportedModel, tuple[str, ...]]:
        """The model with operators that read the same input merged into one kernel, and the kinds that were merged
        (none: the compiler cannot, or there are no such operators). It is part of `content` what was merged.

        Its results may differ from the model's in the last digits: a wider kernel adds in another order.
        """

    @abc.abstractmethod
    def operators(self, model: ImportedModel, target: Target, *, layers: bool = True) -> list[Occurrence]:
        """Lower and fuse only: the operators that a build would compile, in the order of their calls.

        Args:
            layers: False: nobody asks for `Occurrence.layers`, which may be empty then; to carry them takes time.

        Raises:
            ModelError: it refuses the model.
        """

    @abc.abstractmethod
    def fuse(self, lower: Callable[[], Sequence[Occurrence]], target: Target, records: UsableRecords) -> FusedOperators:
        """What lowering gives under schedule records, and what a build would ask records of.

        Args:
            lower: gives operators, as `operators` does.
        """

    @abc.abstractmethod
    def build(
        self, model: ImportedModel, target: Target, records: UsableRecords, executor: str = "graph"
    ) -> BuiltModel:
        """Build a model once: its kernels, its operators and their schedules come from one compilation.

        Args:
            executor: ``graph``, or ``vm`` where shapes are known at run time only.

        Raises:
            ModelError: it refuses the model; the message names the operator where it tells.
        """

    @abc.abstractmethod
    def single_operator(self, occurrence: Occurrence) -> ImportedModel:
        """An operator as a model of its own, whose inputs its weights are among; it is neither taken apart nor are
        its layouts changed."""

    @abc.abstractmethod
    def build_operator(self, occurrence: Occurrence, target: Target, records: UsableRecords) -> BuiltModel:
        """`single_operator`, built; its schedule stands under the key of the operator.

        Raises:
            ModelError: it refuses the operator.
        """

    def read_kernel(self, operator: Operator, target: Target) -> Kernel:
        """What an operator's kernel is like under the schedule that a build would give it; within some hundredths of a
        second, and nothing is run.

        Raises:
            ModelError: this compiler does not tell them, of this operator or at all.
        """
        raise ModelError(f"{self.name} does not tell the loops of {operator.name}")

    def read_call(self, occurrence: Occurrence, target: Target) -> Kernel:
        """`read_kernel` of an operator that a model was lowered to, which may tell more than its description."""
        return self.read_kernel(occurrence.operator, target)

    @abc.abstractmethod
    def write(self, folder: Path, compiled: CompiledModel) -> None:
        """Write a built model into a folder that is there.

        Raises:
            NotKept: its library is of a kind that has no such form.
            OSError: the disk is full, or the like.
        """

    @abc.abstractmethod
    def read(self, folder: Path, like: CompiledModel | None = None) -> CompiledModel:
        """What `write` wrote. Whoever calls has made sure that the files are as they were written.

        Args:
            like: the model, if it is known: only its code and its weights are read, in memory of their own.

        Raises:
            NotKept, OSError, ValueError, KeyError, TypeError: they are not.
        """


def use_compiler(name: str) -> None:
    """Let this process, and those that it starts, use a compiler; see `op_profiler.compilers.tvm_build.use_build`.

    Raises:
        UnknownNameError: there is no such compiler.
    """
    COMPILERS.check(name)
    os.environ[_VARIABLE] = name


def compiler_in_use() -> Compiler:
    """The compiler of this process: relay where nobody has chosen."""
    return COMPILERS.get(os.environ.get(_VARIABLE, DEFAULT_COMPILER))
