"""Cases of TFLite's builtin operators: float, and quantized where that is usual."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .case import Case
from .tensors import Tensor, Value
from .tflite_builtin import Builtin
from .tflite_values import BUILTINS
from .tflite_writer import Quantization, TensorSpec, write

_SCALE = 0.05  # of quantized inputs, whose numbers are those of a normal distribution
_ZERO = {"int8": 3, "uint8": 131}
_SHIFT = {"int8": 0, "uint8": 128}


def cases() -> Iterator[Case]:
    """All of them, by the name of the operator."""
    for name, builtin in BUILTINS.items():
        variants = {"base": builtin, **{label: _changed(builtin, changes) for label, changes in builtin.also.items()}}
        for kind in ("", *builtin.quantized):
            for label, one in variants.items():
                first = next((given for given in one.inputs if given is not None and _is_float(given)), None)
                if not kind or first is not None:
                    yield _case(name, f"{label} {kind}".strip(), one, kind)
            if kind == "int8" and builtin.weights is not None:
                yield _case(name, "int8, scales by channel", builtin, kind, by_channel=True)


def _changed(builtin: Builtin, changes: Mapping[str, Any]) -> Builtin:
    own = {name: value for name, value in changes.items() if name in ("inputs", "outputs")}
    fields = {name: value for name, value in changes.items() if name not in own}
    return dataclasses.replace(builtin, fields={**builtin.fields, **fields}, **own)


def _is_float(given: Tensor | Value) -> bool:
    return given.kind == "float32"


def _case(operator: str, what: str, builtin: Builtin, kind: str, by_channel: bool = False) -> Case:
    seed = zlib.crc32(f"{operator}: {what}".encode())
    made = functools.cache(lambda: _Made(operator, builtin, kind, by_channel, np.random.default_rng(seed)).file())
    return Case(
        framework="tflite",
        operator=operator,
        what=what,
        load=lambda: (_load(made()[0]), made()[1]),
        expected=lambda: _run(*made()),
        rounding=1 if kind or operator == "QUANTIZE" else 0,
    )


class _Made:
    """The file of a case, and its inputs."""

    def __init__(self, operator: str, builtin: Builtin, kind: str, by_channel: bool, rng: np.random.Generator) -> None:
        self.operator, self.builtin, self.kind, self.by_channel = operator, builtin, kind, by_channel
        self.floats = [None if given is None else given.array(rng) for given in builtin.inputs]

    def file(self) -> tuple[bytes, dict[str, Any]]:
        """The content, and the inputs by their names."""
        outputs = self._outputs(None)
        shapes = [one.shape for one in _run(*self._written(self._plain(), outputs))]
        floats = None
        if self.kind:
            floats = [np.asarray(one, "float64") for one in _run(*self._written(self._plain(), outputs))]
        inputs = self._quantized() if self.kind else self._plain()
        outputs = self._outputs(floats)
        whole = [dataclasses.replace(one, shape=shape) for one, shape in zip(outputs, shapes, strict=True)]
        return self._written(inputs, whole)

    def _plain(self) -> list[tuple[TensorSpec, Any] | None]:
        return [self._spec(given, array, None) for given, array in zip(self.builtin.inputs, self.floats, strict=True)]

    def _quantized(self) -> list[tuple[TensorSpec, Any] | None]:
        found: list[tuple[TensorSpec, Any] | None] = []
        weights = self.builtin.weights
        for place, (given, array) in enumerate(zip(self.builtin.inputs, self.floats, strict=True)):
            if given is None or not _is_float(given):
                found.append(self._spec(given, array, None))
            elif weights is not None and place == 1 and given.constant:
                found.append(self._weights(given, array))
            elif weights is not None and place == 2:
                one = found[1]
                assert array is not None and one is not None and one[0].quantization is not None
                scale = tuple(_SCALE * float(s) for s in one[0].quantization.scale)
                bias = np.round(array / np.array(scale)).astype("int32")
                found.append((TensorSpec(array.shape, "int32", bias, Quantization(scale)), bias))
            else:
                found.append(self._spec(given, array, Quantization((_SCALE,), _ZERO[self.kind])))
        return found

    def _weights(self, given: Tensor | Value, array: Any) -> tuple[TensorSpec, Any]:
        axis = self.builtin.weights or 0
        if not self.by_channel:
            return self._spec(given, array, Quantization((_SCALE,), _SHIFT[self.kind])) or (TensorSpec((), ""), None)
        others = tuple(one for one in range(array.ndim) if one != axis)
        scale = np.abs(array).max(axis=others, keepdims=True) / 127
        values = np.round(array / scale).astype("int8")
        spec = TensorSpec(array.shape, "int8", values, Quantization(tuple(scale.reshape(-1).tolist()), 0, axis))
        return spec, values

    def _spec(
        self, given: Tensor | Value | None, array: Any, quantization: Quantization | None
    ) -> tuple[TensorSpec, Any] | None:
        if given is None:
            return None
        kind = given.kind
        if self.operator == "DEQUANTIZE":
            quantization = Quantization((_SCALE,), 3)
        elif quantization is not None:
            kind = self.kind
            limits = np.iinfo(kind)
            counted = np.round(array / quantization.scale[0]) + quantization.zero_point
            array = np.clip(counted, limits.min, limits.max).astype(kind)
        return TensorSpec(array.shape, kind, array if given.constant else None, quantization), array

    def _outputs(self, floats: Sequence[Any] | None) -> list[TensorSpec]:
        """Args:
        floats: what comes out as floats, which the scales are chosen for; None for a model of floats.
        """
        data = next(
            one for one in self.builtin.inputs if one is not None and (not one.constant or len(self.builtin.inputs) > 2)
        )
        kinds = self.builtin.outputs or (
            next((g.kind for g in self.builtin.inputs if g is not None and not g.constant), data.kind),
        )
        specs = []
        for place, kind in enumerate(kinds):
            quantization = None
            if self.operator == "QUANTIZE":
                quantization = Quantization((0.03,), _ZERO[kind])
            elif floats is not None and kind == "float32":
                kind = self.kind
                quantization = self._output_scale(floats[place])
            specs.append(TensorSpec((), kind, None, quantization))
        return specs

    def _output_scale(self, made: Any) -> Quantization:
        if self.builtin.same_scale:
            return Quantization((_SCALE,), _ZERO[self.kind])
        if self.builtin.scale is not None:
            scale, zero = self.builtin.scale
            return Quantization((scale,), zero + _SHIFT[self.kind])
        return Quantization((float(max(np.abs(made).max(), 0.1) / 120),), _SHIFT[self.kind] + 2)

    def _written(
        self, inputs: Sequence[tuple[TensorSpec, Any] | None], outputs: Sequence[TensorSpec]
    ) -> tuple[bytes, dict[str, Any]]:
        specs = [None if one is None else one[0] for one in inputs]
        content = write(self.operator, self.builtin.options, self.builtin.fields, specs, outputs)
        places = iter(range(len(specs)))
        named = [(next(places), *one) for one in inputs if one is not None]
        return content, {f"input_{place}": array for place, spec, array in named if spec.value is None}


def _load(content: bytes) -> Any:
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tflite")
        path.write_bytes(content)
        return FRONTENDS.get("file").load(ModelRequest(source="file", name=str(path)))


def _run(content: bytes, arrays: Mapping[str, Any]) -> list[Any]:
    """What LiteRT computes."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    plain = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=content, experimental_op_resolver_type=plain)
    interpreter.allocate_tensors()
    for about in interpreter.get_input_details():
        interpreter.set_tensor(about["index"], arrays[about["name"]])
    interpreter.invoke()
    return [interpreter.get_tensor(about["index"]).copy() for about in interpreter.get_output_details()]
