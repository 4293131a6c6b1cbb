"""What a supervisor asks of a worker process, and how it gets there."""

from __future__ import annotations

import dataclasses
import json
from typing import Literal

from op_profiler.collection.request import CollectRequest, TuneRequest

Work = Literal["measure", "tune", "compare", "vendor"]


@dataclasses.dataclass(frozen=True)
class WorkerTask:
    """What the supervisor asks of a worker.

    Attributes:
        request: with all thread counts; the worker knows which are still to be measured once it knows the machine.
        one_by_one: measure each operator as a model of its own, since the model as a whole cannot run.
        excluded: workload keys that are not to be touched, and how they took a worker down.
        reason: why the operators are measured one by one.
        since: when the command began, as the dataset writes times; what was stored later is not measured again.
        work: ``measure`` the model; ``tune`` its operators; ``compare`` it under default and under recorded schedules;
            time the operators in the ``vendor``'s kernels as well. All but the first answer with a result.
        tune: what to tune, and how; for all work but the first.
    """

    request: CollectRequest
    work: Work = "measure"
    tune: TuneRequest | None = None
    one_by_one: bool = False
    excluded: dict[str, str] = dataclasses.field(default_factory=dict)
    reason: str = ""
    since: str = ""

    def to_json(self) -> str:
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        tune = dataclasses.asdict(self.tune) if self.tune is not None else None
        return json.dumps(fields | {"request": self.request.to_json(), "tune": tune})

    @classmethod
    def from_json(cls, text: str) -> WorkerTask:
        fields = json.loads(text)
        fields["request"] = CollectRequest.from_json(fields["request"])
        if fields["tune"] is not None:
            fields["tune"] = TuneRequest(**(fields["tune"] | {"operators": tuple(fields["tune"]["operators"])}))
        return cls(**fields)
