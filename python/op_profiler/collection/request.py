"""`CollectRequest`: the options of ``op-profiler collect``; their validation needs no heavy imports."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated, Any

from op_profiler.building.request import BuildRequest, one_of
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.cores import binding_order
from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UsageError
from op_profiler.measure.measurement import Settings
from op_profiler.option_values import parse_bool
from op_profiler.options import MEASURING, OUTPUT, TUNING, DbOption, Option
from op_profiler.resources import resource_to_sweep
from op_profiler.schedules import records
from op_profiler.tuning.tuners import TUNERS, tuners_of

ResourceValue = str | int | tuple[int, ...]
TRIALS = (10, 3000)
REMEASURE = ("failed", "noisy", "all")
ENERGY = ("operators", "model", "none")
_LABEL = re.compile(r"\w([\w./+-]{0,62}\w)?")


RemeasureOption = Annotated[
    str,
    Option(
        "Measure stored results again: failed (did not compile, crashed or computed wrong values), noisy (under "
        "background load, unsteady, not converged, on cores that were slower than usual, or at several threads on "
        "cores without a common cache) or all. "
        "Failures that the machine caused are always retried.",
        MEASURING,
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measuring:
    """Options that control how a built model is measured.

    Attributes:
        resources: values to which resources of this machine are set during the measurement, by the resource's name in
            `Settings`.
        rounds: largest number of rounds; None for the default limits.
    """

    coverage: Annotated[
        float,
        Option(
            "Share of the model's time that the heavy operators make up. Rounds repeat until the times of all heavy "
            "operators converge at every thread count, or until a limit is reached.",
            MEASURING,
        ),
    ] = 0.95
    resources: dict[str, ResourceValue] = dataclasses.field(default_factory=dict)
    rounds: int | None = None
    remeasure: RemeasureOption = ""
    counters: Annotated[
        bool,
        Option(
            "After the rounds, also count cycles, instructions, cache and branch misses, page faults and context "
            "switches of each kernel, if the machine has such counters. On a GPU, measure with Nsight Compute (ncu) "
            "which share of the peak of memory, SMs and tensor cores each kernel reaches. For times "
            "that are stored without counters, only the counters are measured.",
            MEASURING,
        ),
    ] = False
    energy: Annotated[
        str,
        Option(
            "Energy to measure, if the machine has an energy counter: operators (the model and its heavy operators), "
            "model (the model only) or none. Each measurement adds half a second. Results that "
            "were stored without energy are not measured again; to measure them again, use --remeasure all.",
            MEASURING,
        ),
    ] = ENERGY[0]

    def check(self, build: BuildRequest) -> None:
        """Check that a build can be measured with these options.

        Raises:
            UsageError: an option is out of range; the message gives the range.
        """
        self.check_anywhere(build)
        for name in self.resources:
            build.kind.check_resource(resource_to_sweep(name))

    def check_anywhere(self, build: BuildRequest) -> None:
        """Check the options that do not depend on this machine; raises UsageError as `check` does."""
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
        """Cores that kernels must run on; None if no core set was requested."""
        found = self.resources.get("core_set")
        return found if isinstance(found, tuple) else None

    @property
    def resources_label(self) -> str:
        """Names and values of the requested resources for a title, each after a comma; empty without resources."""
        return "".join(f", {name} {value}" for name, value in self.resources.items())


@dataclasses.dataclass(frozen=True, kw_only=True)
class TuneRequest:
    """Options of the search for schedules.

    Attributes:
        seed: seed of the random draws.
    """

    tuner: Annotated[
        str | None,
        Option("Search strategy: {tuners}. Default: xgb_knob; trees on GPUs and with --compiler relax.", TUNING),
    ] = None
    space: Annotated[
        str | None,
        Option(
            "Search space: templates (of this project), or with --compiler relax also automatic (generated by "
            "MetaSchedule). Default: templates.",
            TUNING,
        ),
    ] = None
    trials: Annotated[int, Option("Candidates to try for each operator, 10 to 3000.", TUNING)] = 64
    seed: int = 0
    partial: Annotated[
        bool,
        Option(
            "true or false: also report the best time after 100, 300, 500 and 1000 trials.",
            TUNING,
            flags=("--ifpartial",),
            parse=parse_bool,
            shown="false",
        ),
    ] = False

    def check(self) -> None:
        """Check that the options are valid.

        Raises:
            UsageError: an option is out of range; the message gives the range.
        """
        if self.tuner is not None:
            TUNERS.check(self.tuner)
        if not TRIALS[0] <= self.trials <= TRIALS[1]:
            raise UsageError(f"--trials {self.trials} is out of range; give {TRIALS[0]} to {TRIALS[1]}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Studies:
    """Studies of a model's heavy operators, in addition to measuring.

    Attributes:
        tune: search for better schedules; None for no search.
    """

    tune: TuneRequest | None = None
    compare: Annotated[
        bool,
        Option(
            "true or false: compare the model's time under default and under recorded schedules, in alternating runs.",
            TUNING,
            name="ifcompare",
            parse=parse_bool,
            shown="false",
        ),
    ] = False
    vendor: Annotated[
        bool,
        Option(
            "true or false: also time torch's kernels for the heavy operators.", TUNING, parse=parse_bool, shown="false"
        ),
    ] = False

    def __bool__(self) -> bool:
        """Return whether any study is requested."""
        return self.tune is not None or self.compare or self.vendor


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollectRequest:
    """Options of a collection of one model: its build, how it is measured, and which studies follow."""

    build: BuildRequest = BuildRequest()
    measuring: Measuring = Measuring()
    studies: Studies = Studies()
    db: DbOption = DEFAULT_DB
    dry_run: Annotated[bool, Option("Extract the operators, with their calls and FLOPs; measure nothing.", OUTPUT)] = (
        False
    )
    label: Annotated[
        str,
        Option(
            "Name of this run. The dataset stores the run next to other runs of the same model, and 'op-profiler "
            "compare' compares them.",
            OUTPUT,
        ),
    ] = ""

    def check(self) -> None:
        """Check that the options are valid; the most important problem is reported first.

        Raises:
            UsageError: an option is out of range; the message gives the range.
        """
        self._check_studies()
        if self.studies.vendor:
            self.build.kind.check_vendor(self.build.place)
        self.build.check(dry_run=self.dry_run, tuned=self.studies.tune is not None)
        self.measuring.check(self.build)
        self._check_label()

    def check_for_cluster(self) -> None:
        """Check the options that do not depend on the machine, before the request is sent to a cluster.

        The machine that measures the request runs `check`.

        Raises:
            UsageError: as for `check`.
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
        """Return `BuildRequest.base_key` of this request's build and label."""
        return self.build.base_key(content, machine, self.label)

    def _check_studies(self) -> None:
        studies = self.studies
        compiler = COMPILERS.get(self.build.compiler)
        if studies.tune is not None or studies.compare:
            compiler.require("task", "--iftune" if studies.tune is not None else "--ifcompare")
        compiler.check_search(self.build, tuned=studies.tune is not None, vendor=studies.vendor)
        if studies.tune is not None:
            studies.tune.check()
            for option, given, known, between in (
                ("--space", studies.tune.space, compiler.spaces, " or "),
                ("--tuner", studies.tune.tuner, tuners_of(compiler.name), ", "),
            ):
                if given not in (None, *known):
                    names = between.join(known)
                    raise UsageError(f"{option} {given} is not there for --compiler {compiler.name}; give {names}")
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
        """Return a copy with the given fields of `BuildRequest` replaced."""
        return dataclasses.replace(self, build=dataclasses.replace(self.build, **build))

    def settings(self, threads: int, **read_back: Any) -> Settings:
        """Return the settings at a thread count; `read_back` contains effective values by fields of `Settings`."""
        build = self.build
        return Settings(
            threads=threads,
            cache=build.cache,
            precision=build.precision,
            executor="vm" if build.executor == "vm" else "graph",
            **self.requested_resources(threads),
            **read_back,
        )

    def requested_resources(self, threads: int) -> dict[str, Any]:
        """Return the requested resources at a thread count, by their names in `Settings`."""
        resources = self.measuring.resources
        if not self.build.on_host:
            return resources
        cores = self.measuring.core_set or binding_order()
        return resources | {"core_set": tuple(cores[:threads])}

    def machine(self) -> str | None:
        """Return `Device.identity` of the machine to measure on; None for a device behind RPC.

        The identity of a device behind RPC is known only after it is opened. A dry run for a GPU returns an empty
        string, because nothing is measured.

        Raises:
            MeasureError: the GPU does not report its UUID.
        """
        if self.dry_run and not self.build.on_host:
            return ""  # compiled for, and nowhere measured
        if self.build.place is not None:
            return None
        return self.build.kind.machine_identity()
