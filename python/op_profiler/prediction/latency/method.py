"""`Method`: the contract of a predictor of operators, with the sources of estimates that it uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from op_profiler.prediction.latency.regression import Regressor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """The sources of estimates that a predictor uses; the first source that applies to an operator is used.

    The sources are tried in the order of the attributes.

    Attributes:
        looks_up: whether to return the time of an operator that was measured in a network.
        corrects_samples: whether to return the time of an operator that was measured in a batch of sampled operators,
            changed by the difference between network and batch that the regressions estimate.
        interpolates: where to interpolate between operators of one family: nowhere; in families in which interpolation
            was more accurate than regression on held-out operators; or wherever there are neighbours.
        regressors: creates the regressions from a seed, not trained yet. If there are several, their estimates are
            averaged.
        regressor_types: classes of the regressions, to read regressions from files; empty without regression.
        averages_latencies: whether to average the latencies of several regressions, not their logarithms.
        bounds: whether to return the least time of the roofline for operators unlike all measured operators; otherwise
            such operators are unsupported.
    """

    looks_up: bool = False
    corrects_samples: bool = False
    interpolates: Literal["nowhere", "where better", "everywhere"] = "nowhere"
    regressors: Callable[[int], list[Regressor]] = lambda _: []
    regressor_types: tuple[type[Regressor], ...] = ()
    averages_latencies: bool = False
    bounds: bool = True

    @property
    def learns(self) -> bool:
        """Whether regressions or interpolation are fitted to the measurements."""
        return bool(self.regressor_types) or self.interpolates != "nowhere"

    @property
    def scales(self) -> bool:
        """Whether the roofline bound, scaled by a typical factor, is used instead of regressions."""
        return self.bounds and not self.learns

    @property
    def only_regresses(self) -> bool:
        """Whether regressions are the only source of estimates."""
        before = self.looks_up or self.corrects_samples or self.interpolates != "nowhere"
        return bool(self.regressor_types) and not before

    def combined(self, estimates: Sequence[np.ndarray]) -> np.ndarray:
        """Return the mean of the estimates of several regressions; all are logarithms of time over roofline bound."""
        if self.averages_latencies:
            found: np.ndarray = np.log(np.mean(np.exp(estimates), axis=0))
            return found
        return np.asarray(np.mean(estimates, axis=0))
