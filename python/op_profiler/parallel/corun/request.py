"""`CorunRequest`: models to run side by side, and the options; their validation needs no heavy imports."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from op_profiler.building.request import BuildRequest, CheckOutputsOption, CompilerOption, SchedulesOption
from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.errors import MissingPackageError, ModelError, UsageError, check_known
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.threads import check_thread_counts
from op_profiler.options import MODEL, OUTPUT, Option, Within
from op_profiler.parallel.planning.policies import POLICIES
from op_profiler.schedules import records
from op_profiler.targets import TARGETS
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of
from op_profiler.targets.target_kind import NO_PLANS_FOR_BOARDS

if TYPE_CHECKING:
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes

AUTO, COLLABORATE = "auto", "collaborate"
CHOICES = (*(name for name in POLICIES if name != "exhaustive"), "exhaustive", COLLABORATE, AUTO)
_GAMES = ("nash", AUTO)
COSTS = ("measured", "predicted")
_PLAN = "Plan"

Announce = Callable[[str], None]
"""A function that is called with the name of a slow step before the step begins."""


def parse_targets(option: str, text: str) -> tuple[str, ...]:
    """Split a list of targets at commas, except commas inside the options of a target (``-mattr=+avx,+fma``)."""
    kinds = "|".join(map(re.escape, TARGETS))
    return tuple(re.split(rf"\s*,\s*(?=(?:{kinds})(?:[\s,]|$))", text.strip()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorunRequest:
    """Models to run side by side, and the options of the run.

    Attributes:
        models: one or several models.
        policy: planning policy. With several targets, ``nash`` runs the best equilibrium; ``auto`` too, unless running
            all models on one target is faster.
        merge: whether operators are merged; if False, the policy ``auto`` also tries merged operators.
        targets: one target, which runs operators of all models side by side; or several targets, of which each model
            chooses one. At most one of the targets is cuda, and at most one is a board.
        place: where the board is reached; None without a board.
        db: address of the dataset; with None, co-runs are not stored, and costs are predicted from this machine's
            calibration or the included data.
    """

    models: tuple[ModelRequest, ...] = ()
    policy: Annotated[
        str,
        Option("Planning policy: {policies}, collaborate, auto. With --cluster: several, separated by commas.", _PLAN),
    ] = AUTO
    plan: Annotated[Path | None, Option("Run this stored plan (written by --save-plan).", _PLAN, metavar="<file>")] = (
        None
    )
    merge: Annotated[bool, Option("Merge operators that read the same input into one kernel.", _PLAN)] = False
    costs: Annotated[str, Option("Times of operators to plan with: measured on this machine, or predicted.", _PLAN)] = (
        "measured"
    )
    threads: Annotated[
        int | None,
        Option("Number of cores that a plan may use. Default: all.", _PLAN, name="cores", flags=("--threads",)),
    ] = None
    streams: Annotated[int | None, Option("Number of streams that a plan for cuda may use. Default: 4.", _PLAN)] = None
    rounds: Annotated[
        int, Option("Number of rounds; each round times the plan and sequential execution once.", _PLAN)
    ] = 40
    targets: Annotated[
        tuple[str, ...],
        Option(
            "Target: llvm, cuda or a TVM target. With several models also several targets, separated by commas, at "
            "most one of them a board.",
            MODEL,
            name="target",
            parse=parse_targets,
            shown="llvm",
        ),
    ] = ("llvm",)
    compiler: CompilerOption = DEFAULT_COMPILER
    check_outputs: CheckOutputsOption = "once"
    schedules: SchedulesOption = records.AUTO
    place: Annotated[Place | None, Within(Place)] = None
    db: Annotated[
        str | None,
        Option(
            "Dataset in which co-run measurements are stored; with --costs predicted, costs are predicted from its "
            "measurements.",
            OUTPUT,
        ),
    ] = None

    @classmethod
    def of_options(
        cls, *, targets: tuple[str, ...] = ("llvm",), place: Place | None = None, **fields: Any
    ) -> CorunRequest:
        """Create a request; the place gets the device key of the first board among the targets."""
        if place is not None:
            place = place.with_key(next((kind.name for kind in map(kind_of, targets) if kind.is_board), ""))
        return cls(targets=targets, place=place, **fields)

    @property
    def lanes(self) -> PlanLanes:
        """Return the kind of lanes on which plans run; with several targets, it is that of this machine's processor.

        Raises:
            UsageError: plans cannot run on the only target.
        """
        return kind_of(self.targets[0] if len(self.targets) == 1 else "llvm").plan_lanes()

    @property
    def cores(self) -> int:
        """Return the number of cores (streams of a GPU) that a plan may use."""
        given = {"--threads": self.threads, "--streams": self.streams}[self.lanes.option]
        return self.lanes.usual_count if given is None else given

    def on(self, target: str) -> tuple[BuildRequest, ...]:
        """Return the build requests of the models for one of the targets."""
        kind = kind_of(target)
        place = self.place if kind.is_board else None
        threads = kind.default_thread_counts(place)
        return tuple(
            BuildRequest(
                model=model,
                target=target,
                compiler=self.compiler,
                threads=threads,
                schedules=self.schedules,
                place=place,
                check_outputs=self.check_outputs,
            )
            for model in self.models
        )

    def check(self) -> None:
        """Check that the request can be carried out on this machine.

        Raises:
            UsageError: an option is out of range, or excludes another option; the message contains the allowed values.
            OpProfilerError: a model does not exist, or a target cannot be used on this machine.
        """
        if not self.models:
            raise UsageError("there is no model to run; give one or several")
        self._check_anywhere()
        for model in self.models:
            FRONTENDS.get(model.source).check(model)
        if len(self.targets) > 1:
            self._check_several_targets()
        else:
            self._check_one_target()
        for target in self.targets:
            for request in self.on(target):
                request.check()

    def check_for_cluster(self) -> None:
        """Check the options that do not depend on the machine, before the request is sent to a cluster.

        Files and packages that are missing on this machine are no error, because a machine of the cluster may have
        them. The machine that carries out the request runs `check`.

        Raises:
            UsageError: as for `check`.
        """
        self._check_anywhere()
        for model in self.models:
            with contextlib.suppress(MissingPackageError, ModelError):
                FRONTENDS.get(model.source).check(model)

    def _check_anywhere(self) -> None:
        """Check the options that do not depend on the machine; raises UsageError."""
        compiler = COMPILERS.get(self.compiler)
        compiler.require("weights", "corun")
        for kind in map(kind_of, self.targets):
            if kind.on_gpu:
                compiler.require("bind", f"corun --target {kind.name}")
        if self.merge:
            compiler.require("merge_parallel", "--merge")
        self._check_lanes()
        self._check_choices()
        if self.rounds < 1:
            raise UsageError(f"--rounds {self.rounds} is out of range; give 1 or more")

    def check_plan_options(self, files: Mapping[str, Path | None]) -> None:
        """Reject options that apply only to plans if the request has several targets, for which no plan is made.

        Args:
            files: paths of files about the plan that the caller will write, by option; None for an option not given.

        Raises:
            UsageError: options for plans are given with several targets; the message names them.
        """
        given = {
            "--plan": self.plan is not None,
            "--merge": self.merge,
            "--costs": self.costs != "measured",
            "--db": self.db is not None,
            **{option: path is not None for option, path in files.items()},
        }
        names = [name for name, there in given.items() if there]
        if names and len(self.targets) > 1:
            raise UsageError(f"several targets go with --policy nash or auto alone; leave out {', '.join(names)}")

    def _check_one_target(self) -> None:
        if self.place is not None:
            raise UsageError(NO_PLANS_FOR_BOARDS)
        if self.lanes.only_measured:
            kind = kind_of(self.targets[0]).name
            if self.policy == COLLABORATE:
                raise UsageError(f"--policy collaborate tunes for processors; for {kind} take one of the others")
            if self.costs != "measured" or self.db is not None:
                raise UsageError(
                    f"for {kind}, costs are measured and co-runs are not stored: leave out --costs and --db"
                )

    def _check_choices(self) -> None:
        check_known("policy", self.policy, CHOICES)
        check_known("costs", self.costs, COSTS)
        if self.plan is not None and self.plan.is_dir():
            raise UsageError(f"--plan {self.plan} is a folder; give the file of a plan")
        decided = {"--policy": self.policy != AUTO, "--costs": self.costs != "measured", "--merge": self.merge}
        if self.plan is not None and any(decided.values()):
            names = ", ".join(name for name, there in decided.items() if there)
            raise UsageError(f"--plan runs a plan that was made before, which decides that; leave out {names}")
        if self.policy == COLLABORATE and self.costs != "measured":
            raise UsageError("the policy collaborate measures what it tunes: leave --costs at measured")

    def _check_lanes(self) -> None:
        if self.threads is not None and self.lanes.option != "--threads":
            kind = kind_of(self.targets[0]).name
            raise UsageError(f"--threads has no meaning for {kind}; give {self.lanes.option}")
        if self.streams is not None and self.lanes.option != "--streams":
            raise UsageError("--streams is for --target cuda alone; give --threads")

    def _check_several_targets(self) -> None:
        self.check_plan_options({})
        if len(self.models) < 2:
            raise UsageError("several targets are for several models, each of which chooses one: name another model")
        if self.policy not in _GAMES:
            raise UsageError(f"--policy {self.policy} plans for one target; with several give {' or '.join(_GAMES)}")
        kinds = [kind_of(target) for target in self.targets]
        boards = sum(kind.is_board for kind in kinds)
        devices = [kind for kind in kinds if kind.driving_cores is not None and not kind.is_board]
        if boards > 1 or len(set(devices)) < len(devices) or len(set(self.targets)) < len(self.targets):
            raise UsageError(
                f"--target {', '.join(self.targets)}: several targets are cuda once, one board, and llvm with "
                "different options"
            )
        if self.place is not None and not boards:
            there = " or ".join(name for name, kind in TARGETS.available() if kind.is_board)
            raise UsageError(f"--host and --port lead to a board: add {there} to the targets")
        check_thread_counts((self.cores,))
