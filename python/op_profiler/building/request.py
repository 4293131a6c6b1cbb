"""What a built model depends on, checked before anything heavy is loaded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.abilities import require
from op_profiler.compilers.importers import check_importer
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE, check_pipeline, pipeline_identity
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Cache, Precision
from op_profiler.schedules import records
from op_profiler.schedules.usable_records import UsableRecords
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, tvm_identity
from op_profiler.targets.target_kind import TargetKind

EXECUTORS = ("default", "vm")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildRequest:
    """One model, and what it is built for.

    Attributes:
        model: which model, with which inputs.
        target: TVM target string; ``llvm`` alone means this processor.
        compiler: name of the compiler.
        pipeline: of that compiler: ``default``, another that it knows by name, or the user's ``MODULE:FUNCTION``.
        place: of the machine that it is to run on; None for this one.
        precision: that it is converted to.
        executor: ``default`` (graph), or ``vm`` for dynamic shapes.
        input_data: file of arrays (.npz) by the names of the inputs, which int8 is calibrated with; None for random
            ones.
        schedules: ``auto`` (the records of this processor), ``none``, or the folder of the records.
        threads: thread counts that it is to run at; records of the largest count are preferred.
        cache: state of the caches that its operators are to meet; records of it are preferred.
    """

    model: ModelRequest
    target: str = "llvm"
    compiler: str = DEFAULT_COMPILER
    pipeline: str = DEFAULT_PIPELINE
    place: Place | None = None
    precision: Precision = "float32"
    executor: str = "default"
    input_data: str | None = None
    schedules: str = records.AUTO
    threads: tuple[int, ...] = (1,)
    cache: Cache = "model"

    def check(self, *, dry_run: bool = False, tuned: bool = False) -> None:
        """Refuse what cannot work, in the order in which a user would want to hear of it.

        Args:
            dry_run: it is compiled for and not measured.
            tuned: a search comes first, which makes the folder of the records where there is none.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        from op_profiler.building.input_arrays import read_arrays

        COMPILERS.check(self.compiler)
        compiler = COMPILERS.get(self.compiler)
        self.kind.check(self.target, remote=self.place is not None, dry_run=dry_run)
        if compiler.takes_builds_of_targets:
            self.kind.check_build()
        self.check_anywhere()
        check_pipeline(self.pipeline, compiler)
        if self.input_data is not None:
            read_arrays(Path(self.input_data))
        if not tuned:
            records.check_folder(self.schedules)
        if not self.threads:
            raise UsageError("--threads is empty; give thread counts such as 1,2")
        self.kind.check_threads(self.threads, self.place)

    def check_anywhere(self) -> None:
        """Refuse what no machine can do, whatever files, packages and cores it has.

        Raises:
            UsageError: as `check`.
        """
        COMPILERS.check(self.compiler)
        compiler = COMPILERS.get(self.compiler)
        _ = self.kind
        one_of("precision", self.precision, get_args(Precision))
        one_of("executor", self.executor, EXECUTORS)
        one_of("cache", self.cache, get_args(Cache))
        if self.executor == "vm":
            if self.cache != "model":
                raise UsageError(f"--executor vm measures with --cache model only, not {self.cache}")
            if not self.on_host or self.precision != "float32":
                raise UsageError("--executor vm measures float32 on this machine's processor only")
        if self.model.past is not None:
            require(self.compiler, "decode", "--prefill" if self.model.past == 0 else "--decode")
        compiler.check(self)
        check_importer(self.model.importer, compiler)
        if self.model.batch_size < 1:
            raise UsageError(f"--batchsize {self.model.batch_size} is out of range; give 1 or more")

    @property
    def kind(self) -> TargetKind:
        """Of the target; raises UsageError where there is none of its name."""
        return kind_of(self.target)

    @property
    def on_host(self) -> bool:
        """Whether kernels run on the processor of this machine."""
        return self.place is None and self.kind.on_host

    @property
    def conditions(self) -> records.Conditions:
        """The schedule records that were found for these are the best for it."""
        return records.Conditions(max(self.threads), self.cache)

    def usable_records(self) -> UsableRecords:
        """The schedule records that a build finds today."""
        return UsableRecords.of_file(self.record_file(), self.conditions)

    def record_file(self) -> Path | None:
        """The file of the schedule records for this target and processor; None where they are switched off."""
        kind = self.kind
        folder = kind.name if self.compiler == DEFAULT_COMPILER else f"{self.compiler}/{kind.name}"
        name = kind.processor_name() if self.place is None else self.place.key  # all machines of a key share them
        name = name if self.target.strip() == kind.name else f"{name} {_in_words(self.target)}"
        return records.record_file(self.schedules, folder, name, COMPILERS.get(self.compiler).record_form)

    def base_key(self, content: str, machine: str, label: str = "") -> str:
        """Identity of what is measured, as far as it is known without building it.

        Args:
            content: of the model (`ImportedModel.content`).
            machine: `Device.identity` of the one that it is measured on.
            label: of the run, which is a model of its own in the dataset.
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
        """Identity of the built model: with the schedule records that its build finds today.

        Args:
            asked: computations that a build looks for records of; those that have none leave no trace in the key, so
                that it is the `base_key` where nothing has one.
        """
        found = self.usable_records().digest(asked)
        if not found:
            return base_key
        return _digest([base_key, found])


def _in_words(target: str) -> str:
    """A target whose options stay apart in the name of a file, where neither plus nor minus can stand."""
    return re.sub(r"(?<=[=,])[+-]", lambda sign: " plus " if sign[0] == "+" else " minus ", target)


def _digest(identity: list[str]) -> str:
    return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]


def one_of(kind: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not among the known ones, naming the nearest."""
    if value not in known:
        raise UnknownNameError(kind, value, known)
