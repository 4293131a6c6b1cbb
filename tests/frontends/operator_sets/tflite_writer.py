"""Writing a .tflite file of one operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Scales and zero points: one of each, or a scale for every channel along `axis`."""

    scale: tuple[float, ...]
    zero_point: int = 0
    axis: int = 0


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One tensor of a graph.

    Attributes:
        value: of a constant; None of an input or an output.
    """

    shape: tuple[int, ...]
    kind: str
    value: Any = None
    quantization: Quantization | None = None


def write(operator: str, options: str, fields: Mapping[str, Any], inputs: Sequence[TensorSpec | None],
          outputs: Sequence[TensorSpec]) -> bytes:  # fmt: skip
    """The content of a file.

    Args:
        operator: name of the builtin; another name is that of a custom operator.
        options: name of the table of its options; empty for none.
        fields: of that table.
        inputs: of the operator; those without a value are the inputs of the model; None where one is left out.
    """
    return bytes(_Writer().model(operator, options, fields, inputs, outputs))


class _Writer:
    def __init__(self) -> None:
        import flatbuffers

        self._made = flatbuffers.Builder(1024)

    def model(self, operator: str, options: str, fields: Mapping[str, Any], inputs: Sequence[TensorSpec | None],
              outputs: Sequence[TensorSpec]) -> Any:  # fmt: skip
        import tflite

        tensors = [one for one in inputs if one is not None] + list(outputs)
        buffers = [self._table("Buffer")]
        numbers = []
        for place, one in enumerate(tensors):
            buffer = 0
            if one.value is not None:
                data = self._made.CreateNumpyVector(np.frombuffer(np.asarray(one.value, one.kind).tobytes(), "uint8"))
                buffer = len(buffers)
                buffers.append(self._table("Buffer", Data=data))
            numbers.append(
                self._tensor(one, f"{'input' if place < len(tensors) - len(outputs) else 'output'}_{place}", buffer)
            )
        places = iter(range(len(tensors)))
        taken = [-1 if one is None else next(places) for one in inputs]
        made = list(places)
        given = [place for place, one in zip(taken, inputs, strict=True) if one is not None and one.value is None]
        about: dict[str, Any] = {}
        if options:
            about["BuiltinOptions"] = self._table(
                options, **{name: self._field(value) for name, value in fields.items()}
            )
            about["BuiltinOptionsType"] = getattr(tflite.BuiltinOptions, options)
        node = self._table(
            "Operator", OpcodeIndex=0, Inputs=self._integers(taken), Outputs=self._integers(made), **about
        )
        graph = self._table(
            "SubGraph",
            Tensors=self._tables(numbers),
            Inputs=self._integers(given),
            Outputs=self._integers(made),
            Operators=self._tables([node]),
        )
        code = getattr(tflite.BuiltinOperator, operator, tflite.BuiltinOperator.CUSTOM)
        name = {"CustomCode": self._made.CreateString(operator)} if code == tflite.BuiltinOperator.CUSTOM else {}
        kinds = {"DeprecatedBuiltinCode": min(code, 127), "BuiltinCode": code}
        codes = [self._table("OperatorCode", **kinds, **name, Version=1)]
        self._made.Finish(
            self._table(
                "Model",
                Version=3,
                OperatorCodes=self._tables(codes),
                Subgraphs=self._tables([graph]),
                Buffers=self._tables(buffers),
            ),
            b"TFL3",
        )
        return self._made.Output()

    def _tensor(self, one: TensorSpec, name: str, buffer: int) -> int:
        import tflite

        about: dict[str, Any] = {}
        if one.quantization is not None:
            scale = self._made.CreateNumpyVector(np.array(one.quantization.scale, "float32"))
            zeros = np.full(len(one.quantization.scale), one.quantization.zero_point, "int64")
            zero_point = self._made.CreateNumpyVector(zeros)
            about["Quantization"] = self._table(
                "QuantizationParameters", Scale=scale, ZeroPoint=zero_point, QuantizedDimension=one.quantization.axis
            )
        kind = getattr(tflite.TensorType, one.kind.upper())
        text = self._made.CreateString(name)
        return self._table("Tensor", Shape=self._integers(one.shape), Type=kind, Buffer=buffer, Name=text, **about)

    def _field(self, value: Any) -> Any:
        return self._integers(value) if isinstance(value, list) else value

    def _integers(self, values: Sequence[int]) -> int:
        return int(self._made.CreateNumpyVector(np.array(values, "int32")))

    def _tables(self, offsets: Sequence[int]) -> int:
        self._made.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._made.PrependUOffsetTRelative(offset)
        return int(self._made.EndVector())

    def _table(self, kind: str, **fields: Any) -> int:
        import importlib

        module = importlib.import_module(f"tflite.{kind}")
        getattr(module, f"{kind}Start")(self._made)
        for name, value in fields.items():
            getattr(module, f"{kind}Add{name}")(self._made, value)
        return int(getattr(module, f"{kind}End")(self._made))
