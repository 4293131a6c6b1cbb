"""What a schedule is: a template and the values of its knobs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Literal

from op_profiler.schedules.factors import Factors

Origin = Literal["default", "rule", "tuned", "trial", "vendor"]
OWN_TEMPLATE = ".op_profiler"
"""Ends the name of each of this project's templates."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """How an operator's loops are arranged.

    Attributes:
        template: name of the AutoTVM template or TOPI schedule, e.g. ``conv2d_NCHWc.x86``; those of this project end
            with `OWN_TEMPLATE`.
        knobs: knob name to value, as plain JSON values; empty where the schedule has none.
        origin: who chose the values: the compiler (``default``), this project's rule for products of matrices
            (``rule``), a search (``tuned`` and its ``trial``), or a library (``vendor``).
        factors: what the knobs do to the loops; follows from template and knobs, so it is no part of the identity.
    """

    template: str
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    origin: Origin = "default"
    factors: Factors = dataclasses.field(default_factory=Factors, compare=False)

    @property
    def key(self) -> str:
        """16 hex digits over template, knobs and origin."""
        text = json.dumps([self.template, self.knobs, self.origin], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


UNKNOWN = Schedule("unknown")
"""Of an operator that was never compiled to the end."""
