"""Looks up schedule records while kernels are scheduled, and applies them."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.rules import SUFFIX, template_of
from op_profiler.compilers.relax.rules.blocks import TVM_ERRORS
from op_profiler.compilers.relax.tuning.automatic import PREFIX, factors_of_sketch
from op_profiler.compilers.relax.tuning.finished_loops import with_loops
from op_profiler.compilers.relax.tuning.workload import computation, workload_of
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.vectors import Vectors
from op_profiler.schedules.factors import Factors
from op_profiler.schedules.records import Record
from op_profiler.schedules.schedule import Schedule
from op_profiler.schedules.usable_records import UsableRecords


class AppliedRecords:
    """Schedule records, applied to one function after the other.

    Attributes:
        asked: computations whose record was looked up so far, whether or not there is one.
        refused: the computations in `asked` whose record no longer fits.
    """

    def __init__(self, records: UsableRecords, vectors: Vectors) -> None:
        self._records = records
        self._vectors = vectors
        self.asked: set[str] = set()
        self.refused: set[str] = set()

    def schedule_function(self, function: Any) -> tuple[Any, Schedule] | None:
        """Schedule a function by its record; return the function and its schedule. Return None if there is no record,
        or if the record no longer fits.

        Args:
            function: ``tvm.tirx.PrimFunc``.
        """
        wanted = computation(function)
        self.asked.add(wanted)
        record = self._records.chosen.get(wanted)
        if record is None:
            return None
        s_tir = load_tvm().s_tir
        schedule = s_tir.Schedule(workload_of(function))
        try:
            s_tir.schedule.Trace.apply_json_to_schedule(record.config["trace"], schedule)
        except (*TVM_ERRORS, LookupError):
            self.refused.add(wanted)
            return None
        factors = self._factors(function, record, schedule)
        return schedule.mod["main"], Schedule(record.template, record.knobs, "tuned", factors)

    def _factors(self, function: Any, record: Record, schedule: Any) -> Factors:
        """Return the schedule factors of a record of op_profiler's templates or of a sketch; empty for other traces,
        and for knobs of another version."""
        if record.template.startswith(PREFIX):
            return with_loops(factors_of_sketch(record.knobs), schedule)
        if not record.template.endswith(SUFFIX) or not record.knobs:
            return Factors()
        found = template_of(function, self._vectors, record.template.removesuffix(SUFFIX))
        try:
            return found.factors(record.knobs) if found is not None else Factors()
        except (LookupError, TypeError):
            return Factors()
