"""Answers for language models: the time to the first token and tokens per second, from steps of the decoder.

The prompt is one step. Each later token is a step of one token, whose past is all tokens before it. These steps differ
in the length of the past only: a few lengths are predicted (`PredictRequest.pasts`), the others are interpolated
linearly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from op_profiler.operators.titles import title_of
from op_profiler.prediction.latency.answer import Chosen, network_of
from op_profiler.prediction.latency.intervals import sum_half_width
from op_profiler.prediction.latency.network import Network, NetworkPrediction, predict_networks
from op_profiler.prediction.latency.request import PredictRequest


@dataclasses.dataclass(frozen=True)
class Generation:
    """The networks that process a prompt and generate the tokens after it.

    Attributes:
        name: name of the model.
        sequences: number of sequences that are generated at once, each from its own prompt.
        prefill, decode: number of tokens of each prompt, and number of tokens that are generated after it.
        prompt: the step that processes the prompts; its output is the first token.
        steps: steps of one token, by the number of tokens before it; empty if `decode` is 0.
    """

    name: str
    sequences: int
    prefill: int
    decode: int
    prompt: Network
    steps: dict[int, Network]


@dataclasses.dataclass(frozen=True)
class TotalTime:
    """A time in microseconds with its 90 % interval; the fields are named as in `NetworkPrediction`.

    If an operator has no estimate, only `low_us` is finite.
    """

    total_us: float
    low_us: float
    high_us: float


@dataclasses.dataclass(frozen=True)
class GenerationPrediction(TotalTime):
    """Prediction of a prompt and the tokens after it, at one thread count; the times are those of both together.

    Attributes:
        prompt: prediction of the step that processes the prompt.
        steps: predictions of the steps of one token, in the order of `Generation.steps`.
        decoding: time of all steps of one token; None without such steps.
    """

    generation: Generation
    threads: int
    prompt: NetworkPrediction
    steps: tuple[NetworkPrediction, ...]
    decoding: TotalTime | None

    @property
    def networks(self) -> tuple[NetworkPrediction, ...]:
        """All predictions: that of the prompt, then those of the steps."""
        return self.prompt, *self.steps

    @property
    def first_token_seconds(self) -> tuple[float, float, float]:
        """Time from the prompt to the first token: estimate, lower and upper end."""
        return _seconds(self.prompt)

    @property
    def total_seconds(self) -> tuple[float, float, float]:
        """Time of the prompt and the tokens after it: estimate, lower and upper end."""
        return _seconds(self)

    @property
    def tokens_per_second(self) -> tuple[float, float, float] | None:
        """Tokens per second of all sequences together, after the first token: estimate, lower and upper end; None
        without `decoding`."""
        if self.decoding is None:
            return None
        tokens = self.generation.sequences * self.generation.decode
        seconds, low, high = _seconds(self.decoding)
        return tokens / seconds, tokens / high, tokens / low

    @property
    def without_estimate(self) -> tuple[str, ...]:
        """Names of the operators without an estimate, whose time is missing in the totals."""
        return tuple(dict.fromkeys(name for one in self.networks for name in one.without_estimate))

    @property
    def tiers(self) -> dict[str, float]:
        """Share of the time by source of the estimate (`TIERS`)."""
        found: dict[str, float] = {}
        for one, weight in zip(self.networks, self._weights):
            for name, share in one.tiers.items():
                found[name] = found.get(name, 0.0) + weight * one.partial_us * share
        return {name: time / sum(found.values()) for name, time in found.items()}

    @property
    def operators(self) -> dict[str, tuple[float, float]]:
        """Microseconds in the prompt and in the mean step of one token, by name of the operators' functions.

        The slowest functions are first; operators without an estimate are left out.
        """
        decode = self.generation.decode
        found: dict[str, list[float]] = {}
        for at, (one, weight) in enumerate(zip(self.networks, self._weights)):
            times = np.nan_to_num(one.operators.latency_us) * one.network.calls
            for operator, us in zip(one.network.operators, times.tolist()):
                of_prompt_and_token = found.setdefault(title_of(operator.op_names), [0.0, 0.0])
                of_prompt_and_token[at > 0] += us if at == 0 else us * weight / decode
        slowest = sorted(found.items(), key=lambda entry: -(entry[1][0] + decode * entry[1][1]))
        return {name: (of_prompt, of_token) for name, (of_prompt, of_token) in slowest}

    @property
    def _weights(self) -> list[float]:
        return [1.0, *weights_of(list(self.generation.steps), self.generation.prefill, self.generation.decode)]

    def to_json(self) -> dict[str, Any]:
        """Return the prediction as a dictionary for JSON; unknown numbers are NaN."""
        one, (first, *first_interval) = self.generation, self.first_token_seconds
        rate, *rate_interval = self.tokens_per_second or (math.nan, math.nan, math.nan)
        total, *total_interval = self.total_seconds
        return {
            "model": one.name,
            "sequences": one.sequences,
            "prefill": one.prefill,
            "decode": one.decode,
            "threads": self.threads,
            "first_token_seconds": first,
            "first_token_interval": first_interval,
            "tokens_per_second": rate,
            "tokens_per_second_interval": rate_interval,
            "total_seconds": total,
            "total_interval": total_interval,
            "steps": [
                {"past": past, "total_us": step.total_us, "interval_us": [step.low_us, step.high_us]}
                for past, step in zip(one.steps, self.steps)
            ],
            "operators": [
                {"operator": name, "prefill_us": prefill, "token_us": token}
                for name, (prefill, token) in self.operators.items()
            ],
            "tiers": self.tiers,
            **{name: sorted({n for part in self.networks for n in getattr(part, name)})
               for name in ("bounded", "unsupported", "too_large", "outside")},
        }  # fmt: skip


def weights_of(pasts: Sequence[int], prefill: int, decode: int) -> list[float]:
    """Return the weight of each predicted step in the sum over all steps; the other steps are interpolated linearly.

    Args:
        pasts: number of tokens before each predicted step, increasing.
        prefill, decode: as in `Generation`.
    """
    behind = np.arange(prefill, prefill + decode)
    return [float(np.interp(behind, pasts, unit).sum()) for unit in np.eye(len(pasts))]


def generation_of(chosen: Chosen, request: PredictRequest, note: Callable[[str], None]) -> Generation:
    """Return the lowered steps of a request with ``--prefill``.

    Raises:
        OpProfilerError: for the same reasons as `network_of`.
    """
    prefill, decode = request.prefill or 1, request.decode or 0

    def step(tokens: int, past: int) -> Network:
        of_step = request.of_step(tokens, past)
        return dataclasses.replace(network_of(chosen, of_step, note)[0], name=of_step.model.title)

    return Generation(
        request.model.name,
        request.model.batch_size,
        prefill,
        decode,
        step(prefill, 0),
        {past: step(1, past) for past in request.pasts},
    )


def predict_generation(chosen: Chosen, generation: Generation, threads: int) -> GenerationPrediction:
    """Predict the steps and add up their times.

    An operator has the same error in all steps, whatever the length of the past. The errors of different operators
    partly have a common cause, as within a network: the interval of the sum depends on `OperatorPredictor.correlation`.

    Raises:
        UsageError: there are no measurements at that thread count.
    """
    one, predictor = generation, chosen.predictor
    networks = [one.prompt, *one.steps.values()]
    prompt, *steps = predict_networks(predictor, networks, threads=threads, widening=chosen.widening(threads))
    weights = weights_of(list(one.steps), one.prefill, one.decode)
    parts = [(prompt, 1.0, prompt.network), *((step, weight, steps[0].network) for step, weight in zip(steps, weights))]
    return GenerationPrediction(
        generation=one,
        threads=threads,
        prompt=prompt,
        steps=tuple(steps),
        decoding=_sum(parts[1:], predictor.correlation) if steps else None,
        **dataclasses.asdict(_sum(parts, predictor.correlation)),
    )


def _seconds(time: TotalTime | NetworkPrediction) -> tuple[float, float, float]:
    return time.total_us / 1e6, time.low_us / 1e6, time.high_us / 1e6


def _sum(parts: Sequence[tuple[NetworkPrediction, float, Network]], correlation: float) -> TotalTime:
    """Return the sum of predictions times their weights.

    Args:
        parts: prediction, weight, and the network whose operators have the same errors, in the same order.
    """
    total, least = (sum(weight * getattr(one, end) for one, weight, _ in parts) for end in ("partial_us", "low_us"))
    if not all(math.isfinite(one.total_us) for one, _, _ in parts):
        return TotalTime(math.nan, least, math.nan)
    halves: dict[str, float] = {}
    for one, weight, alike in parts:
        found = one.operators
        times = weight * found.latency_us * one.network.calls * np.log(found.high_us / found.latency_us)
        for operator, half in zip(alike.operators, times.tolist(), strict=True):
            halves[operator.key] = halves.get(operator.key, 0.0) + half
    half = sum_half_width(np.array(list(halves.values())) / total, correlation)
    return TotalTime(total, total * math.exp(-half), total * math.exp(half))
