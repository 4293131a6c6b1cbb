"""What a user asks the collector for, checked before anything heavy is loaded."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

from op_profiler.building.request import BuildRequest, one_of
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.abilities import require
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UsageError
from op_profiler.measure.measurement import Settings
from op_profiler.schedules import records
from op_profiler.tuning.tuners import TUNERS

ResourceValue = str | int | tuple[int, ...]
TRIALS = (10, 3000)
REMEASURE = ("failed", "noisy", "all")
ENERGY = ("operators", "model", "none")
_LABEL = re.compile(r"\w([\w./+-]{0,62}\w)?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measuring:
    """How a built model is measured.

    Attributes:
        coverage: share of the model's time whose operators have to settle at every thread count.
        resources: values that resources of this machine are given meanwhile, by their names in `Settings`.
        rounds: how often everything is timed at most; None for the usual limits.
        remeasure: what is measured again although the dataset has it: ``failed``, ``noisy`` (under foreign load,
            with cores further apart or slower than usual, or not settled) or ``all``; empty for nothing.
        counters: read the kernel's counters too, in walks of their own after the rounds.
        energy: of the model and of its heavy ``operators``, of the ``model`` alone, or ``none``: half a second each,
            where the machine has a counter.
    """

    coverage: float = 0.95
    resources: dict[str, ResourceValue] = dataclasses.field(default_factory=dict)
    rounds: int | None = None
    remeasure: str = ""
    counters: bool = False
    energy: str = ENERGY[0]

    def check(self, build: BuildRequest) -> None:
        """Refuse what cannot work for a build.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        from op_profiler.resources import resource_to_sweep

        self.check_anywhere(build)
        for name in self.resources:
            build.kind.check_resource(resource_to_sweep(name))

    def check_anywhere(self, build: BuildRequest) -> None:
        """Refuse what no machine can do; raises UsageError as `check`."""
        if self.remeasure:
            one_of("--remeasure", self.remeasure, REMEASURE)
        one_of("--energy", self.energy, ENERGY)
        if not 0.0 < self.coverage <= 1.0:
            raise UsageError(f"--coverage {self.coverage} is out of range; give a share above 0 and up to 1")
        if self.resources and build.place is not None:
            raise UsageError("--sweep sets resources of this machine; leave it out, or --host and --port")
        here = build.place is None and (build.kind.on_host or build.kind.on_gpu)
        if self.counters and (not here or build.executor == "vm"):
            raise UsageError("--counters reads this machine's processor or GPU under the graph executor; leave it out")

    @property
    def core_set(self) -> tuple[int, ...] | None:
        """Cores that kernels are to run on; None where that is not asked for."""
        found = self.resources.get("core_set")
        return found if isinstance(found, tuple) else None

    @property
    def resources_label(self) -> str:
        """The values of resources for a title, with a comma in front of each; empty where there are none."""
        return "".join(f", {name} {value}" for name, value in self.resources.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """How to search for better schedules.

    Attributes:
        tuner: name of the search strategy, one of `TUNERS`; None for the compiler's own.
        trials: candidates an operator, 10 to 3000.
        seed: of everything that is drawn.
        partial: report the best after parts of the trials.
        space: of schedules, one of `Compiler.spaces`; None for the compiler's usual one.
    """

    tuner: str | None = None
    space: str | None = None
    trials: int = 64
    seed: int = 0
    partial: bool = False

    def check(self) -> None:
        """Refuse what cannot work.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        if self.tuner is not None:
            TUNERS.check(self.tuner)
        if not TRIALS[0] <= self.trials <= TRIALS[1]:
            raise UsageError(f"--trials {self.trials} is out of range; give {TRIALS[0]} to {TRIALS[1]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Studies:
    """What is done with the heavy operators of a model beside measuring them.

    Attributes:
        tune: search for better schedules; None for no search.
        compare: run the model with default and with recorded schedules.
        vendor: time the vendor's kernels for the same operators.
    """

    tune: TuneRequest | None = None
    compare: bool = False
    vendor: bool = False

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.tune is not None or self.compare or self.vendor


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """One model, what it is built for, and what is done with it.

    Attributes:
        build: which model, for which machine, at which thread counts.
        db: SQLAlchemy address of the dataset.
        dry_run: compile only.
        label: name of the run, which keeps it apart from others of the same model in the dataset; empty for none.
    """

    build: BuildRequest
    measuring: Measuring = Measuring()
    studies: Studies = Studies()
    db: str = DEFAULT_DB
    dry_run: bool = False
    label: str = ""

    def check(self) -> None:
        """Refuse what cannot work, in the order in which a user would want to hear of it.

        Raises:
            UsageError: an option is out of range; names what it may be.
        """
        self._check_studies()
        if self.studies.vendor:
            self.build.kind.check_vendor(self.build.place)
        self.build.check(dry_run=self.dry_run, tuned=self.studies.tune is not None)
        self.measuring.check(self.build)
        self._check_label()

    def check_for_cluster(self) -> None:
        """Refuse what no machine of a cluster can do, before it is sent; the one that carries it out `check`s the rest.

        Raises:
            UsageError: as `check`.
        """
        self._check_studies()
        self.build.check_anywhere()
        self.measuring.check_anywhere(self.build)
        self._check_label()

    def _check_label(self) -> None:
        if self.label and not _LABEL.fullmatch(self.label):
            raise UsageError(f"--label {self.label!r} is no name; give up to 64 letters, digits, and . _ / + - inside")
        if self.label and self.build.cache != "model":
            raise UsageError(f"--label: times with {self.build.cache} caches hold in every run; leave out one of both")

    def base_key(self, content: str, machine: str) -> str:
        """`BuildRequest.base_key` of this run."""
        return self.build.base_key(content, machine, self.label)

    def _check_studies(self) -> None:
        studies = self.studies
        asked = {"tune": studies.tune is not None, "compare": studies.compare, "vendor": studies.vendor}
        for ability, option in {"tune": "--iftune", "compare": "--ifcompare", "vendor": "--vendor"}.items():
            if asked[ability]:
                require(self.build.compiler, ability, option)
        if studies.tune is not None:
            studies.tune.check()
            compiler = COMPILERS.get(self.build.compiler)
            if self.build.place is not None:
                require(self.build.compiler, "tune_remotely", "--iftune with --host")
            if self.build.kind.on_gpu:
                require(self.build.compiler, "tune_on_gpu", f"--iftune with --target {self.build.kind.name}")
            if studies.tune.space not in (None, *compiler.spaces):
                names = " or ".join(compiler.spaces)
                raise UsageError(
                    f"--space {studies.tune.space} is not there for --compiler {compiler.name}; give {names}"
                )
            if studies.tune.tuner in compiler.other_tuners:
                names = ", ".join(name for name in TUNERS if name not in compiler.other_tuners)
                raise UsageError(
                    f"--tuner {studies.tune.tuner} is not there for --compiler {compiler.name}; give {names}"
                )
        if self.build.pipeline != DEFAULT_PIPELINE and (studies.tune or studies.compare):
            raise UsageError(
                f"--pipeline {self.build.pipeline} schedules by itself; leave out --iftune and --ifcompare"
            )
        if self.build.schedules == records.NONE and (studies.tune or studies.compare):
            raise UsageError("--schedules none leaves nothing to tune for or to compare with; leave it out")
        if studies and (self.dry_run or self.build.executor == "vm"):
            other = "--dry-run measures nothing" if self.dry_run else "the virtual machine is measured as it is"
            raise UsageError(f"{other}; leave out --iftune, --ifcompare and --vendor")
        if self.measuring.resources and (studies or self.dry_run):
            raise UsageError("--sweep only measures; leave out --iftune, --ifcompare, --vendor and --dry-run")

    def of(self, **build: Any) -> CollectRequest:
        """The same of another build: these fields of `BuildRequest` are different."""
        return dataclasses.replace(self, build=dataclasses.replace(self.build, **build))

    def settings(self, threads: int, **read_back: Any) -> Settings:
        """What is asked for at a thread count, and what was read back by the fields of `Settings`."""
        build = self.build
        return Settings(
            threads=threads,
            cache=build.cache,
            precision=build.precision,
            executor="vm" if build.executor == "vm" else "graph",
            **self.asked(threads),
            **read_back,
        )

    def asked(self, threads: int) -> dict[str, Any]:
        """The resources that are asked for at a thread count, by their names in `Settings`."""
        resources = self.measuring.resources
        if not self.build.on_host:
            return resources
        from op_profiler.cores import available_cores

        cores = self.measuring.core_set or available_cores()
        return resources | {"core_set": tuple(cores[:threads])}

    def machine(self) -> str | None:
        """`Device.identity` of the machine that is measured; None of one behind RPC, which has to be asked itself.

        Raises:
            MeasureError: a GPU that does not tell which one it is.
        """
        if self.dry_run and not self.build.on_host:
            return ""  # compiled for, and nowhere measured
        if self.build.place is not None:
            return None
        return self.build.kind.machine_identity()
