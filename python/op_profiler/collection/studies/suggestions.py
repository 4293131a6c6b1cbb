"""Finds known schedules of operators, and measures proposed schedules, for `suggest.ScheduleRequest`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.addresses import without_password
from op_profiler.building.request import BuildRequest
from op_profiler.collection.studies.tune import tunables_of
from op_profiler.dataset import Dataset
from op_profiler.errors import UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.lowered_cache import load_cached
from op_profiler.measure.turns import measuring
from op_profiler.option_values import several
from op_profiler.prediction.schedules.suggestions import Answer, ScheduleQuery, anchor_of_key, load_trials
from op_profiler.targets.llvm.identity import host_fingerprint, processor_name
from op_profiler.targets.target import locks_of, resolve_target
from op_profiler.tuning.trials.runner import TrialRunner

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator


def known_schedules(
    build: BuildRequest, device: str | None, db: str | None, trials: Path | None, note: Callable[[str], None]
) -> tuple[ScheduleQuery, str]:
    """Return a query over the known schedules, and the name of the device on which these were measured.

    Args:
        device: key of the device whose trials are used, or a part of its processor's name; None: this machine, or, if
            the target does not run on the host, the only device with trials.
        db: dataset with trials; None for no dataset.
        trials: file with more trials; None for no file.
        note: called with a message if trials cannot be read.

    Raises:
        UsageError: no device or several devices fit.
    """
    rows = load_trials(db, trials, note)
    rows = [row for row in rows if row["device_kind"] == build.kind.name]
    devices, named = _devices(rows, build, device)
    file = build.record_file() if device is None else None  # records are of this machine's processor
    return ScheduleQuery(rows, resolve_target(build.target), file, build.conditions, devices), named


def verified(
    build: BuildRequest,
    query: ScheduleQuery,
    anchors: list[Operator],
    k: int,
    verify: int,
    announce: Callable[[str], None],
) -> list[Answer]:
    """Propose schedules for each anchor, and measure the most promising of them.

    Args:
        anchors: anchors whose schedules are requested.
        k: number of schedules to propose for each anchor.
        verify: number of proposed schedules to measure for each anchor.
        announce: called before each anchor, and while another process measures.
    """
    answers = []
    target = str(resolve_target(build.target))
    names = locks_of([build.target])
    runner = TrialRunner(target, build.threads[0], cache=build.cache, name=build.target)
    with measuring(names, announce), runner:
        for number, anchor in enumerate(anchors, 1):
            announce(f"measuring {several(verify, 'schedule')} of operator {number} of {len(anchors)}")
            answers.append(query.answer(anchor, k, runner, verify))
    return answers


def _devices(rows: list[dict[str, Any]], request: BuildRequest, device: str | None) -> tuple[dict[str, str], str]:
    """Return the devices whose trials are used, by key, and their name.

    For this machine, these are all devices with the same host fingerprint.
    """

    if device is None and request.on_host:
        alike = host_fingerprint()
        return {r["device_key"]: "" for r in rows if r["host_fingerprint"] == alike}, processor_name()
    wanted = (device or "").lower()
    found = {
        r["device_key"]: r["processor"] for r in rows if r["device_key"] == wanted or wanted in r["processor"].lower()
    }
    if len(found) > 1 or (device is not None and not found):
        fitting = [row for row in rows if not found or row["device_key"] in found]
        there = ", ".join(sorted({f"{r['device_key']} ({r['processor']})" for r in fitting}))
        raise UsageError(f"--device {device or 'is needed'}: {len(found)} devices fit; there are trials of {there}")
    return found, next(iter(found.values()), request.target)


def anchors_of(request: BuildRequest, db: str) -> list[Operator]:
    """Return the tunable anchors of the model; if its name is the key of an operator, this operator's anchor.

    Args:
        db: address of the dataset that contains the operator.
    """

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
