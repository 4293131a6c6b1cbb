"""`WorkerTask`: the message from a supervisor to a worker process."""

from __future__ import annotations

import dataclasses
from typing import Literal

from op_profiler.collection.request import CollectRequest

Work = Literal["measure", "describe", "tune", "compare", "vendor"]


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """A task for a worker, sent as JSON.

    Attributes:
        request: with all thread counts; the worker knows which are still to be measured once it knows the machine.
        work: ``measure`` the model; only ``describe`` the machine; ``tune`` its operators; ``compare`` it under default
            and under recorded schedules; time the operators in the ``vendor``'s kernels as well. All but the first
            answer with a result.
        operators: workload keys of those that the work is about; for all work but the first.
        one_by_one: measure each operator as a model of its own, since the model as a whole cannot run.
        excluded: workload keys that are not to be touched, and how they took a worker down.
        reason: why the operators are measured one by one.
        run_id: identifier of the run; what is stored under it is not measured again.
    """

    request: CollectRequest
    work: Work = "measure"
    operators: frozenset[str] = frozenset()
    one_by_one: bool = False
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    reason: str = ""
    run_id: str = ""
