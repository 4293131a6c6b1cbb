"""Results of a comparison with other runtimes."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.json_text import brief

OURS = ("default", "tuned", "rule")
"""This project's builds: with the compiler's own schedules, with the records that apply, and with those, else by the
project's rule."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeTime:
    """A model in one runtime at one thread count; times are microseconds of a run.

    Attributes:
        name: one of `OURS`, or of the runtime.
        version: of its package; of ours the compiler.
        median_us: None where it was not measured.
        ratio: median over the rounds of the default build's time over this one's, each of one round: above 1, the
            runtime is faster.
        ratio_low, ratio_high: its 95 % interval (order statistics).
        threads: that the runtime reports; `busy_threads`: that were seen to work while it ran.
        difference: largest one of its outputs from those of the default build, as a share of the largest value.
        agree: whether that is within the tolerance of float32.
        distortion: time of a run with the runtime's profiler over that without; None where it has none.
        problem: why it was not measured.
    """

    name: str
    version: str = ""
    median_us: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    threads: int | None = None
    busy_threads: int | None = None
    difference: float | None = None
    agree: bool | None = None
    distortion: float | None = None
    problem: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerLayer:
    """A layer of the model, with all that one kernel of ours computes of its neighbours too.

    Attributes:
        ours_us: in the build that is compared by layers.
        peers_us: of each profiled runtime, scaled so that all its nodes together take the time that the model takes
            without its profiler; None where none of them is of this layer, as in a kernel of another layer.
        lost_us: time over that of the best profiled runtime; None where that has none.
        advice: what to do about it; `command`: for that.
    """

    layer: str
    operators: tuple[str, ...]
    ours_us: float
    peers_us: dict[str, float | None]
    lost_us: float | None
    advice: str = ""
    command: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtThreads:
    """Everything at one thread count.

    Attributes:
        rounds: that times are of; in each, every runtime had its turn.
        foreign_load: whether others used the machine meanwhile.
        runtimes: ours first.
        build: which of `OURS` the layers are of.
        best: the fastest runtime that has times of layers; empty where there is none.
        elsewhere_us: of each profiled runtime, time that no layer of ours could be found for.
        layers: those that lose most first.
    """

    threads: int
    rounds: int
    foreign_load: bool
    runtimes: tuple[RuntimeTime, ...]
    build: str
    best: str
    elsewhere_us: dict[str, float]
    layers: tuple[PeerLayer, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerComparison:
    """A model in this project's build and in other runtimes."""

    model: str
    processor: str
    compiler: str
    at: tuple[AtThreads, ...]
    notes: tuple[str, ...] = ()

    __repr__ = brief

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return dataclasses.asdict(self)
