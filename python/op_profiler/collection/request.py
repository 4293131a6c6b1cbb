"""What a user asks the collector for, checked before anything heavy is loaded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Cache
from op_profiler.schedules import records
from op_profiler.targets.machine import Place
from op_profiler.targets.target import compiler_identity, kind_of
from op_profiler.targets.target_kind import TargetKind
from op_profiler.tuning.tuners import TUNERS

PRECISIONS = ("float32", "float16", "int8")
EXECUTORS = ("default", "vm")
CACHES = ("model", "hot", "cold")
TRIALS = (10, 3000)
REMEASURE = ("failed", "noisy", "all")
DEFAULT_DB = "sqlite:///results/op_profiler.db"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """How to search for better schedules.

    Attributes:
        tuner: name of the search strategy, one of `TUNERS`.
        trials: candidates an operator, 10 to 3000.
        operators: workload keys of the operators to tune.
        seed: of everything that is drawn.
    """

    tuner: str = "xgb_knob"
    trials: int = 64
    operators: tuple[str, ...] = ()
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        TUNERS.check(self.tuner)
        if not TRIALS[0] <= self.trials <= TRIALS[1]:
            raise UsageError(f"--trials {self.trials} is out of range; give {TRIALS[0]} to {TRIALS[1]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Studies:
    """What is done with the heavy operators of a model beside measuring them.

    Attributes:
        tune: search for better schedules.
        compare: run the model with default and with recorded schedules.
        vendor: time the vendor's kernels for the same operators.
        partial: report the best after parts of the trials.
    """

    tune: TuneRequest | None = None
    compare: bool = False
    vendor: bool = False
    partial: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """One model under one set of options.

    Attributes:
        model: which model, with which inputs.
        target: TVM target string; ``llvm`` alone means this processor.
        place: of the machine that it is measured on; None for this one.
        input_data: file of arrays (.npz) by the names of the inputs; None for random ones.
        threads: thread counts to measure at.
        coverage: share of the model's time whose operators have to settle at every thread count.
        cache: state of the caches that the operators meet.
        resources: values that resources of this machine are given meanwhile, by their names in `Settings`.
        schedules: ``auto`` (the records of this processor), ``none``, or the folder of the records.
        db: SQLAlchemy address of the dataset.
        rounds: how often everything is timed; None until the times settle.
        remeasure: what is measured again although the dataset has it: ``failed``, ``noisy`` (under foreign load, or
            not settled) or ``all``; empty for nothing.
    """

    model: ModelRequest
    target: str = "llvm"
    precision: str = "float32"
    executor: str = "default"
    place: Place | None = None
    input_data: str | None = None
    threads: tuple[int, ...] = (1,)
    coverage: float = 0.95
    cache: Cache = "model"
    resources: dict[str, Any] = dataclasses.field(default_factory=dict)
    schedules: str = records.AUTO
    db: str = DEFAULT_DB
    rounds: int | None = None
    remeasure: str = ""
    dry_run: bool = False

    def check(self, *, tuned: bool = False) -> None:
        """Refuse what cannot work, in the order in which a user would want to hear of it.

        Args:
            tuned: a search comes first, which makes the folder of the records where there is none.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        from op_profiler.building.input_arrays import read_arrays

        self.kind.check(self.target, remote=self.place is not None, dry_run=self.dry_run)
        one_of("precision", self.precision, PRECISIONS)
        one_of("executor", self.executor, EXECUTORS)
        one_of("cache", self.cache, CACHES)
        if self.remeasure:
            one_of("--remeasure", self.remeasure, REMEASURE)
        if self.executor == "vm":
            if self.cache != "model":
                raise UsageError(f"--executor vm measures with --cache model only, not {self.cache}")
            if not self.on_host or self.precision != "float32":
                raise UsageError("--executor vm measures float32 on this machine's processor only")
        if self.input_data is not None:
            read_arrays(Path(self.input_data))
        if not tuned:
            records.check_folder(self.schedules)
        if not 0.0 < self.coverage <= 1.0:
            raise UsageError(f"--coverage {self.coverage} is out of range; give a share above 0 and up to 1")
        if self.model.batch_size < 1:
            raise UsageError(f"--batchsize {self.model.batch_size} is out of range; give 1 or more")
        if not self.threads:
            raise UsageError("--threads is empty; give thread counts such as 1,2")
        self.kind.check_threads(self.threads, self.place)
        self._check_resources()

    def _check_resources(self) -> None:
        from op_profiler.resources import resource_to_sweep

        if self.resources and self.place is not None:
            raise UsageError("--sweep sets resources of this machine; leave it out, or --host and --port")
        for name in self.resources:
            self.kind.check_resource(resource_to_sweep(name))

    def asked(self, threads: int) -> dict[str, Any]:
        """The resources that are asked for at a thread count, by their names in `Settings`."""
        if not self.on_host:
            return self.resources
        from op_profiler.measure.threads import available_cores

        cores = self.resources.get("core_set") or available_cores()
        return self.resources | {"core_set": tuple(cores[:threads])}

    @property
    def resources_label(self) -> str:
        """The values of resources for a title, with a comma in front of each; empty where there are none."""
        return "".join(f", {name} {value}" for name, value in self.resources.items())

    @property
    def kind(self) -> TargetKind:
        """Of the target; raises UsageError where there is none of its name."""
        return kind_of(self.target)

    @property
    def on_host(self) -> bool:
        """Whether kernels run on the processor of this machine."""
        return self.place is None and self.kind.on_host

    def machine(self) -> str | None:
        """`Device.identity` of the machine that is measured; None of one behind RPC, which has to be asked itself.

        Raises:
            MeasureError: a GPU that does not tell which one it is.
        """
        if self.dry_run and not self.on_host:
            return ""  # compiled for, and nowhere measured
        if self.place is not None:
            return None
        return self.kind.machine_identity()

    def base_key(self, content: str, machine: str) -> str:
        """Identity of what is measured, as far as it is known without building it.

        Args:
            content: of the model (`RelayModel.content`).
            machine: `Device.identity` of the one that it is measured on.
        """
        identity = [content, self.target, self.precision, self.executor, compiler_identity(self.target), machine]
        if self.input_data is not None:  # its accuracy is that of these values, and int8 is calibrated with them
            identity.append(hashlib.sha256(Path(self.input_data).read_bytes()).hexdigest())
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]

    def model_key(self, base_key: str, asked: Iterable[str]) -> str:
        """Identity of the built model: with the schedule records that its build finds today.

        Args:
            asked: computations that a build looks for records of; those that have none leave no trace in the key, so
                that it is the `base_key` where nothing has one.
        """
        found = records.digest(self.record_file(), asked, self.conditions)
        if not found:
            return base_key
        return hashlib.sha256(json.dumps([base_key, found]).encode()).hexdigest()[:16]

    @property
    def conditions(self) -> records.Conditions:
        """What the model is built for: the schedule records that were found for these are the best for it."""
        return records.Conditions(max(self.threads), self.cache)

    def record_file(self) -> Path | None:
        """The file of the schedule records for this target and processor; None where they are switched off."""
        kind = self.kind
        name = kind.processor_name() if self.place is None else self.place.key  # all machines of a key share them
        name = name if self.target.strip() == kind.name else f"{name} {self.target}"
        return records.record_file(self.schedules, kind.name, name)

    def to_json(self) -> str:
        """The request as one line, for the worker process."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> CollectRequest:
        """The request that `to_json` wrote."""
        fields = json.loads(text)
        model = fields.pop("model")
        model["input_names"] = tuple(model["input_names"])
        model["input_shapes"] = tuple(tuple(shape) for shape in model["input_shapes"])
        fields["threads"] = tuple(fields["threads"])
        if "core_set" in fields["resources"]:
            fields["resources"]["core_set"] = tuple(fields["resources"]["core_set"])
        fields["place"] = Place(**fields["place"]) if fields["place"] is not None else None
        return cls(model=ModelRequest(**model), **fields)


def one_of(kind: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not among the known ones, naming the nearest."""
    if value not in known:
        raise UnknownNameError(kind, value, known)
