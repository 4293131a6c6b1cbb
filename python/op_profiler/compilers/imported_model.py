"""An imported model: its module, its inputs, and the reference in its own framework."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from op_profiler.compilers.pipelines import DEFAULT_PIPELINE
from op_profiler.json_text import brief

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.compilers.tvm_types import DeviceArray, IRModule


NOT_ASKED = "not requested (--check-outputs never)"
OF_COMPARED_KINDS = "all kinds of its nodes are in models that were compared in the same call"

Form = Literal["onnx", "torchscript", "tflite", "pt2"]
"""File format of a model that other runtimes read."""


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """One input of a model: random values are drawn uniformly from [low, high) (integers) or from a standard normal
    (floats).

    Attributes:
        name: name of the parameter of ``main``.
        shape: sizes; None is a dimension that is known only at run time (vm executor).
        dtype: numpy dtype name.
        low, high: range of integer inputs; `high` is the vocabulary size for token ids.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: str = "float32"
    low: int = 0
    high: int = 2

    def random(self, rng: np.random.Generator) -> np.ndarray:
        """Return random values of this input's shape and dtype; raise ValueError if the shape is not static."""
        shape = tuple(d for d in self.shape if d is not None)
        if len(shape) != len(self.shape):
            raise ValueError(f"input {self.name!r} has a dynamic shape {self.shape}")
        if self.dtype.startswith(("int", "uint", "bool")):
            return rng.integers(self.low, self.high, size=shape).astype(self.dtype)
        return rng.standard_normal(shape).astype(self.dtype)


class FrameworkReference(abc.ABC):
    """The original of an imported model in its own framework; the imported model's outputs are compared with it.

    Attributes:
        framework: name and version, such as ``torch 2.13.0``.
        inputs: inputs of the framework's model; an importer may drop or rename some.
        kinds: kinds of its nodes, with everything that decides how an importer reads them; empty if unknown.
        doubts: lines of the user's code that the framework could record for the example inputs only.
    """

    framework: str
    inputs: tuple[InputSpec, ...]
    kinds: frozenset[str] = frozenset()
    doubts: Sequence[str] = ()

    def names_of(self, inputs: Sequence[InputSpec]) -> dict[str, str]:
        """Return a dict from the name of each input in the imported model to its name in the framework's model, because
        importers may change the spelling.

        Args:
            inputs: inputs of the imported model.

        Raises:
            NoReference: an input has no counterpart in the framework's model.
        """
        theirs = [spec.name for spec in self.inputs]
        names = {}
        for place, spec in enumerate(inputs):
            known = [name for name in (spec.name, spec.name.removesuffix("_input")) if name in theirs]
            if not known and len(theirs) != len(inputs):
                raise NoReference(f"its input {spec.name} has no counterpart among {', '.join(theirs) or 'no inputs'}")
            names[spec.name] = known[0] if known else theirs[place]
        return names

    @abc.abstractmethod
    def outputs(self, batches: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Run the framework's model and return all its outputs for each batch.

        Args:
            batches: arrays by the names of the attribute `inputs`. The second half repeats the first half with the last
                digit changed; a framework may also round differently while it runs the second half.

        Raises:
            NoReference: the framework does not run the model; the message has the reason.
        """

    def write(self, form: Form, folder: Path, inputs: Sequence[np.ndarray]) -> Path:
        """Write the model to a file for other runtimes; return the path of the file.

        Args:
            folder: folder for the file; not used if the model already is a file of this form.
            inputs: example arrays for tracing, in the order of the attribute `inputs`.

        Raises:
            NoReference: a model of this framework has no such form.
        """
        raise NoReference(f"there is no {form} form of a model of {self.framework.partition(' ')[0]}")

    def opened(self, batches: Sequence[Mapping[str, np.ndarray]]) -> Opened | None:
        """Return the model with the values of its nodes as outputs; None if the form of the framework's model does not
        allow this.

        Args:
            batches: as for `outputs`.

        Raises:
            OpProfilerError: the model with these outputs cannot be imported.
        """
        return None


class NoReference(Exception):
    """Raised if there is no reference to compare a model with; the message is the reason, without a full stop."""


@dataclasses.dataclass(frozen=True)
class Opened:
    """A model whose outputs are the values of its nodes.

    Attributes:
        model: the model from the importer.
        nodes: the framework's name of the node of each output, in execution order.
        outputs: outputs of the framework's model for each batch of inputs.
    """

    model: ImportedModel
    nodes: tuple[str, ...]
    outputs: list[list[np.ndarray]]


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Result of comparing an imported model's outputs with those of its own framework.

    Attributes:
        outputs_agree: whether the outputs agree; None if they were not compared.
        outputs_error: the largest relative error of an output; for integers, the share that differs.
        outputs_reference: name and version of the framework, or why the outputs were not compared.
    """

    outputs_agree: bool | None = None
    outputs_error: float | None = None
    outputs_reference: str = NOT_ASKED

    def __str__(self) -> str:
        if self.outputs_agree is None:
            return f"outputs not compared: {self.outputs_reference}"
        verb = "agree with" if self.outputs_agree else "differ from"
        return f"outputs {verb} {self.outputs_reference} (largest error {self.outputs_error or 0.0:.1e})"


@dataclasses.dataclass(frozen=True)
class ImportedModel:
    """A model in the representation of the compiler in use.

    Attributes:
        name, source: name of the model and of its source.
        mod: `tvm.IRModule` with a typed `main`.
        params: weights by the name of their parameter of ``main``.
        inputs: the remaining parameters of `main`, in order.
        batch_size: the batch size that the shapes of `inputs` were made with.
        notes: notes for the user, e.g. that the weights are random.
        content: fingerprint of the lowered model, see `Frontend.fingerprint`; empty for a model without a source.
        content_is_source: whether equal `content` means an equal source. False if `Frontend.fingerprint` returns None,
            as for a Python function of the user: `content` is then computed from the lowered model only.
        reference: the model in its own framework; None if no framework runs it, or if it comes from the cache.
        agreement: result of the comparison with `reference`, once it was made.
        pipeline: pipeline that lowers the model, see `op_profiler.compilers.pipelines`.
    """

    name: str
    source: str
    mod: IRModule
    params: dict[str, DeviceArray]
    inputs: tuple[InputSpec, ...]
    batch_size: int = 1
    notes: tuple[str, ...] = ()
    content: str = ""
    content_is_source: bool = True
    reference: FrameworkReference | None = None
    agreement: Agreement = Agreement()
    pipeline: str = DEFAULT_PIPELINE

    __repr__ = brief
