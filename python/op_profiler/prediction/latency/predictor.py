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
    """Predictor of operators and networks for one device, fitted to measurements of that device.

    >>> from op_profiler import Predictor
    >>> from op_profiler.frontends import FRONTENDS
    >>> from op_profiler.frontends.frontend import ModelRequest
    >>> predictor = Predictor.from_dataset()  # one that the package includes
    >>> model = FRONTENDS.get("local").load(ModelRequest(source="local", name="mlp"))
    >>> prediction = predictor.predict_model(model, threads=2)
    >>> prediction.low_us < prediction.total_us < prediction.high_us
    True

    Attributes:
        device: the device whose times are predicted.
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
        """Return the predictor of a device; it is fitted to the dataset unless a predictor of the same measurements is
        stored.

        Args:
            db: SQLAlchemy URL of the dataset; None for the data included with the package.
            device: start of the device's key, or part of its processor's name. None for the only device of the dataset,
                or this machine; with included data, for this processor or the one with the most similar name.
            choice: one of `PREDICTORS`.
            compiler: compiler whose kernels were measured.

        Raises:
            DatasetError: the dataset cannot be read, or it has several devices and `device` is None.
            UnknownNameError: there is no such choice.
        """
        opened = open_predictor(choice, db=db, device=device, compiler=compiler)
        return cls(**{field.name: getattr(opened, field.name) for field in dataclasses.fields(opened)})

    def predict_model(self, model: ImportedModel | Network, *, threads: int = 1) -> NetworkPrediction:
        """Predict the latency of a network and of every operator in it.

        Args:
            model: a model that a frontend has loaded, which is lowered for this predictor's target; or a lowered model
                (`op_profiler.prediction.latency.network.Network`), whose prediction takes a millisecond or two.
            threads: one of `thread_counts`.

        Raises:
            ModelError: the model cannot be lowered.
            UsageError: the thread count was never measured on the device.
        """
        if not isinstance(model, Network):
            occurrences = compiler_in_use().operators(model, resolve_target(self.device.target), layers=False)
            model = Network.of_occurrences(model.name, occurrences).with_loops(self, [threads])
        return predict_network(self, model, threads=threads)
