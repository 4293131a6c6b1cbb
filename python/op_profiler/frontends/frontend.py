"""The contract of a model source.

A frontend is stateless: `names`, `default_names` and `check` import nothing heavy and return within a second, so that a
wrong name is rejected before TVM or torch is loaded. `load` may take minutes and returns an `ImportedModel` that the
caller owns; it must be deterministic (fixed seeds), so that the same request always gives the same operators.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from op_profiler.errors import UsageError
from op_profiler.option_values import or_nothing, parse_input_shapes, parse_names
from op_profiler.options import MODEL, Option

if TYPE_CHECKING:
    from op_profiler.compilers.imported_model import ImportedModel

AUTO = "auto"
"""Value of `ModelRequest.importer` with which the compiler chooses the importer."""


InputShapes = Mapping[str, tuple[int, ...]] | tuple[tuple[int, ...], ...]


def inputs_of(names: tuple[str, ...], shapes: InputShapes) -> dict[str, Any]:
    """Return the fields `input_names` and `input_shapes` of `ModelRequest`.

    Args:
        names: names of the inputs; empty if the user gave none.
        shapes: shapes in the order of `names`, or a dict of shapes by name.

    Raises:
        UsageError: names are given with shapes that already have names.
    """
    if not isinstance(shapes, Mapping):
        return {"input_names": names, "input_shapes": shapes}
    if names:
        raise UsageError(f"--inputshape has the names {', '.join(shapes)}; leave out --inputname")
    return {"input_names": tuple(shapes), "input_shapes": tuple(map(tuple, shapes.values()))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """The model that a user requested, with the shapes of its inputs.

    Attributes:
        name: name of a model of the source, a path, or a URL.
        past: for a step of a decoder with `sequence_length` tokens: number of earlier tokens in its cache (0: a
            prefill); None for a model as a whole.
    """

    source: Annotated[
        str, Option("Source of a model given by its name only: {frontends}.", MODEL, name="modelsource")
    ] = "local"
    name: str = ""
    batch_size: Annotated[
        int, Option("Batch size: leading dimension of the inputs.", MODEL, flags=("--batchsize",))
    ] = 1
    input_names: Annotated[
        tuple[str, ...],
        Option(
            "Names of the inputs that --inputshape describes, separated by commas. "
            "Default: the inputs in the model's order.",
            MODEL,
            flags=("--inputname",),
            parse=or_nothing(parse_names),
            shown="",
        ),
    ] = ()
    input_shapes: Annotated[
        tuple[tuple[int, ...], ...],
        Option(
            "Shapes of the inputs, such as 1,3,224,224. Separate several inputs by semicolons. Either all shapes or "
            "none have a name, as in a:1,64;b:1,10. A name without a shape is a scalar, such as b in 'a:1,64;b:'.",
            MODEL,
            flags=("--inputshape",),
            parse=parse_input_shapes,
            shown="",
        ),
    ] = ()
    sequence_length: Annotated[int | None, Option("Tokens per sequence, for language models.", MODEL, least=1)] = None
    past: int | None = None
    importer: Annotated[
        str,
        Option(
            "Importer of the model. With --compiler relay: auto. With --compiler relax: relay, relax (models of torch, "
            "ONNX and TFLite), or auto, which tries relay first and falls back to relax.",
            MODEL,
        ),
    ] = AUTO

    @classmethod
    def of_options(
        cls, *, input_names: tuple[str, ...] = (), input_shapes: InputShapes = (), **fields: Any
    ) -> ModelRequest:
        """Return a request; names and shapes may be given in each form that `inputs_of` accepts."""
        return cls(**inputs_of(input_names, input_shapes), **fields)

    @property
    def title(self) -> str:
        """Name of the model; for a step of a decoder, followed by the kind of step and its numbers of tokens."""
        if self.past is None:
            return self.name
        step = f"decode {self.sequence_length} after {self.past}" if self.past else f"prefill {self.sequence_length}"
        return f"{self.name} ({step})"


class Frontend(abc.ABC):
    """One source of models. Subclasses are registered by name in `op_profiler.frontends`."""

    source: ClassVar[str]
    steps_of: ClassVar[str] = ""
    """One sentence about the models whose decoder steps can be measured; empty if the source has no such models."""
    has_precisions: ClassVar[bool] = False
    """Whether each model already has the requested precision, so that it is not converted."""

    @abc.abstractmethod
    def names(self) -> list[str]:
        """Return the names of all models that `load` can load on this machine, sorted; empty if the models of the
        source are given by path only."""

    def default_names(self) -> list[str]:
        """Return the names of the models that are collected if the user gives none; empty if all need a name."""
        return []

    def takes_sequence_length(self, name: str) -> bool:
        """Return, without loading the model, whether the shapes of the model's inputs depend on a number of tokens."""
        return False

    def takes_past(self, name: str) -> bool:
        """Return, without loading the model, whether its decoder steps can be measured with cached earlier tokens."""
        return False

    def has_framework(self, request: ModelRequest) -> bool:
        """Return whether a framework can run the original of the model, so that outputs can be compared."""
        return True

    def check(self, request: ModelRequest) -> None:
        """Check a request without loading the model.

        Raises:
            UsageError: the name is empty, an option is out of range, or the request has an input, a sequence length or
                a decoder step that the model does not have.
            UnknownNameError: there is no such model; the message lists similar names.
            MissingPackageError: the package that the model needs is not installed.
            ModelError: the file is missing, empty or of an unknown kind.
        """
        if not request.name.strip():
            raise UsageError(f"the model's name is empty; give one of the source {self.source!r}, or a path")
        if request.batch_size < 1:
            raise UsageError(f"--batchsize {request.batch_size} is out of range; give 1 or more")
        if request.past is not None and not self.takes_past(request.name):
            raise UsageError(f"{request.name} has no steps; leave out --prefill and --decode. {self.steps_of}".strip())
        self._check(request)
        if request.sequence_length is not None:
            if request.sequence_length < 1:
                raise UsageError(f"--sequence-length {request.sequence_length} is out of range; give 1 or more")
            if not self.takes_sequence_length(request.name):
                raise UsageError(f"{request.name} has no sequence; leave out --sequence-length")

    @abc.abstractmethod
    def _check(self, request: ModelRequest) -> None:
        """The part of `check` that depends on the source."""

    @abc.abstractmethod
    def fingerprint(self, request: ModelRequest) -> str | None:
        """Return a hash of everything that determines the lowered module: content of files, versions of packages, the
        request.

        Two requests with the same fingerprint lower to the same operators. The hash is computed without lowering. It is
        None if the model must be lowered to identify it, for example a Python function of the user, which may read and
        import anything.
        """

    @abc.abstractmethod
    def load(self, request: ModelRequest) -> ImportedModel:
        """Import the model into the representation of the compiler in use.

        Raises:
            ModelError: the model cannot be read, or one of its operators is not supported; the message names the
                operator.
        """
