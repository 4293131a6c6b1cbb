"""`ScheduleRequest`: requests the best known and the best predicted schedules of operators, without a search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from op_profiler.building.request import BuildRequest
from op_profiler.compilers import COMPILERS
from op_profiler.dataset import DEFAULT_DB, dataset_or_default
from op_profiler.errors import UsageError
from op_profiler.option_values import parse_trials_from
from op_profiler.options import OUTPUT, Option
from op_profiler.shipped import shipped_trials
from op_profiler.targets.target import use_build_for

if TYPE_CHECKING:
    from op_profiler.prediction.schedules.suggestions import Answer, ScheduleQuery


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """Request for the schedules of a model's heavy operators, or of one operator.

    Attributes:
        build: build of the model; for one operator, the name of the model is the operator's key (16 hex digits).
    """

    build: BuildRequest = BuildRequest()
    device: Annotated[
        str | None, Option("Device whose trials are used: its key, or a part of its processor's name.")
    ] = None
    k: Annotated[int, Option("Number of schedules to propose for an operator that was never tuned.")] = 8
    verify: Annotated[int, Option("Measure this many of the proposed schedules.")] = 0
    shipped: Annotated[
        bool,
        Option(
            "Trials to use in addition to those in --db: shipped (included with the package) or none.",
            name="trials_from",
            parse=parse_trials_from,
            shown="shipped",
        ),
    ] = True
    db: Annotated[
        str | None, Option(f"Dataset with trials (SQLAlchemy URL). Default: {DEFAULT_DB} if it exists.", OUTPUT)
    ] = None

    def check(self) -> None:
        """Check the options, and select the compiler for this process.

        Raises:
            UsageError: an option is out of range, or excludes another option.
        """
        if self.k < 1 or self.verify < 0:
            raise UsageError("--k has to be 1 or more, --verify 0 or more")
        COMPILERS.get(self.build.compiler).require("described_anchor", "schedule")
        if self.verify and self.build.cache == "model":
            raise UsageError("--verify measures operators in isolation; give --cache hot or --cache cold")
        self.build.check(dry_run=not self.verify)
        use_build_for(self.build.target, compiler=self.build.compiler)

    def known(self, note: Callable[[str], None]) -> tuple[ScheduleQuery, str]:
        """Return a query over the known schedules, and the name of the device on which these were measured.

        Args:
            note: called with a message if trials cannot be read.
        """
        from op_profiler.collection.studies.suggestions import known_schedules

        trials = shipped_trials() if self.shipped else None
        return known_schedules(self.build, self.device, dataset_or_default(self.db), trials, note)

    def answers(self, query: ScheduleQuery, announce: Callable[[str], None]) -> list[Answer]:
        """Return the schedules of the operator, or of each heavy operator of the model.

        Args:
            query: query that `known` returned.
            announce: called before each slow step.

        Raises:
            OpProfilerError: the operator or model does not exist, or cannot be measured.
        """
        from op_profiler.collection.studies.suggestions import anchors_of, verified

        announce(f"fusing {self.build.model.name}")
        anchors = anchors_of(self.build, dataset_or_default(self.db) or DEFAULT_DB)
        if self.verify:
            return verified(self.build, query, anchors, self.k, self.verify, announce)
        announce("ranking schedules")
        return [query.answer(anchor, self.k) for anchor in anchors]
