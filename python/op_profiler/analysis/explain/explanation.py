"""The results of an explanation, as plain values for JSON and pages."""

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
    """What to try.

    Attributes:
        action: what it is in a few words, such as ``tuning``; empty in what an older version stored.
        command: for a shell; empty where no command of this tool helps.
        text: what it does, or what to change where there is no command.
        gain_us: microseconds a call that it is predicted to save; None where nothing tells.
        gain_low_us, gain_high_us: what is to be expected of it.
    """

    action: str = ""
    command: str
    text: str
    gain_us: float | None = None
    gain_low_us: float | None = None
    gain_high_us: float | None = None


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """Time that an operator would not take without one thing.

    Losses of one operator overlap: a better schedule also vectorizes. What one names no later one names again, so that
    they sum to no more than can be removed.

    Attributes:
        lost_us: microseconds a call.
        low_us, high_us: 95 % interval where it is measured, else how far off such an estimate may be.
        basis: ``measured`` in this run, ``computed`` from machine code and peaks, ``predicted`` from other operators.
        because: the evidence.
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
        depth: loops around it and itself; 0: the kernel has none.
        instructions: of its body.
        vector_share: of its arithmetic instructions (of its stores where it computes nothing) those on vectors.
        fma_share: of its arithmetic instructions those that multiply and add.
        lanes: values of 32 bits that such an instruction works on, on average.
        lanes_of_target: that a vector of the target holds.
        spills: instructions that read from the stack or write to it.
        cycles: of an iteration, by llvm-mca; None without it.
        assembly: the first instructions of its body (AT&T syntax), at most `MOST_ASSEMBLY`; empty in what an older
            version stored.
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
    """One operator at one thread count. Times are microseconds a call, those of the quietest tenth of the rounds.

    Attributes:
        key: workload key.
        title: what people call it (`op_profiler.operators.titles`); empty in what an older version stored.
        calls: of the operator in the model.
        time_us: in the model.
        model_share: of the whole model's time, all calls.
        hot_us, cold_us: with its tensors in the caches, and flushed from them.
        one_thread_us: in the model with one thread.
        compute_share: of what the processor can compute meanwhile, what it does.
        traffic_shares: by cache level and ``memory``: of what that can deliver meanwhile, the bytes of its tensors.
            Above 1: a nearer cache kept some of them.
        losses: largest first; behind them those whose interval spans more than a factor of ten.
        sureness: share of draws from the losses' intervals in which the first is the largest.
        unexplained_us: of `time_us` what neither its work nor its losses account for.
        foreign_load: whether others used the machine meanwhile; None where that cannot be told.
        source_lines: lines of the user's torch code that its layers are called in, such as ``net.py:12``.
        advice: against the first loss; None where it is too small to act on.
        sentence: what it takes and why, in words.
    """

    key: str
    name: str
    title: str = ""
    anchor: str
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
        action, command, text: as of `Advice`; the text where all operators have the same.
        operators: their workload keys, the largest gain first.
        gain_us, gain_low_us, gain_high_us: microseconds of one run of the model; None where nothing tells.
    """

    action: str
    command: str
    text: str
    operators: list[str]
    gain_us: float | None
    gain_low_us: float | None
    gain_high_us: float | None


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The whole model in one of our builds or in another runtime, measured in turns.

    Attributes:
        name: ``default`` or ``tuned`` of ours, or of the runtime; `version` of its package, of ours the compiler.
        median_us: of a run; None where it was not measured: `problem` is why.
        ratio: time of the default build over this one's, with its 95 % interval: above 1, this one is faster.
        agree: whether its outputs are those of the default build; None for that build.
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
    """The operators of a model that take most of its time.

    Attributes:
        model: its name.
        whole_model_us: one run, at `threads`.
        verdict: what the advice would save, in a sentence.
        advice: by command, the largest gain first.
        notes: what the user should know: load of others, what could not be asked.
        baselines: ours first, with the same threads; empty where none were asked for.
        model_keys: of the runs in the dataset that the explanation is stored with.
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
