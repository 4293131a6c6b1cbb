"""A model as sources of models give it and the compiler takes it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.tvm_types import DeviceArray, IRModule


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One input of a model: values are drawn uniformly from [low, high) (integers) or a standard normal (floats).

    Attributes:
        name: of the parameter of ``main``.
        shape: sizes; a None is a dimension that is only known at run time (vm executor).
        dtype: numpy dtype name.
        low, high: range of integer inputs; `high` is the vocabulary size for token ids.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"
    low: int = 0
    high: int = 2

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Random values of this input's shape and dtype; raises ValueError where the shape is not static."""
        shape = tuple(d for d in self.shape if d is not None)
        if len(shape) != len(self.shape):
            raise ValueError(f"input {self.name!r} has a dynamic shape {self.shape}")
        if self.dtype.startswith(("int", "uint", "bool")):
            return rng.integers(self.low, self.high, size=shape).astype(self.dtype)
        return rng.standard_normal(shape).astype(self.dtype)


@dataclasses.dataclass(frozen=True)
class ImportedModel:
    """A model in the representation of the compiler in use.

    Attributes:
        name, source: where it comes from.
        mod: `tvm.IRModule` with a typed `main`.
        params: weights by the name of the parameter of ``main`` that each is.
        inputs: the remaining parameters of `main`, in order.
        batch_size: the batch size that the shapes of `inputs` were made with.
        notes: what the user should know, e.g. that the weights are random.
        content: fingerprint of what was lowered, see `Frontend.fingerprint`; empty for a model that no source made.
    """

    name: str
    source: str
    mod: IRModule
    params: dict[str, DeviceArray]
    inputs: tuple[InputSpec, ...]
    batch_size: int = 1
    notes: tuple[str, ...] = ()
    content: str = ""
