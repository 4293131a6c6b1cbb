"""What to try against the largest loss, and what it is predicted to save."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Advice, Loss
from op_profiler.frontends.frontend import ModelRequest

_OF_A_SCHEDULE = ("vectorization", "spills", "register tile", "stride", "schedule", "imbalance", "serial")
_SAVED_BY_INT8 = 0.75
"""A quarter of the bytes is moved."""


def advice_for(evidence: Evidence, losses: Sequence[Loss], model: ModelRequest) -> Advice | None:
    """Against the first loss; None where there is none."""
    if not losses:
        return None
    first = losses[0]
    if first.cause in ("layout", "fusion"):
        return _without_it(evidence, first)
    if first.cause in _OF_A_SCHEDULE and (evidence.others.best_us or evidence.others.tuned):
        return _tune(evidence, model)
    if first.cause in ("thread overhead", "serial", "imbalance"):
        return _threads(evidence, model, first)
    if first.cause == "memory":
        gain = _SAVED_BY_INT8 * first.lost_us
        text = "a quarter of the bytes, where int8 is accurate enough"
        command = f"{_collect(model)} --precision int8"
        return Advice(action="int8 for", command=command, text=text, gain_us=gain, gain_low_us=0.0, gain_high_us=gain)
    if evidence.others.searchable:
        return _tune(evidence, model)
    text = "no template of this project computes it, so no search can help: change the model, or TVM's schedule"
    return Advice(action="changing", command="", text=text)


def _tune(evidence: Evidence, model: ModelRequest) -> Advice:
    """A known schedule is used by the next build; what is not known yet is searched for."""
    hot, others = evidence.us("hot"), evidence.others
    room = max(evidence.us("model") - evidence.bound_us, 0.0)
    command = f"{_collect(model)} --iftune true --threads {evidence.threads}"
    if others.best_us is not None:
        gain = min(max(hot - others.best_us, 0.0), room)
        text = f"search; the best known schedule ({others.best_from}) takes {others.best_us:.1f} us"
        return Advice(action="tuning", command=command, text=text, gain_us=gain, gain_low_us=gain, gain_high_us=gain)
    tuned = others.tuned
    if tuned is None:
        text = f"search for a schedule; what it saves cannot be told: {others.untold}"
        return Advice(action="tuning", command=command, text=text)
    gains = [min(max(hot - us, 0.0), room) for us in (tuned.us, tuned.high_us, tuned.low_us)]
    text = f"search for a schedule; {tuned.us:.1f} us are expected"
    low, high = gains[1:]
    return Advice(action="tuning", command=command, text=text, gain_us=gains[0], gain_low_us=low, gain_high_us=high)


def _threads(evidence: Evidence, model: ModelRequest, loss: Loss) -> Advice:
    """The thread count that was fastest in this run; where that is this one, other operators beside it."""
    counts = sorted(n for state, n in evidence.samples if state == "model")
    best = min(counts, key=lambda n: evidence.us("model", n))
    command = f"op-profiler corun {_name(model)} --policy threads"
    if best == evidence.threads and evidence.in_chain:
        return Advice(
            action="changing", command="", text="no other operator can run meanwhile, so only another model can help"
        )
    if best == evidence.threads:
        waiting = "1 thread" if evidence.threads == 2 else f"{evidence.threads - 1} threads"
        text = f"let other operators run meanwhile: it keeps {waiting} waiting"
        return Advice(
            action="corun beside",
            command=f"op-profiler corun {_name(model)}",
            text=text,
            gain_us=loss.lost_us,
            gain_low_us=0.0,
            gain_high_us=loss.lost_us,
        )
    gain, low, high = evidence.difference_us(
        evidence.samples["model", evidence.threads], evidence.samples["model", best]
    )
    text = f"run it with {best} {'thread' if best == 1 else 'threads'}"
    gain, low, high = (max(us, 0.0) for us in (gain, low, high))
    action = f"{best} {'thread' if best == 1 else 'threads'} for"
    return Advice(action=action, command=command, text=text, gain_us=gain, gain_low_us=low, gain_high_us=high)


def _without_it(evidence: Evidence, loss: Loss) -> Advice:
    text = "no command removes it: give its neighbours one layout, or write them so that the compiler fuses them"
    action = "fusing" if loss.cause == "fusion" else "one layout around"
    gain, low, high = loss.lost_us, loss.low_us, loss.high_us
    return Advice(action=action, command="", text=text, gain_us=gain, gain_low_us=low, gain_high_us=high)


def _collect(model: ModelRequest) -> str:
    options = f" --batchsize {model.batch_size}" if model.batch_size != 1 else ""
    options += f" --sequence-length {model.sequence_length}" if model.sequence_length else ""
    return f"op-profiler collect {_name(model)}{options}"


def _name(model: ModelRequest) -> str:
    return shlex.quote(model.name if model.source == "local" else f"{model.source}:{model.name}")
