"""Applies schedule records while Relay compiles, and records which computations are queried."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay.templates import register_templates
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.records import computation_of

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.usable_records import UsableRecords


@contextlib.contextmanager
def applied(records: UsableRecords) -> Iterator[set[str]]:
    """Compile with these records inside this block.

    Yields:
        The computations that the compiler has looked for so far, whether there was a record or not.
    """
    if records.chosen:
        register_templates()
    autotvm = load_tvm().autotvm
    asked: set[str] = set()

    class Noting(autotvm.task.ApplyHistoryBest):  # type: ignore[name-defined]
        def _query_inside(self, target: Target, workload: Any) -> Any:
            asked.add(computation_of(workload[0], workload[1:]))
            return super()._query_inside(target, workload)

    version = str(load_tvm().__version__)
    with Noting([autotvm.record.decode(record.to_json(version)) for record in records.chosen.values()]):
        yield asked
