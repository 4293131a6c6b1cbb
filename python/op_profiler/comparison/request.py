"""`CompareRequest`: the options of ``op-profiler compare``, checked without heavy imports."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from op_profiler.dataset import DEFAULT_DB
from op_profiler.errors import UsageError
from op_profiler.options import MEASURING, MODEL, DbOption, Option

SecondsOption = Annotated[
    float, Option("With --rerun or --against: to measure a model (at a thread count), at most.", MEASURING)
]


def check_seconds(seconds: float) -> None:
    """Refuse what is out of range; raises UsageError."""
    if not 1.0 <= seconds <= 3600.0:
        raise UsageError(f"--seconds {seconds} is out of range; give 1 to 3600")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """Two runs, each the file or address of a dataset, or what names a run in `db`."""

    before: Annotated[
        str,
        Option(
            "A dataset (its file or address), or a run in --db: its label, its model's key, or its compiler; with "
            "--against a model: a name, source:name, or the path of a model file.",
            argument=True,
        ),
    ]
    after: Annotated[str | None, Option("The run that is compared with it; none with --against.", argument=True)] = None
    model: Annotated[str | None, Option("Compare only this model: a name, source:name or key.", MODEL)] = None
    rerun: Annotated[
        bool,
        Option(
            "Measure both again, in turns, on this machine: the only fair comparison where others share it.", MEASURING
        ),
    ] = False
    seconds: SecondsOption = 60.0
    db: DbOption = DEFAULT_DB

    def check(self) -> None:
        """Refuse what is missing or out of range; raises UsageError."""
        if self.after is None:
            raise UsageError(f"{self.before} is compared with nothing: give a second run, or --against")
        check_seconds(self.seconds)
