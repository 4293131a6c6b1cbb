"""The results of an explanation, as structures of plain values that are stored as JSON and shown on pages."""

from __future__ import annotations

from typing import Literal

import msgspec

from op_profiler.json_text import brief

Basis = Literal["measured", "computed", "predicted"]
Cause = Literal[
    "vectorization",
    "function calls",
    "spills",
    "register tile",
    "stride",
    "memory",
    "serial",
    "imbalance",
    "thread overhead",
    "layout",
    "fusion",
    "schedule",
]


MOST_ASSEMBLY = 40
_VAGUE = 10.0


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """What to try against the largest loss of an operator.

    Attributes:
        action: name of the action, such as ``tuning``; empty in advice that an older version stored.
        command: shell command; empty if no command of this tool helps.
        text: effect of the command, or what to change if there is no command.
        gain_us: predicted saving in microseconds per call; None if unknown.
        gain_low_us, gain_high_us: interval of the saving in microseconds per call; None if unknown.
    """

    action: str = ""
    command: str
    text: str
    gain_us: float | None = None
    gain_low_us: float | None = None
    gain_high_us: float | None = None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Time that an operator loses for one reason.

    Losses of one operator overlap: a better schedule also vectorizes. Time that one loss contains is not counted again
    in a later loss, so the sum of the losses is at most the time that can be removed.

    Attributes:
        cause: the reason.
        lost_us: lost time, microseconds per call.
        low_us, high_us: 95 % interval of `lost_us` if the loss is measured; otherwise the range of the estimate.
        basis: ``measured`` in this run, ``computed`` from machine code and peaks, ``predicted`` from other operators.
        because: the evidence, as text.
    """

    cause: Cause
    lost_us: float
    low_us: float
    high_us: float
    basis: Basis
    because: str

    @property
    def vague(self) -> bool:
        """Whether the interval spans more than a factor of ten."""
        return self.high_us > _VAGUE * self.low_us


class LoopCode(msgspec.Struct, frozen=True, kw_only=True):
    """The hottest loop of a kernel.

    Attributes:
        depth: number of nested loops, including the hottest loop; 0: the kernel has no loop.
        instructions: number of instructions of its body.
        vector_share: share of its arithmetic instructions (of its stores if it computes nothing) that use vectors.
        fma_share: share of its arithmetic instructions that multiply and add.
        lanes: mean number of 32-bit values per arithmetic instruction, or per store if it computes nothing.
        lanes_of_target: number of 32-bit values in a vector of the target.
        spills: number of instructions that read from the stack or write to it.
        cycles: cycles of an iteration, by llvm-mca; None without it.
        assembly: the first instructions of its body (AT&T syntax), at most `MOST_ASSEMBLY`; empty in explanations that
            an older version stored.
    """

    depth: int
    instructions: int
    vector_share: float
    fma_share: float
    lanes: float
    lanes_of_target: int
    spills: int
    cycles: float | None
    assembly: list[str] = []


class OperatorExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Explanation of one operator at one thread count. Times are microseconds per call in the quietest tenth of rounds.

    Attributes:
        key: workload key.
        title: common name (`op_profiler.operators.titles`); empty in explanations that an older version stored.
        layers: layers of the model in each call, that of the anchor first; empty if they are unknown.
        output: shape of the first output; empty in explanations that an older version stored.
        calls: number of calls in the model.
        time_us: time in the model.
        model_share: share of the whole model's time, over all calls.
        hot_us: time with its tensors in the caches.
        cold_us: time with its tensors flushed from the caches; None if it was not measured.
        one_thread_us: time in the model with one thread.
        compute_share: share of the compute peak that the operator reaches; None for operators without FLOPs.
        traffic_shares: by cache level and ``memory``: bytes of its tensors divided by its time, as a share of the peak
            bandwidth. Above 1, some tensors were in a nearer cache.
        code: hottest loop of its kernel; None if the machine code was not found.
        losses: the largest first; losses whose interval spans more than a factor of ten come last.
        sureness: share of random draws from the losses' intervals in which the first loss is the largest; None if there
            are no losses.
        unexplained_us: part of `time_us` that neither the work at the peaks nor the losses explain.
        foreign_load: whether there was background load; None if that is unknown.
        source_lines: lines of the user's torch code that make its calls, such as ``net.py:12``.
        advice: advice against the first loss; None if this loss is too small to act on.
        sentence: summary of its time and of the first loss.
    """

    key: str
    name: str
    title: str = ""
    anchor: str
    layers: list[list[str]] = []
    output: list[int] = []
    calls: int
    threads: int
    time_us: float
    model_share: float
    hot_us: float
    cold_us: float | None
    one_thread_us: float
    compute_share: float | None
    traffic_shares: dict[str, float]
    code: LoopCode | None
    losses: list[Loss]
    sureness: float | None
    unexplained_us: float
    advice: Advice | None
    foreign_load: bool | None = None
    source_lines: list[str] = []
    sentence: str


class ModelAdvice(msgspec.Struct, frozen=True, kw_only=True):
    """What to try for several operators at once.

    Attributes:
        action, command, text: as in `Advice`; `text` is empty if the operators' advice has different texts.
        operators: workload keys of the operators, the largest gain first.
        gain_us, gain_low_us, gain_high_us: predicted saving in microseconds of one run of the model; None if unknown.
    """

    action: str
    command: str
    text: str
    operators: list[str]
    gain_us: float | None
    gain_low_us: float | None
    gain_high_us: float | None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """Time of the whole model in one of this project's builds or in another runtime; all are measured alternately.

    Attributes:
        name: one of this project's builds (`op_profiler.comparison.peers.result.OURS`), or the name of the runtime.
        version: version of the runtime's package; for this project's builds, name of the compiler.
        median_us: time of a run; None if the baseline was not measured, for the reason `problem`.
        ratio: time of the default build divided by the time of this baseline; above 1, this baseline is faster.
        ratio_low, ratio_high: 95 % interval of the ratio.
        agree: whether its outputs agree with those of the default build; None for the default build.
    """

    name: str
    version: str
    median_us: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    agree: bool | None
    problem: str


class ModelExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """Explanation of the operators that take most of a model's time, and advice for the whole model.

    Attributes:
        model: name of the model.
        threads: thread count at which the operators are explained.
        whole_model_us: time of one run of the model at `threads`, microseconds.
        verdict: predicted saving of the advice, as a sentence.
        advice: advice grouped by action and command, the largest gain first.
        operators: explanations of the operators, the largest share of the model's time first.
        notes: notes for the user, for example on background load or missing data.
        baselines: times of the whole model, this project's builds first, at the same thread count; empty if no runtimes
            were requested.
        model_keys: keys of the runs in the dataset with which the explanation is stored.
    """

    model: str
    processor: str
    threads: int
    whole_model_us: float
    verdict: str
    advice: list[ModelAdvice]
    operators: list[OperatorExplanation]
    notes: list[str]
    baselines: list[Baseline] = []
    model_keys: list[str] = []

    __repr__ = brief
