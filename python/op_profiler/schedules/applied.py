"""Builds with schedule records: what the compiler asks for while it compiles, and what it is given."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from op_profiler.compilers.relay.tvm_build import load_tvm
from op_profiler.schedules.records import Conditions, Record, choose, computation_of, read_records


@dataclasses.dataclass
class Applied:
    """The records that a build may use.

    Attributes:
        wanted: the conditions that it is for.
        chosen: by computation.
        skipped: lines of the file that are no records.
        asked: computations that the compiler has looked for so far, whether there was a record or not.
    """

    wanted: Conditions
    chosen: Mapping[str, Record] = dataclasses.field(default_factory=dict)
    skipped: int = 0
    asked: set[str] = dataclasses.field(default_factory=set)

    def notes(self, path: Path | None) -> tuple[str, ...]:
        """What a user should know of the records that the compiler took, and of their conditions."""
        used = [record for computation, record in self.chosen.items() if computation in self.asked]
        notes = []
        if used:
            notes.append(f"compiled with schedule records: {len(used)} of {path}")
        for other in sorted({r.conditions for r in used if r.conditions not in (None, self.wanted)}, key=str):
            count = sum(record.conditions == other for record in used)
            notes.append(f"{count} of them are of other conditions ({other}), the nearest to these ({self.wanted})")
        if unknown := sum(record.conditions is None for record in used):
            notes.append(f"{unknown} of them are of unknown conditions: nothing better is there")
        if self.skipped:
            notes.append(f"{self.skipped} lines of {path} are no schedule records")
        return tuple(notes)


@contextlib.contextmanager
def applied(path: Path | None, wanted: Conditions) -> Iterator[Applied]:
    """Compile with the records of a file inside this block; without any where there is no file."""
    records, skipped = read_records(path) if path is not None and path.is_file() else ([], 0)
    chosen = choose(records, wanted)
    if chosen:
        from op_profiler.schedules.templates import register_templates

        register_templates()
    autotvm = load_tvm().autotvm
    in_use = Applied(wanted, chosen, skipped)

    class Noting(autotvm.task.ApplyHistoryBest):  # type: ignore[name-defined]
        def _query_inside(self, target: Any, workload: Any) -> Any:
            in_use.asked.add(computation_of(workload[0], workload[1:]))
            return super()._query_inside(target, workload)

    version = str(load_tvm().__version__)
    with Noting([autotvm.record.decode(record.to_json(version)) for record in chosen.values()]):
        yield in_use
