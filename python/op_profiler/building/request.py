"""`BuildRequest`: everything that a built model depends on, checked before anything heavy is imported."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from op_profiler.building.input_arrays import read_arrays
from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE, pipeline_identity
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Cache, Precision
from op_profiler.option_values import parse_counts
from op_profiler.options import MEASURING, MODEL, Option, Within
from op_profiler.schedules import record_files, records
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, tvm_identity
from op_profiler.targets.target_kind import TargetKind

EXECUTORS = ("default", "vm")
CheckOutputs = Literal["once", "always", "never"]

CompilerOption = Annotated[str, Option("Compiler that generates the kernels: {compilers}.", MODEL)]
CheckOutputsOption = Annotated[
    CheckOutputs,
    Option(
        "When to compare the model's outputs with those of its own framework (torch, onnxruntime, LiteRT): once "
        "(before the first measurement or prediction of a model), always, or never. If the outputs differ, the model "
        "is refused; with never, a model that differed in an earlier comparison is accepted, with a note.",
        MODEL,
    ),
]
SchedulesOption = Annotated[
    str,
    Option(
        "Schedules to compile with. auto: the tuning records of the device, and the compiler's own schedules for "
        "operators without a record. rule: like auto, but convolutions and matrix products without a record get "
        "op_profiler's schedules, which need no search, and op_profiler compiles exp, erf and rows whose length is no "
        "multiple of a vector. none: the compiler's own schedules. A path: the records in that folder.",
        MEASURING,
    ),
]


def check_rule(schedules: str, compiler: str, kind: TargetKind) -> None:
    """Raise UsageError if ``--schedules rule`` is requested for a compiler or kind of target for which the rule chooses
    no schedules."""
    if schedules == records.RULE and (compiler != DEFAULT_COMPILER or kind.name != "llvm"):
        raise UsageError(
            f"--schedules rule is for --compiler {DEFAULT_COMPILER} and --target llvm; leave it out: the default "
            "schedules of others are chosen by rules already"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One model, with the options that determine how it is built.

    Attributes:
        place: address of the machine that the model will run on; None for this machine.
        threads: thread counts that the model will run at; records for the largest count are preferred.
        cache: cache state that its operators will be measured in; records for it are preferred.
    """

    model: ModelRequest = ModelRequest()
    target: Annotated[
        str,
        Option(
            "Target to compile for: {targets} (llvm is this processor), or a TVM target string that starts with one of "
            "these names.",
            MEASURING,
        ),
    ] = "llvm"
    compiler: CompilerOption = DEFAULT_COMPILER
    pipeline: Annotated[
        str,
        Option(
            "Passes that lower the model to kernels: default, or with --compiler relax also stock (TVM's own) or your "
            "MODULE:FUNCTION, which returns a pass for a target.",
            MODEL,
        ),
    ] = DEFAULT_PIPELINE
    place: Annotated[Place | None, Within(Place)] = None
    precision: Annotated[Precision, Option("Precision: float32, float16 or int8.", MEASURING)] = "float32"
    executor: Annotated[
        str,
        Option("Executor: default (graph executor), or vm (virtual machine), which runs dynamic shapes.", MEASURING),
    ] = "default"
    input_data: Annotated[
        str | None,
        Option(
            "NumPy file (.npz) with an array for each input name. The model runs on these arrays, and int8 is "
            "calibrated with them. Default: random inputs.",
            MODEL,
            flags=("--inputdata",),
            metavar="<path>",
        ),
    ] = None
    schedules: SchedulesOption = records.AUTO
    threads: Annotated[
        tuple[int, ...],
        Option(
            "Thread counts to measure at, such as 1,2,4. Default: the powers of two below the number of cores, and the "
            "number of cores (1,2,4,6 on six cores); 1,2 on pynq; 1 on other boards.",
            MEASURING,
            parse=parse_counts,
        ),
    ] = (1,)
    cache: Annotated[
        Cache,
        Option(
            "Content of the caches before each timed call: model (as the previous operators of the model left it), hot "
            "(the same operator has just run) or cold (the operator's tensors are flushed).",
            MEASURING,
        ),
    ] = "model"
    check_outputs: CheckOutputsOption = "once"

    @classmethod
    def of_options(
        cls, *, target: str = "llvm", place: Place | None = None, threads: tuple[int, ...] | None = None, **fields: Any
    ) -> BuildRequest:
        """Return a request; if `threads` is None, it has the default thread counts of the target."""
        kind = kind_of(target)
        place = place.with_key(kind.name) if place is not None else None
        threads = kind.default_thread_counts(place) if threads is None else threads
        return cls(target=target, place=place, threads=threads, **fields)

    def check(self, *, dry_run: bool = False, tuned: bool = False, lowers: bool = True) -> None:
        """Check that the options are valid; the most important problem is reported first.

        Args:
            dry_run: whether the model is compiled for the target, but not measured.
            tuned: whether a search comes first, which creates the folder of the records if it is missing.
            lowers: whether the model will be lowered or compiled, so that the TVM build of the target is checked, too
                (`check_build`); False if a stored lowering may be used.

        Raises:
            UsageError: an option is out of range; the message gives the range.
        """
        COMPILERS.check(self.compiler)
        compiler = COMPILERS.get(self.compiler)
        self.kind.check(self.target, remote=self.place is not None, dry_run=dry_run)
        if lowers:
            self.check_build()
        self.check_anywhere()
        compiler.check_pipeline(self.pipeline)
        if self.input_data is not None:
            read_arrays(Path(self.input_data))
        if not tuned:
            record_files.check_folder(self.schedules)
        if not self.threads:
            raise UsageError("--threads is empty; give thread counts such as 1,2")
        self.kind.check_threads(self.threads, self.place)

    def check_build(self) -> None:
        """Check that the TVM build that lowers for the target is installed.

        Raises:
            OpProfilerError: this TVM build or one of its libraries is missing; the message names what to install.
        """
        if COMPILERS.get(self.compiler).takes_builds_of_targets:
            self.kind.check_build()

    def check_anywhere(self) -> None:
        """Check the options as far as they do not depend on the files, packages and cores of a machine.

        Raises:
            UsageError: as for `check`.
        """
        COMPILERS.check(self.compiler)
        compiler = COMPILERS.get(self.compiler)
        _ = self.kind
        one_of("precision", self.precision, get_args(Precision))
        one_of("executor", self.executor, EXECUTORS)
        one_of("cache", self.cache, get_args(Cache))
        one_of("value of --check-outputs", self.check_outputs, get_args(CheckOutputs))
        if self.executor == "vm":
            if self.cache != "model":
                raise UsageError(f"--executor vm measures with --cache model only, not {self.cache}")
            if not self.on_host or self.precision != "float32":
                raise UsageError("--executor vm measures float32 on this machine's processor only")
        if self.model.past is not None:
            compiler.require("load_step", "--prefill" if self.model.past == 0 else "--decode")
        check_rule(self.schedules, self.compiler, self.kind)
        compiler.check(self)
        compiler.check_importer(self.model.importer)
        if self.model.batch_size < 1:
            raise UsageError(f"--batchsize {self.model.batch_size} is out of range; give 1 or more")

    @property
    def kind(self) -> TargetKind:
        """Kind of the target; raises UsageError if no kind has this name."""
        return kind_of(self.target)

    @property
    def on_host(self) -> bool:
        """Whether kernels run on the processor of this machine."""
        return self.place is None and self.kind.on_host

    @property
    def conditions(self) -> records.Conditions:
        """Conditions (thread count and cache state) whose schedule records the build prefers."""
        return records.Conditions(max(self.threads), self.cache)

    def usable_records(self) -> UsableRecords:
        """Return the schedule records that a build uses today."""
        named = None if self.schedules in (records.AUTO, records.RULE, records.NONE) else self.schedules
        by_rule = self.schedules == records.RULE
        return UsableRecords.of_file(self.record_file(), self.conditions, named, by_rule=by_rule)

    def record_file(self) -> Path | None:
        """Return the file of the schedule records for this target and processor; None if records are switched off."""
        kind = self.kind
        folder = kind.name if self.compiler == DEFAULT_COMPILER else f"{self.compiler}/{kind.name}"
        name = kind.processor_name() if self.place is None else self.place.key  # all machines of a key share them
        name = name if self.target.strip() == kind.name else f"{name} {_in_words(self.target)}"
        return record_files.record_file(self.schedules, folder, name, COMPILERS.get(self.compiler).record_form)

    def base_key(self, content: str, machine: str, label: str = "") -> str:
        """Return a digest of everything that identifies the measured model and is known without building it.

        Args:
            content: content of the model (`ImportedModel.content`).
            machine: `Device.identity` of the machine that measures it.
            label: label of the run; runs with different labels are separate models in the dataset.
        """
        identity = [
            content,
            self.target,
            self.precision,
            self.executor,
            tvm_identity(self.target, self.compiler),
            machine,
        ]
        if self.pipeline != DEFAULT_PIPELINE:
            identity.append(pipeline_identity(self.pipeline))
        if self.input_data is not None:  # its accuracy is that of these values, and int8 is calibrated with them
            identity.append(hashlib.sha256(Path(self.input_data).read_bytes()).hexdigest())
        key = _digest(identity)
        return _digest([key, label]) if label else key

    def model_key(self, base_key: str, asked: Iterable[str]) -> str:
        """Return a digest that identifies the built model: `base_key` and the schedule records that a build uses today.

        Args:
            asked: computations for which a build looks up records. Computations without a record do not change the key,
                so it is the `base_key` if there are no records.
        """
        found = self.usable_records().digest(asked)
        if not found:
            return base_key
        return _digest([base_key, found])


def _in_words(target: str) -> str:
    """Return a target as a part of a file name in which its options stay distinguishable, without plus and minus
    signs."""
    return re.sub(r"(?<=[=,])[+-]", lambda sign: " plus " if sign[0] == "+" else " minus ", target)


def _digest(identity: list[str]) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def one_of(kind: str, value: str, known: tuple[str, ...]) -> None:
    """Raise UnknownNameError if `value` is not in `known`; the message names the most similar known value.

    Args:
        kind: what the value is, for the message.
    """
    if value not in known:
        raise UnknownNameError(kind, value, known)
