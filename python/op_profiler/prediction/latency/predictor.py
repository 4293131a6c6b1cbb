"""`Predictor`: estimates of operators and networks on one device, opened from a dataset."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.prediction.latency.network import Network, NetworkPrediction, predict_network
from op_profiler.prediction.latency.open_predictor import open_predictor
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.targets.target import resolve_target

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel


class Predictor(OperatorPredictor):
    """A predictor of operators and networks for one device, learned from its measurements.

    >>> from op_profiler import Predictor
    >>> from op_profiler.frontends import FRONTENDS
    >>> from op_profiler.frontends.frontend import ModelRequest
    >>> predictor = Predictor.from_dataset()  # the one that ships
    >>> model = FRONTENDS.get("local").load(ModelRequest(source="local", name="mlp"))
    >>> prediction = predictor.predict_model(model, threads=2)
    >>> prediction.low_us < prediction.total_us < prediction.high_us
    True

    Attributes:
        device: whose times it predicts.
    """

    @classmethod
    def from_dataset(
        cls,
        db: str | None = None,
        *,
        device: str | None = None,
        choice: str = "default",
        compiler: str = DEFAULT_COMPILER,
    ) -> OperatorPredictor:
        """The predictor of a device in a dataset; fitted where nothing has been fitted to the same measurements yet.

        Args:
            db: SQLAlchemy address; None for the dataset that ships.
            device: start of its key or part of its processor's name; None for the only one, or this machine; of what
                ships, for this processor or the nearest by its name.
            choice: one of `PREDICTORS`.
            compiler: whose kernels the times are of.

        Raises:
            DatasetError: the dataset cannot be read, or is of several devices and none was chosen.
            UnknownNameError: no such choice.
        """
        opened = open_predictor(choice, db=db, device=device, compiler=compiler)
        return cls(**{field.name: getattr(opened, field.name) for field in dataclasses.fields(opened)})

    def predict_model(self, model: ImportedModel | Network, *, threads: int = 1) -> NetworkPrediction:
        """The latency of a network, and of every operator in it.

        Args:
            model: one that a frontend has loaded, which is lowered for this predictor's target, or one that was
                lowered before (`op_profiler.prediction.latency.network.Network`), which takes a millisecond or two.
            threads: one of `thread_counts`.

        Raises:
            ModelError: it does not lower.
            UsageError: a thread count that was never measured.
        """
        if not isinstance(model, Network):
            occurrences = compiler_in_use().operators(model, resolve_target(self.device.target), layers=False)
            model = Network.of_occurrences(model.name, occurrences).told(self, [threads])
        return predict_network(self, model, threads=threads)
