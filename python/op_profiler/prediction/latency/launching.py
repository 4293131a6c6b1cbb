"""`Launching`: the time of a network on a GPU beyond its kernels: gaps between kernels, and launch overhead.

The host launches kernels ahead of the GPU. A network therefore takes the time of its kernels and of the gaps between
them, or the time of all its launches, whichever is longer (`op_profiler.targets.cuda.launch_cost.timeline_us` without
an order), plus the time before the first and after the last kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from op_profiler.operators.operator import Operator

if TYPE_CHECKING:
    from op_profiler.prediction.latency.examples import Examples

_START = (1.0, 4.0, 4.0)
_CLEAR = 0.02
"""Larger errors, on a logarithmic scale, count less than quadratically: something else disturbed these launches."""


@dataclasses.dataclass(frozen=True)
class Launching:
    """Launch overheads on one GPU and its hosts, in microseconds.

    Attributes:
        turn_us: time from the end of a kernel to the start of the next one.
        launch_us: time of the host for launching a kernel.
        ends_us: time before the first launch and after the last kernel.
        several: number of kernels that a measured operator launches, by workload key; operators of anchors that always
            launch one kernel are omitted.
        usual: median number of kernels by anchor, for operators that were not measured.
    """

    turn_us: float
    launch_us: float
    ends_us: float
    several: Mapping[str, int]
    usual: Mapping[str, float]

    @classmethod
    def of(cls, examples: Examples) -> Launching | None:
        """Fit the overheads to the networks of `examples` whose whole-model time is known.

        Logarithms are fitted by least squares, starting from the values of an H100.

        Returns:
            None if there are no such networks, or if no kernels are launched.
        """
        runs = list(examples.network_runs()) if examples.launches.any() else []
        if not runs:
            return None
        from scipy.optimize import least_squares

        counts = np.maximum(examples.launches, 1)
        of_anchor: dict[str, list[int]] = {}
        used = [(examples.operators[at], int(counts[at])) for at in np.unique(examples.operator)]
        for operator, count in used:
            of_anchor.setdefault(operator.anchor, []).append(count)
        whole_us = np.array([examples.whole_model_us[mine[0]] for mine in runs])
        kernels_us = np.array([(examples.latency_us[mine] * examples.occurrences[mine]).sum() for mine in runs])
        launches = np.array([(counts[examples.operator[mine]] * examples.occurrences[mine]).sum() for mine in runs])

        def off(logs: np.ndarray) -> np.ndarray:
            return np.log(_total_us(kernels_us, launches, *np.exp(logs)) / whole_us)

        fitted = least_squares(off, np.log(_START), loss="soft_l1", f_scale=_CLEAR).x
        turn_us, launch_us, ends_us = (float(part) for part in np.exp(fitted))
        several = {anchor: found for anchor, found in of_anchor.items() if max(found) > 1}
        counted = {operator.key: count for operator, count in used if operator.anchor in several}
        usual = {anchor: float(np.median(found)) for anchor, found in several.items()}
        return cls(turn_us, launch_us, ends_us, counted, usual)

    def total_us(self, kernels_us: float, operators: Sequence[Operator], calls: np.ndarray) -> float:
        """Return the time of a network.

        Args:
            kernels_us: time of the kernels of all calls together.
            operators, calls: operators of the network, and number of calls of each.
        """
        counts = [self.several.get(o.key) or self.usual.get(o.anchor, 1.0) for o in operators]
        found = _total_us(kernels_us, float(np.dot(counts, calls)), self.turn_us, self.launch_us, self.ends_us)
        return float(found)


def _total_us(
    kernels_us: np.ndarray | float, launches: np.ndarray | float, turn_us: float, launch_us: float, ends_us: float
) -> np.ndarray:
    return np.maximum(kernels_us + np.multiply(launches, turn_us), np.multiply(launches, launch_us)) + ends_us
