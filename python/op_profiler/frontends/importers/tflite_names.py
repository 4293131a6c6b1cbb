"""Readers of TFLite files that give every tensor a unique name. The readers need the package tflite.

TFLite identifies tensors by number and needs no names; TVM's importers identify them by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite
from tflite.BuiltinOperator import BuiltinOperator


class NamedModel(tflite.Model):
    """A TFLite model whose subgraphs are `NamedGraph`s.

    Attributes:
        outputs: numbers of the output tensors; None: the outputs of the file.
    """

    __slots__ = ("outputs",)

    def Subgraphs(self, j: int) -> Any:  # noqa: N802 - the library's name
        """Return subgraph `j` with unique tensor names and the outputs of this model."""
        graph = _as(NamedGraph(), super().Subgraphs(j))
        graph.outputs = getattr(self, "outputs", None)
        return graph


class NamedGraph(tflite.SubGraph):
    """A graph whose tensors are `NamedTensor`s.

    Attributes:
        names: names of the tensors by their numbers; each name occurs once.
        outputs: as in `NamedModel`.
    """

    __slots__ = ("names", "outputs")

    def Init(self, buf: Any, pos: int) -> None:  # noqa: N802
        """Give each tensor without a name, or with a repeated one, a unique name."""
        super().Init(buf, pos)
        given = [super(NamedGraph, self).Tensors(number).Name() for number in range(self.TensorsLength())]
        inputs = {self.Inputs(place): f"input_{place}" for place in range(self.InputsLength())}
        taken = {*given}
        self.names: list[bytes] = []
        seen: set[bytes] = set()
        for number, name in enumerate(given):
            if not name or name in seen:
                name = inputs.get(number, f"tensor_{number}").encode()
                while name in taken:
                    name += b"_"
                taken.add(name)
            self.names.append(name)
            seen.add(name)

    def OutputsAsNumpy(self) -> Any:  # noqa: N802
        """Return the numbers of the output tensors, int32."""
        return super().OutputsAsNumpy() if self.outputs is None else np.array(self.outputs, "int32")

    def Tensors(self, j: int) -> Any:  # noqa: N802
        """Return tensor `j` with its unique name."""
        tensor = NamedTensor()
        tensor.own_name = self.names[j]
        return _as(tensor, super().Tensors(j))


class NamedTensor(tflite.Tensor):
    """A tensor with a unique name; a scalar that was stored without a shape gets an empty shape."""

    __slots__ = ("own_name",)

    def Name(self) -> bytes:  # noqa: N802
        """Return the unique name, as bytes."""
        return self.own_name

    def ShapeAsNumpy(self) -> Any:  # noqa: N802
        """Return the sizes, int32; an empty array for a scalar."""
        return np.zeros(0, "int32") if self.ShapeIsNone() else super().ShapeAsNumpy()


def read(content: bytes) -> NamedModel:
    """Return the model in the content of a file."""
    model: NamedModel = _as(NamedModel(), tflite.Model.GetRootAs(content))
    return model


def options_of(op: Any, kind: str) -> Any:
    """Return the options of an operator, as an object of the class of the package tflite with the name `kind`."""
    options, table = getattr(tflite, kind)(), op.BuiltinOptions()
    options.Init(table.Bytes, table.Pos)
    return options


def _as(one: Any, found: Any) -> Any:
    """Return what a reader of the library found as an object of another reader class."""
    one.Init(found._tab.Bytes, found._tab.Pos)
    return one


def custom_name(model: Any, op: Any) -> str | None:
    """Return the name of a custom operator that no importer supports, for error messages; None for other operators."""
    code = model.OperatorCodes(op.OpcodeIndex())
    custom = code.CustomCode()
    is_custom = BuiltinOperator.CUSTOM in (code.BuiltinCode(), code.DeprecatedBuiltinCode())
    if not is_custom or not custom or custom == b"TFLite_Detection_PostProcess":
        return None
    return str(custom.decode(errors="replace"))
