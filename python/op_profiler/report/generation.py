"""The predicted times of a language model (prompt and generated tokens) as a table, JSON or CSV."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.errors import UnknownNameError
from op_profiler.frontends.transformers import has_small_sizes
from op_profiler.option_values import several, threads_text
from op_profiler.report.prediction import caveats, operators_csv, predictions_json, source_of
from op_profiler.report.tables import numbers, print_line, show_table, texts

if TYPE_CHECKING:
    from rich.console import Console

    from op_profiler.prediction.latency.answer import Chosen
    from op_profiler.prediction.latency.devices import DeviceName
    from op_profiler.prediction.latency.generation import GenerationPrediction

FORMATS = ("table", "csv", "json")


def render(predictions: Sequence[GenerationPrediction], format: str, device: DeviceName) -> str:
    """Return predictions as text, one per thread count; see `show_generation` for ``table``.

    Args:
        device: device of the times.

    Raises:
        UnknownNameError: there is no such format.
    """
    if format == "json":
        return predictions_json(predictions, device)
    if format == "csv":
        return operators_csv([network for prediction in predictions for network in prediction.networks])
    raise UnknownNameError("format", format, FORMATS)


def show_generation(console: Console, prediction: GenerationPrediction) -> None:
    """Print the time of the prompt and of a token by operator, then `summary`."""
    one, operators = prediction.generation, prediction.operators
    prompt, token = (sum(times[at] for times in operators.values()) for at in (0, 1))
    rows = [
        [name, *_time_and_share(of_prompt, prompt), *_time_and_share(of_token, token)]
        for name, (of_prompt, of_token) in operators.items()
    ]
    headings = [*texts("operator"), *numbers("ms, prompt", "share", "ms, token", "share")]
    answer = f", answer of {one.decode:,}" if one.decode else ""
    title = f"{one.name}, prompt of {several(one.prefill, 'token')}{answer}, {threads_text(prediction.threads)}"
    show_table(console, title, headings, rows)
    print_line(console, summary(prediction))


def summary(prediction: GenerationPrediction) -> str:
    """Return the time to the first token and the tokens per second, with their intervals, as lines of text, followed by
    the caveats of the predictions."""
    one = prediction.generation
    lines = [f"first token: {_with_interval(prediction.first_token_seconds, 's')}"]
    rate = prediction.tokens_per_second
    if rate is not None:
        times = [f"{step.total_us / 1e3:.3g} ms after {past:,}" for past, step in zip(one.steps, prediction.steps)]
        steps = " to ".join(dict.fromkeys((times[0], times[-1])))
        lines.append(f"answer: {_with_interval(rate, 'tokens/s')} (a token takes {steps} tokens)")
        lines.append(f"prompt and answer: {_with_interval(prediction.total_seconds, 's')}")
    if one.sequences > 1:
        lines.append(f"{one.sequences} sequences at once; tokens/s counts all of them")
    if has_small_sizes(one.name):
        lines.append(f"{one.name} has the sizes of a small model; a folder with a config.json gives others")
    return "\n".join([*lines, *caveats(prediction.networks)])


def origin(prediction: GenerationPrediction, chosen: Chosen) -> str:
    """Return a line with the source of the estimate; for times of this machine, it also contains the command that
    measures the prompt and the tokens."""
    text = source_of(prediction.tiers, "", prediction.threads, chosen)
    if not chosen.for_this_machine:
        return text
    return f"{text}; measure its steps on this machine: {chosen.request.collect_command('measured.db')}"


def _time_and_share(us: float, total_us: float) -> tuple[str, str]:
    return (f"{us / 1e3:.3g}", f"{us / total_us:.1%}") if us else ("", "")


def _with_interval(found: tuple[float, float, float], unit: str) -> str:
    """Return a number with its interval; without an estimate, only the lower bound."""
    middle, low, high = found
    if math.isfinite(middle):
        return f"{middle:.3g} {unit}, 90 % interval {low:.3g} to {high:.3g} {unit}"
    ends = [f"at least {low:.3g} {unit}"] * math.isfinite(low) + [f"at most {high:.3g} {unit}"] * math.isfinite(high)
    return ", ".join(["unknown", *ends])
