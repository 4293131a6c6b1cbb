"""`WorkerTask`: the message that a supervisor sends to a worker process."""

from __future__ import annotations

import dataclasses
from typing import Literal

from op_profiler.collection.request import CollectRequest

Work = Literal["measure", "describe", "tune", "compare", "vendor"]


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """A task for a worker, sent as JSON.

    Attributes:
        request: request with all thread counts; once the worker knows the machine, it removes those that need no
            measurement.
        work: ``measure`` the model; only ``describe`` the machine; ``tune`` its operators; ``compare`` it under default
            and under recorded schedules; ``vendor``: time the operators in the vendor's kernels too. All but
            ``measure`` return a result.
        operators: workload keys of the operators to work on; for all work but ``measure``.
        one_by_one: measure each operator as a separate model, since the model cannot run as a whole.
        excluded: workload keys of operators to skip, with the crash that each caused.
        reason: why the operators are measured one by one.
        run_id: identifier of the run; results that are stored under it are not measured again.
    """

    request: CollectRequest
    work: Work = "measure"
    operators: frozenset[str] = frozenset()
    one_by_one: bool = False
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    reason: str = ""
    run_id: str = ""
