"""`CompareRequest`: the options of ``op-profiler compare``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UsageError
from op_profiler.options import MEASURING, MODEL, DbOption, Option

SecondsOption = Annotated[
    float,
    Option(
        "With --rerun: time limit for measuring a model. With --against: time for each thread count of the model.",
        MEASURING,
    ),
]


def check_seconds(seconds: float) -> None:
    """Check that the time limit is in its range; raises UsageError."""
    if not 1.0 <= seconds <= 3600.0:
        raise UsageError(f"--seconds {seconds} is out of range; give 1 to 3600")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """Runs to compare: `before` and `after` are each the file or URL of a dataset, or a label, key or compiler that
    selects runs in `db`."""

    before: Annotated[
        str,
        Option(
            "A dataset (file or address); or runs in --db: a label, the key of a model, or a compiler. With --against: "
            "a model (name, source:name or path of a model file).",
            argument=True,
        ),
    ]
    after: Annotated[
        str | None, Option("What to compare BEFORE with, in the same form. Leave it out with --against.", argument=True)
    ] = None
    model: Annotated[str | None, Option("Compare only this model: a name, source:name or key.", MODEL)] = None
    rerun: Annotated[
        bool,
        Option(
            "Measure both runs again on this machine, alternating between them. On a shared machine, only this "
            "comparison is reliable.",
            MEASURING,
        ),
    ] = False
    seconds: SecondsOption = 60.0
    db: DbOption = DEFAULT_DB

    def check(self) -> None:
        """Check that options are given and in range; raises UsageError."""
        if self.after is None:
            raise UsageError(f"{self.before} is compared with nothing: give a second run, or --against")
        check_seconds(self.seconds)
