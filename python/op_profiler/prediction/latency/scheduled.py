"""`OperatorByRule`: an operator whose schedule the project's rule chooses, for predictors.

With the rule's schedule (``--schedules rule``), an operator has other loops and another time than with the compiler's
own schedule. Tuned schedules are found by a search on one machine and are not predicted.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Mapping
from typing import Any

from op_profiler.operators.operator import Operator

PREDICTED = ("default", "rule")
"""Origins of the schedules whose times predictors learn from."""
_KERNELS = "rule 3: "
"""Prefix of a workload key in `OperatorByRule.key`. Its number changes if the rule generates other kernels for the same
operators; another choice of algorithm results in other operators, so it leaves the number as it is."""


@dataclasses.dataclass(frozen=True)
class OperatorByRule(Operator):
    """An operator whose schedule the project's rule chooses; with the default schedule, the operator's key differs."""

    @functools.cached_property
    def key(self) -> str:
        """Digest (16 hex digits) of the operator's workload key and the version of the rule's kernels."""
        return hashlib.sha256(f"{_KERNELS}{self.workload}".encode()).hexdigest()[:16]

    __hash__ = Operator.__hash__


def by_rule(operator: Operator) -> OperatorByRule:
    """Return the same operator with the schedule of the rule."""
    return OperatorByRule(**{field.name: getattr(operator, field.name) for field in dataclasses.fields(Operator)})


def key_of_row(row: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the key of the operator in a row of the flat table, and whether the rule chose its schedule."""
    return row["operator_key"], row["origin"] == "rule"


def operator_of(row: Mapping[str, Any]) -> Operator:
    """Return the operator of a row of the flat table, with the schedule that it was measured with."""
    from op_profiler.dataset.formats.flat_table import operator_of_row

    operator = operator_of_row(dict(row))
    return by_rule(operator) if row["origin"] == "rule" else operator
