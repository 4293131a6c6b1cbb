"""`ScheduleRequest`: the best known and the best predicted schedules of operators, without a search."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from op_profiler.addresses import without_password
from op_profiler.building.request import BuildRequest
from op_profiler.compilers import COMPILERS
from op_profiler.dataset import DEFAULT_DB, dataset_or_default
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.option_values import parse_trials_from, several
from op_profiler.options import OUTPUT, Option
from op_profiler.shipped import shipped_trials
from op_profiler.targets.target import locks_of, resolve_target, use_build_for

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator
    from op_profiler.prediction.schedules.suggestions import Answer, ScheduleQuery


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """The model or operator whose schedules are requested.

    Attributes:
        build: build of a model, or of an operator, whose key of 16 hex digits is given as the name; its largest thread
            count is used.
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
        """Reject impossible requests, and select the compiler.

        Raises:
            UsageError: an option is out of range, or excludes another.
        """
        if self.k < 1 or self.verify < 0:
            raise UsageError("--k has to be 1 or more, --verify 0 or more")
        COMPILERS.get(self.build.compiler).require("described_anchor", "schedule")
        if self.verify and self.build.cache == "model":
            raise UsageError("--verify measures operators in isolation; give --cache hot or --cache cold")
        self.build.check(dry_run=not self.verify)
        use_build_for(self.build.target, compiler=self.build.compiler)

    def known(self, note: Callable[[str], None]) -> tuple[ScheduleQuery, str]:
        """Return the query for the known schedules, and the name of its device.

        Args:
            note: called with the trials that cannot be read.
        """
        from op_profiler.prediction.schedules.suggestions import ScheduleQuery, load_trials

        build = self.build
        rows = load_trials(dataset_or_default(self.db), shipped_trials() if self.shipped else None, note)
        rows = [row for row in rows if row["device_kind"] == build.kind.name]
        devices, named = _devices(rows, build, self.device)
        file = build.record_file() if self.device is None else None  # records are of this machine's processor
        return ScheduleQuery(rows, resolve_target(build.target), file, build.conditions, devices), named

    def answers(self, query: ScheduleQuery, announce: Callable[[str], None]) -> list[Answer]:
        """Return schedules of the operator, or of each heavy operator of the model.

        Args:
            announce: called before each slow step.

        Raises:
            OpProfilerError: there is no such operator or model, or it cannot be measured.
        """
        announce(f"fusing {self.build.model.name}")
        anchors = _anchors(self.build, dataset_or_default(self.db) or DEFAULT_DB)
        if self.verify:
            return _verified(self, query, anchors, announce)
        announce("ranking schedules")
        return [query.answer(anchor, self.k) for anchor in anchors]


def _verified(
    request: ScheduleRequest, query: ScheduleQuery, anchors: list[Operator], announce: Callable[[str], None]
) -> list[Answer]:
    """Return the answers after measuring the schedules that look best."""
    from op_profiler.measure.turns import measuring
    from op_profiler.tuning.trials.runner import TrialRunner

    answers, build = [], request.build
    target = str(resolve_target(build.target))
    names = locks_of([build.target])
    runner = TrialRunner(target, build.threads[0], cache=build.cache, name=build.target)
    with measuring(names, announce), runner:
        for number, anchor in enumerate(anchors, 1):
            announce(f"measuring {several(request.verify, 'schedule')} of operator {number} of {len(anchors)}")
            answers.append(query.answer(anchor, request.k, runner, request.verify))
    return answers


def _devices(rows: list[dict[str, Any]], request: BuildRequest, device: str | None) -> tuple[dict[str, str], str]:
    """Return devices of one kind whose trials are used, by key, and their name."""
    from op_profiler.targets.llvm.identity import host_fingerprint, processor_name

    if device is None and request.on_host:
        alike = host_fingerprint()
        return {r["device_key"]: "" for r in rows if r["host_fingerprint"] == alike}, processor_name()
    wanted = (device or "").lower()
    found = {r["device_key"]: r["processor"] for r in rows if wanted in (r["device_key"], "") or _names(wanted, r)}
    if len(found) > 1 or (device is not None and not found):
        fitting = [row for row in rows if not found or row["device_key"] in found]
        there = ", ".join(sorted({f"{r['device_key']} ({r['processor']})" for r in fitting}))
        raise UsageError(f"--device {device or 'is needed'}: {len(found)} devices fit; there are trials of {there}")
    return found, next(iter(found.values()), request.target)


def _names(wanted: str, row: dict[str, Any]) -> bool:
    return wanted in str(row["processor"]).lower()


def _anchors(request: BuildRequest, db: str) -> list[Operator]:
    """Return the anchor of an operator's key, or the tunable anchors of a model."""
    from op_profiler.collection.studies.tune import tunables_of
    from op_profiler.dataset import Dataset
    from op_profiler.frontends.lowered_cache import load_cached
    from op_profiler.prediction.schedules.suggestions import anchor_of_key

    name = request.model.name
    if re.fullmatch(r"[0-9a-f]{16}", name):
        with Dataset.open(db, create=False, read_only=True) as dataset:
            anchor = anchor_of_key(dataset, name)
        if anchor is None:
            place = without_password(db)
            raise UsageError(
                f"{place} has no operator {name}; op-profiler export --output operators.csv lists the keys"
            )
        return [anchor]
    frontend = FRONTENDS.get(request.model.source)
    frontend.check(request.model)
    items, _ = tunables_of(load_cached(frontend, request.model), resolve_target(request.target), None)
    return [item.anchor for item in items]
