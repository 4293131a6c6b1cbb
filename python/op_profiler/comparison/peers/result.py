"""Results of a comparison with other runtimes."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.json_text import brief

OURS = ("default", "tuned", "rule")
"""Names of this project's builds: ``default`` uses the compiler's own schedules, ``tuned`` the schedule records that
apply, and ``rule`` these records and, for operators without a record, the project's rule.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeTime:
    """Time of a model in one runtime at one thread count, in microseconds per run.

    Attributes:
        name: one of `OURS`, or the name of the runtime.
        version: version of the runtime's package; for this project's builds, name of the compiler.
        median_us: median time; None if the runtime was not measured.
        ratio: time of the default build divided by the time of this runtime in the same round, median over the rounds;
            above 1, this runtime is faster.
        ratio_low, ratio_high: 95 % interval of the ratio (order statistics); None if there were too few rounds.
        threads: thread count that the runtime reports.
        busy_threads: number of threads that worked while the model ran.
        difference: largest difference between the outputs of this runtime and those of the default build, as a share of
            the largest value; None for the default build.
        agree: whether the difference is within the tolerance of float32; None for the default build.
        distortion: time of a run with the runtime's profiler divided by the time without; None if it has no profiler.
        problem: reason why the runtime was not measured; empty if it was.
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
        layer: name of the layer; empty for kernels whose layer is unknown.
        operators: workload keys of the layer's kernels in this project's build.
        ours_us: time of the layer in this project's build, microseconds.
        peers_us: time of the layer in each profiled runtime, microseconds, scaled so that all nodes of the runtime
            together take the time of the model without the profiler; None if no node of the runtime belongs to this
            layer, for example because the runtime's kernel for it belongs to another layer.
        lost_us: `ours_us` minus the layer's time in the runtime `AtThreads.best`; None if that time is unknown.
        advice: what to try, empty without advice; `command`: the command for the advice.
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
    """All results of a comparison with other runtimes at one thread count.

    Attributes:
        rounds: number of rounds; each runtime was measured once in each round.
        foreign_load: whether there was background load during the measurement.
        runtimes: results, this project's builds first.
        build: name in `OURS` of the build whose layers are compared.
        best: the fastest runtime that has times of layers; empty if no runtime has times of layers.
        elsewhere_us: for each profiled runtime, microseconds of its nodes that belong to no layer of `build`.
        layers: times of layers; layers with the largest loss come first.
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
    """Times of a model in this project's builds and in other runtimes.

    Attributes:
        at: results at each thread count.
        notes: notes on the model and on the builds.
    """

    model: str
    processor: str
    compiler: str
    at: tuple[AtThreads, ...]
    notes: tuple[str, ...] = ()

    __repr__ = brief

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON-serializable dictionary."""
        return dataclasses.asdict(self)
