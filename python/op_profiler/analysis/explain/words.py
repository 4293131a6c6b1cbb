"""`explained`: the explanation of an operator from its evidence: losses, certainty of the largest loss, and advice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from op_profiler.analysis.explain.advice import advice_for
from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import MOST_ASSEMBLY, LoopCode, Loss, OperatorExplanation
from op_profiler.analysis.explain.losses import losses_of
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.cost import least_flops
from op_profiler.operators.titles import title_of
from op_profiler.option_values import threads_text

_DRAWS = 4000
_WIDTH = 3.92
"""Standard deviations between the ends of a 95 % interval."""
_LITTLE = 0.05
"""Share of an operator's time below which a loss is not worth acting on."""
_NOT_OVERLAPPING = ("schedule", "layout", "fusion")
_CAUSE_TEXTS = {
    "vectorization": "missing vectorization",
    "function calls": "calls of the C library",
    "spills": "spilled registers",
    "register tile": "a register tile that does not suit",
    "stride": "far steps through memory",
    "memory": "waiting for memory",
    "serial": "no work for more threads",
    "imbalance": "threads with parts of different size",
    "thread overhead": "handing work to threads",
    "layout": "a change of layout",
    "fusion": "not being fused",
    "schedule": "its schedule",
}


def explained(evidence: Evidence, whole_model_us: float, model: ModelRequest) -> OperatorExplanation:
    """Return the explanation of an operator from its evidence.

    Args:
        whole_model_us: time of one run of the model, microseconds.
        model: the model, for the commands of the advice.
    """
    operator, n = evidence.operator, evidence.threads
    losses = losses_of(evidence)
    sureness = sureness_of(losses)
    time_us = evidence.us("model")
    advice = advice_for(evidence, losses, model) if _worth_acting_on(losses, time_us) else None
    share = time_us * evidence.calls / whole_model_us
    flops_us = least_flops(operator) / evidence.limits.flops_per_us[n]
    return OperatorExplanation(
        key=operator.key,
        name=operator.name,
        title=title_of(operator.op_names),
        anchor=operator.anchor,
        output=list(operator.outputs[0].shape) if operator.outputs else [],
        calls=evidence.calls,
        threads=n,
        time_us=time_us,
        model_share=share,
        hot_us=evidence.us("hot"),
        cold_us=evidence.us("cold") if ("cold", n) in evidence.samples else None,
        one_thread_us=evidence.us("model", 1),
        compute_share=flops_us / time_us if operator.flops else None,
        traffic_shares={
            level: evidence.moved_bytes / rates[n] / time_us for level, rates in evidence.limits.bytes_per_us.items()
        },
        code=_code(evidence),
        losses=losses,
        sureness=sureness,
        unexplained_us=_unexplained(evidence, losses),
        advice=advice,
        sentence=_sentence(evidence, share, losses, sureness),
    )


def sureness_of(losses: Sequence[Loss]) -> float | None:
    """Return the share of random draws from the losses' intervals in which the first loss is the largest; None without
    losses."""
    if not losses:
        return None
    middle = np.array([loss.lost_us for loss in losses])
    deviation = np.array([(loss.high_us - loss.low_us) / _WIDTH for loss in losses])
    drawn = np.random.default_rng(0).normal(middle, deviation, (_DRAWS, len(losses)))
    return float((drawn.argmax(axis=1) == 0).mean())


def _code(evidence: Evidence) -> LoopCode | None:
    if evidence.code is None:
        return None
    loop = evidence.code.hottest
    return LoopCode(
        depth=loop.depth,
        instructions=len(loop.body),
        vector_share=loop.vector_share,
        fma_share=loop.fma_share,
        lanes=loop.lanes,
        lanes_of_target=evidence.limits.lanes,
        spills=loop.spills,
        cycles=evidence.cycles.now if evidence.cycles is not None and evidence.cycles.modelled else None,
        assembly=list(loop.body[:MOST_ASSEMBLY]),
    )


def _unexplained(evidence: Evidence, losses: Sequence[Loss]) -> float:
    """Return the microseconds per call that neither the work at the peaks nor the losses explain."""
    if any(loss.cause in ("layout", "fusion") for loss in losses):
        return 0.0
    named = sum(loss.lost_us for loss in losses if loss.cause not in _NOT_OVERLAPPING)
    return max(evidence.us("model") - evidence.bound_us - named, 0.0)


def _worth_acting_on(losses: Sequence[Loss], time_us: float) -> bool:
    return bool(losses) and losses[0].lost_us >= _LITTLE * time_us


def _sentence(evidence: Evidence, share: float, losses: Sequence[Loss], sureness: float | None) -> str:
    named = f"{title_of(evidence.operator.op_names)} ({evidence.operator.key})"
    with_threads = threads_text(evidence.threads)
    takes = f"{named} takes {evidence.us('model'):.1f} us with {with_threads}, {share:.0%} of the model"
    if not losses or sureness is None:
        return f"{takes}. No loss is detectable."
    first = losses[0]
    if not _worth_acting_on(losses, evidence.us("model")):
        return f"{takes}. No detectable loss is larger than {first.lost_us:.1f} us ({_CAUSE_TEXTS[first.cause]})."
    if first.vague:
        return (
            f"{takes}. It may lose up to {first.high_us:.1f} us to {_CAUSE_TEXTS[first.cause]} ({first.basis}); that "
            f"is all that is detectable. Why: {first.because}."
        )
    return (
        f"{takes}. It loses most to {_CAUSE_TEXTS[first.cause]}: {first.lost_us:.1f} us ({first.low_us:.1f} to "
        f"{first.high_us:.1f}, {first.basis}), the largest loss with {sureness:.0%} sureness. Why: {first.because}."
    )
