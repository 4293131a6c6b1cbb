"""Results of a comparison with other runtimes."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.json_text import brief

OURS = ("default", "tuned", "rule")
"""This project's builds: with the compiler's own schedules; with the records that apply; with these records, and the
project's rule for operators without a record.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeTime:
    """A model in one runtime at one thread count; times are microseconds of a run.

    Attributes:
        name: one of `OURS`, or the name of the runtime.
        version: version of its package; for this project's builds, that of the compiler.
        median_us: None if it was not measured.
        ratio: time of the default build divided by the time of this one, each in one round, median over the rounds;
            above 1, this one is faster.
        ratio_low, ratio_high: 95 % interval of the ratio (order statistics).
        threads: thread count that the runtime reports; `busy_threads`: number of threads that worked while it ran.
        difference: largest difference between its outputs and those of the default build, as a share of the largest
            value.
        agree: whether the difference is within the tolerance of float32.
        distortion: time of a run with the runtime's profiler divided by the time without; None if it has none.
        problem: reason why it was not measured.
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
    """A layer of the model, with all neighbouring layers that the same kernel of this project computes.

    Attributes:
        ours_us: time in the build that is compared by layers.
        peers_us: time in each profiled runtime, scaled so that all its nodes together take the time of the model
            without the profiler; None if no node belongs to this layer, for example because its kernel belongs to
            another layer.
        lost_us: difference from the time in the best profiled runtime; None if that has no time.
        advice: what to try; `command`: the command for it.
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
    """All results at one thread count.

    Attributes:
        rounds: number of rounds; each runtime was measured once in each round.
        foreign_load: whether there was background load during the measurement.
        runtimes: results, this project's builds first.
        build: name in `OURS` of the build that the layers belong to.
        best: the fastest runtime that has times of layers; empty if there is none.
        elsewhere_us: for each profiled runtime, the time of nodes that belong to no layer of this project's build.
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
    """A model in this project's builds and in other runtimes."""

    model: str
    processor: str
    compiler: str
    at: tuple[AtThreads, ...]
    notes: tuple[str, ...] = ()

    __repr__ = brief

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return dataclasses.asdict(self)
