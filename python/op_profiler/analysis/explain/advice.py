"""Advice against the largest loss of an operator, with the predicted saving in microseconds."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from op_profiler.analysis.explain.evidence import Evidence
from op_profiler.analysis.explain.explanation import Advice, Loss
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.describe import exponent_of
from op_profiler.option_values import threads_text

_OF_A_SCHEDULE = ("vectorization", "spills", "register tile", "stride", "schedule", "imbalance", "serial")
_POWERS = {
    -2.0: "1 / (x * x)",
    -1.5: "1 / (x * sqrt(x))",
    -0.5: "1 / sqrt(x)",
    0.25: "sqrt(sqrt(x))",
    0.75: "sqrt(x) * sqrt(sqrt(x))",
    1.5: "x * sqrt(x)",
    2.5: "x * x * sqrt(x)",
    3.0: "x * x * x",
    4.0: "(x * x) * (x * x)",
}
"""Replacements for a power with a constant exponent."""
_SAVED_BY_INT8 = 0.75
"""Share of the bytes that int8 saves."""


def advice_for(evidence: Evidence, losses: Sequence[Loss], model: ModelRequest) -> Advice | None:
    """Return the advice against the first loss of an operator; None if the operator has no losses.

    Args:
        losses: losses of the operator, the largest first.
        model: the model that the commands of the advice name.
    """
    if not losses:
        return None
    first = losses[0]
    if first.cause in ("layout", "fusion"):
        return _without_it(evidence, first)
    if first.cause == "function calls":
        return _without_calls(evidence, first)
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
    """Return the advice to search for a schedule, with the gain of the best known or of the predicted schedule."""
    hot, others = evidence.us("hot"), evidence.others
    command = tune_command(model, evidence.threads)
    room = max(evidence.us("model") - evidence.bound_us, 0.0)
    if others.best_us is not None:
        gain = min(max(hot - others.best_us, 0.0), room)
        text = f"search; the best known schedule ({others.best_from}) takes {others.best_us:.1f} us"
        return Advice(action="tuning", command=command, text=text, gain_us=gain, gain_low_us=gain, gain_high_us=gain)
    tuned = others.tuned
    if tuned is None:
        text = f"search for a schedule; the gain cannot be predicted: {others.no_gain_reason}"
        return Advice(action="tuning", command=command, text=text)
    gains = [min(max(hot - us, 0.0), room) for us in (tuned.us, tuned.high_us, tuned.low_us)]
    text = f"search for a schedule; {tuned.us:.1f} us are expected"
    low, high = gains[1:]
    return Advice(action="tuning", command=command, text=text, gain_us=gains[0], gain_low_us=low, gain_high_us=high)


def _threads(evidence: Evidence, model: ModelRequest, loss: Loss) -> Advice:
    """Return the advice to use the thread count that was fastest in this run; if that is the current thread count, the
    advice to run other operators at the same time."""
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
    text = f"run it with {threads_text(best)}"
    gain, low, high = (max(us, 0.0) for us in (gain, low, high))
    action = f"{threads_text(best)} for"
    return Advice(action=action, command=command, text=text, gain_us=gain, gain_low_us=low, gain_high_us=high)


def _without_it(evidence: Evidence, loss: Loss) -> Advice:
    text = "no command removes it: give its neighbours one layout, or write them so that the compiler fuses them"
    action = "fusing" if loss.cause == "fusion" else "one layout around"
    gain, low, high = loss.lost_us, loss.low_us, loss.high_us
    return Advice(action=action, command="", text=text, gain_us=gain, gain_low_us=low, gain_high_us=high)


def _without_calls(evidence: Evidence, loss: Loss) -> Advice:
    """Return the advice to compute the same value with operations that LLVM can vectorize, if there are any; otherwise,
    to compute it for fewer values."""
    exponents = [exponent_of(edge) for edge in evidence.operator.structure.split(";")]
    written = [_POWERS[one] for one in exponents if one in _POWERS]
    if "mod" in evidence.operator.op_names:
        written.append("x - y * trunc(x / y)")
    if not written:
        text = "vectors have no instruction for it: compute it for fewer values, or once if they repeat"
        return Advice(action="rewriting", command="", text=text)
    text = f"write {' and '.join(written)} in the model instead, which becomes vector instructions"
    gain, low, high = loss.lost_us, loss.low_us, loss.high_us
    return Advice(action="rewriting", command="", text=text, gain_us=gain, gain_low_us=low, gain_high_us=high)


def explain_command(model: ModelRequest) -> str:
    """Return the command that explains a model, without the option ``--threads``."""
    return f"op-profiler explain {_name(model)}{_sizes(model)}"


def tune_command(model: ModelRequest, threads: int) -> str:
    """Return the command that searches for schedules of a model."""
    return f"{_collect(model)} --iftune true --threads {threads}"


def _collect(model: ModelRequest) -> str:
    return f"op-profiler collect {_name(model)}{_sizes(model)}"


def _sizes(model: ModelRequest) -> str:
    options = f" --batchsize {model.batch_size}" if model.batch_size != 1 else ""
    return options + (f" --sequence-length {model.sequence_length}" if model.sequence_length else "")


def _name(model: ModelRequest) -> str:
    return shlex.quote(model.name if model.source == "local" else f"{model.source}:{model.name}")
