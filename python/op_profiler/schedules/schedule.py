"""`Schedule`: a template and the values of its knobs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import Any, Literal

from op_profiler.schedules.factors import Factors

Origin = Literal["default", "rule", "tuned", "trial", "vendor"]
OWN_TEMPLATE = ".op_profiler"
"""Suffix of the names of this project's templates."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The schedule of an operator: a template and the values of its knobs, which arrange the loops.

    Attributes:
        template: name of the AutoTVM template or TOPI schedule, e.g. ``conv2d_NCHWc.x86``; names of this project's
            templates end with `OWN_TEMPLATE`.
        knobs: knob name to value, as plain JSON values; empty if the schedule has none.
        origin: source of the values: the compiler (``default``), this project's rule (``rule``), a search
            (``tuned``; ``trial`` for its candidates), or a library (``vendor``).
        factors: effect of the knobs on the loops; follows from template and knobs, so it is not part of the identity.
    """

    template: str
    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    origin: Origin = "default"
    factors: Factors = dataclasses.field(default_factory=Factors, compare=False)

    @property
    def key(self) -> str:
        """Digest (16 hex digits) of template, knobs and origin."""
        text = json.dumps([self.template, self.knobs, self.origin], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


UNKNOWN = Schedule("unknown")
"""Schedule of an operator that was never compiled completely."""
