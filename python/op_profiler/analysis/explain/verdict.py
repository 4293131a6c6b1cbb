"""Summary of an explanation for the whole model: the advice of its operators, grouped by command."""

from __future__ import annotations

from collections.abc import Sequence

from op_profiler.analysis.explain.explanation import Advice, ModelAdvice, OperatorExplanation


def advice_by_command(operators: Sequence[OperatorExplanation]) -> list[ModelAdvice]:
    """Return the advice of operators, grouped by action and command; the largest gain first, unknown gains last."""
    groups: dict[tuple[str, str], list[tuple[OperatorExplanation, Advice]]] = {}
    for one in operators:
        if one.advice is not None:
            groups.setdefault((one.advice.action, one.advice.command), []).append((one, one.advice))
    found = []
    for (action, command), members in groups.items():
        members.sort(key=lambda member: -(member[1].gain_us or 0.0) * member[0].calls)
        gains = [(one.calls, advice) for one, advice in members if advice.gain_us is not None]
        texts = {advice.text for _, advice in members}
        found.append(
            ModelAdvice(
                action=action,
                command=command,
                text=texts.pop() if len(texts) == 1 else "",
                operators=[one.key for one, _ in members],
                gain_us=sum(calls * (advice.gain_us or 0.0) for calls, advice in gains) if gains else None,
                gain_low_us=sum(calls * (advice.gain_low_us or 0.0) for calls, advice in gains) if gains else None,
                gain_high_us=sum(calls * (advice.gain_high_us or 0.0) for calls, advice in gains) if gains else None,
            )
        )
    return sorted(found, key=lambda one: -(one.gain_us or 0.0))


def verdict_of(advice: Sequence[ModelAdvice], whole_model_us: float) -> str:
    """Return a sentence such as ``tuning 3 operators: 24.2 ms to 14.1 ms (13.0 ms to 16.2 ms); fusing 1 operator: saves
    up to 2.0 ms``.

    For the first advice, the sentence gives the remaining time with its interval; for any other advice, the saving. If
    a saving may be zero, the sentence gives only the upper end of its interval.
    """
    parts: list[str] = []
    for one in advice:
        if not one.gain_us:
            continue
        count = len(one.operators)
        what = f"{one.action} {count} {'operator' if count == 1 else 'operators'}"
        low, high = one.gain_low_us or 0.0, one.gain_high_us or one.gain_us
        if low <= 0:
            parts.append(f"{what}: saves up to {_ms(high)}")
        elif parts:
            parts.append(f"{what}: saves {_ms(one.gain_us)} ({_ms(low)} to {_ms(high)})")
        else:
            left, least, most = (_ms(max(whole_model_us - us, 0.0)) for us in (one.gain_us, high, low))
            parts.append(f"{what}: {_ms(whole_model_us)} to {left} ({least} to {most})")
    return "; ".join(parts) or "no advice with a predicted gain"


def _ms(us: float) -> str:
    return f"{us / 1e3:.1f} ms" if us >= 1e3 else f"{us:.0f} us"
