"""The section of correlations and turnaround points on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.report.page.several_models import Analysis, Relation, TurnsPart

if TYPE_CHECKING:
    from op_profiler.analysis.correlations import Correlation
    from op_profiler.analysis.turnaround import Turnaround


def analysis_part(correlations: Sequence[Correlation], turnarounds: Sequence[Turnaround], drawn: str) -> Analysis:
    """Return the results of ``op-profiler analyze`` as the data of a page section.

    Args:
        drawn: `FactorTable.drawn`.
    """
    counts = Counter((t.factor, t.anchor, t.value, t.reason) for t in turnarounds)
    return Analysis(
        relations=[
            Relation(
                anchor=c.anchor,
                factor=c.factor,
                compared=c.compared,
                samples=c.samples,
                operators=c.operators,
                spearman=c.spearman,
                p=c.spearman_p if c.spearman is not None else c.eta_p,
                information=c.mutual_information,
                eta=c.eta,
                not_enough=c.not_enough,
            )
            for c in correlations
        ],
        turns=[
            TurnsPart(factor=factor, anchor=anchor, value=value, reason=reason, operators=count)
            for (factor, anchor, value, reason), count in counts.most_common()
        ],
        drawn=drawn,
    )
