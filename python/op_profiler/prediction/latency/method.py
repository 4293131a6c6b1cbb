"""`Method`: the contract of a predictor of operators, with the sources of estimates that it uses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from op_profiler.prediction.latency.regression import Regressor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Method:
    """The sources of estimates that a predictor uses: the first that applies answers, in the order of the attributes.

    Attributes:
        looks_up: what was measured in a network answers with its time.
        corrects_samples: what was measured in a batch of sampled operators answers, corrected by what the regressions
            say that a network changes.
        interpolates: between operators of one family: nowhere, in families where that was closer than the regressions
            on what was held out, or wherever there are neighbours.
        regressors: makes the regressions, from a seed; they have learned nothing. Several are averaged.
        regressor_types: their classes, which read them from files again; empty where it regresses nothing.
        averages_latencies: several regressions are averaged as latencies, not as logarithms.
        bounds: for operators unlike all that were measured, the roofline tells the least time; else nothing does.
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
        """Whether something but a table is made of the measurements."""
        return bool(self.regressor_types) or self.interpolates != "nowhere"

    @property
    def scales(self) -> bool:
        """Whether the roofline, scaled by what is typical, stands for regressions."""
        return self.bounds and not self.learns

    @property
    def only_regresses(self) -> bool:
        """Whether nothing comes before its regressions."""
        before = self.looks_up or self.corrects_samples or self.interpolates != "nowhere"
        return bool(self.regressor_types) and not before

    def combined(self, estimates: Sequence[np.ndarray]) -> np.ndarray:
        """One estimate from those of the regressions, all of them logarithms of time over bound."""
        if self.averages_latencies:
            found: np.ndarray = np.log(np.mean(np.exp(estimates), axis=0))
            return found
        return np.asarray(np.mean(estimates, axis=0))
