"""Applies schedule records and the rule while Relay compiles, and notes which computations it looks up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay import remainders, vector_math
from op_profiler.compilers.relay.processor_defaults import config_of, may_choose, whole_vectors
from op_profiler.compilers.relay.rewrites import rewriting
from op_profiler.compilers.relay.templates import register_templates
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.schedules.records import computation_of
from op_profiler.schedules.usable_records import ruled

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.schedules.usable_records import UsableRecords


@contextlib.contextmanager
def applied(records: UsableRecords) -> Iterator[set[str]]:
    """Compile with these records inside this block.

    Yields:
        The computations whose record the compiler has looked up so far, whether or not there is a record. If the rule
        may choose the schedule of a computation, the set also contains ``ruled(computation)``.
    """
    if records.chosen or records.by_rule:
        register_templates()
    autotvm = load_tvm().autotvm
    asked: set[str] = set()

    class Noting(autotvm.task.ApplyHistoryBest):  # type: ignore[name-defined]
        def _query_inside(self, target: Target, workload: Any) -> Any:
            computation = computation_of(workload[0], workload[1:])
            asked.add(computation)
            if may_choose(target, workload):
                asked.add(ruled(computation))
            found = super()._query_inside(target, workload)
            return config_of(target, workload) if found is None and records.by_rule else found

    version = str(load_tvm().__version__)
    decoded = [autotvm.record.decode(record.to_json(version)) for record in records.chosen.values()]
    with contextlib.ExitStack() as stack:
        if records.by_rule:
            stack.enter_context(vector_math.vectorized())
            stack.enter_context(remainders.vectorized())
            stack.enter_context(whole_vectors())
        stack.enter_context(Noting(decoded))
        stack.enter_context(rewriting(asked, by_rule=records.by_rule))
        yield asked
