"""`run_worker`: starts a worker process for a task, and reads its events until it ends."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from pathlib import Path
from typing import Any

from op_profiler.child_processes import Child
from op_profiler.collection.progress import Progress
from op_profiler.collection.worker_task import WorkerTask
from op_profiler.errors import EXIT_ENVIRONMENT

# Which part of a model's time each stage takes, roughly (resnet-18); it feeds the estimate of the progress bar.
_STAGES = {
    "loading TVM": (0.0, 0.03),
    "lowering": (0.03, 0.05),
    "fusing": (0.05, 0.5),
    "compiling": (0.05, 0.4),
    "reading loops": (0.4, 0.43),
    "opening the machine": (0.43, 0.5),
    "loading": (0.5, 0.51),
    "checking": (0.51, 0.52),
    "calibrating": (0.05, 0.1),
    "looking at values": (0.52, 0.52),
    "comparing with float32": (0.52, 0.52),
    "measuring": (0.52, 1.0),
    "measuring operators in isolation": (0.5, 1.0),
    "counting": (1.0, 1.0),
    "tuning": (0.05, 1.0),
    "timing the vendor's kernels": (0.2, 1.0),
}
_KEPT = {"model_key", "result", "one_by_one", "error", "code", "done"}
"""Fields of an event that are copied to the fields of `WorkerOutcome` with the same names."""
_WORKER = "op_profiler.collection.worker"


@dataclasses.dataclass
class WorkerOutcome:
    """Outcome of a worker process: its announcements, its result, and how it ended.

    Attributes:
        stage: last stage that the process announced.
        seconds: duration of each stage so far.
        model_key: key of the model in the dataset; empty until it is known.
        operator: workload key of the operator in the last announcement; None if it named no operator.
        notes: notes for the user on the model.
        one_by_one: why the model cannot be measured as a whole; None if it can.
        excluded: descriptions of crashes, by workload key of the operator that crashed its machine.
        error: error that ended the task; None without an error.
        code: exit code for `error`.
        crash: signal or exit code of an unexpected end; None if the process ended as expected.
        done: whether the task was finished.
        result: result of a study or a description; None for work without a result.
    """

    stage: str = "starting"
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    model_key: str = ""
    operator: str | None = None
    notes: tuple[str, ...] = ()
    one_by_one: str | None = None
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    error: str | None = None
    code: int = 0
    crash: str | None = None
    done: bool = False
    result: list[dict[str, Any]] | None = None
    _since: float = dataclasses.field(default_factory=time.perf_counter)

    def begin(self, stage: str) -> None:
        """Begin a stage; the time since the last call belongs to the previous stage."""
        now = time.perf_counter()
        self.seconds[self.stage] = self.seconds.get(self.stage, 0.0) + now - self._since
        self.stage, self._since = stage, now


def run_worker(task: WorkerTask, progress: Progress, index: int, span: tuple[float, float]) -> WorkerOutcome:
    """Start a worker process, report its progress until it ends, and return its outcome.

    Args:
        index: number of models that are already finished.
        span: begin and end of this process within the progress of the model, from 0 to 1.
    """
    outcome = WorkerOutcome()
    with tempfile.NamedTemporaryFile("w+", prefix="op_profiler-worker-", suffix=".log", delete=False) as log:
        try:
            with Child(_WORKER, task, log) as child:
                for event in child.events():
                    _take(event, outcome, task, progress, index, span)
                end = child.end()
        except BaseException:
            Path(log.name).unlink(missing_ok=True)
            raise
    outcome.begin(outcome.stage)
    if not outcome.done and outcome.error is None and outcome.one_by_one is None:
        outcome.crash = end
    if outcome.crash or outcome.code == EXIT_ENVIRONMENT:
        progress.problem(f"the worker's log: {log.name}")
    else:
        Path(log.name).unlink(missing_ok=True)
    return outcome


def _take(
    event: dict[str, Any],
    outcome: WorkerOutcome,
    task: WorkerTask,
    progress: Progress,
    index: int,
    span: tuple[float, float],
) -> None:
    """Store one event of a worker in its outcome, and display it."""
    if "stage" in event:
        outcome.begin(event["stage"])
        outcome.operator = event.get("operator")
        begin, end = _STAGES.get(outcome.stage, (0.0, 1.0))
        share = begin + (end - begin) * float(event.get("share", 0.0))
        what = f"{outcome.stage} {event['detail']}" if "detail" in event else outcome.stage
        progress.step(f"{task.request.build.model.title}: {what}", index + span[0] + (span[1] - span[0]) * share)
    for name in _KEPT & event.keys():
        setattr(outcome, name, event[name])
    outcome.notes = tuple(event.get("notes", outcome.notes))
    outcome.excluded |= event.get("excluded", {})
    if "note" in event:
        progress.note(event["note"])
    if "problem" in event:
        progress.problem(event["problem"])
