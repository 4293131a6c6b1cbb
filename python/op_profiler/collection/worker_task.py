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
        request: request with all thread counts; after opening the machine, the worker removes the thread counts that
            need no measurement.
        work: ``measure``: measure the model; ``describe``: describe the machine; ``tune``: search schedules for the
            operators; ``compare``: compare the model with default and with recorded schedules; ``vendor``: time the
            vendor's kernels for the operators. All work except ``measure`` returns a result.
        operators: workload keys of the operators to study; empty for ``measure`` and ``describe``.
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
