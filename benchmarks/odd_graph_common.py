"""The model of one drawn operator of ONNX while it is being made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

FEWEST_ELEMENTS, MOST_ELEMENTS = 1e2, 1e7
_BATCHES = (1, 8, 32)
_OPSET, _IR = 17, 8
_PARTS = (1, 1, 2, 3, 5, 7, 8, 13, 16, 31, 32, 64, 77, 96, 128, 197, 256, 512, 1000)


class Graph:
    """A model that is being drawn.

    Attributes:
        rng: of everything that is drawn.
        dtype: of floating-point tensors.
        batch: of inputs with a batch.
        elements: of the largest input, roughly.
        told: the words after the operator in its name.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.dtype = "float16" if self.rng.random() < 0.1 else "float32"
        self.batch = int(self.rng.choice(_BATCHES))
        self.elements = 10.0 ** self.rng.uniform(math.log10(FEWEST_ELEMENTS), math.log10(MOST_ELEMENTS))
        self.opset = _OPSET
        self.told: list[str] = []
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._constants: list[Any] = []

    def one_of(self, *values: Any) -> Any:
        """One of several values, each as likely as the others."""
        return values[int(self.rng.integers(len(values)))]

    def between(self, low: float, high: float) -> int:
        """A whole number, log-uniform."""
        return round(math.exp(self.rng.uniform(math.log(low), math.log(high))))

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def axis(self, shape: Sequence[int]) -> int:
        """An axis of a tensor."""
        return int(self.rng.integers(len(shape)))

    def shape(self, rank: int | None = None) -> list[int]:
        """About `elements` of them, the batch first where there is more than one axis."""
        rank = rank or self.one_of(1, 2, 3, 3, 4, 4)
        if rank == 1:
            return [max(round(self.elements), 1)]
        left, sizes = max(self.elements / self.batch, 1.0), []
        for _ in range(rank - 2):
            size = min(self.one_of(*_PARTS), max(round(left), 1))
            sizes.append(size)
            left = max(left / size, 1.0)
        sizes.append(max(round(left), 1))
        return [self.batch, *(sizes[place] for place in self.rng.permutation(len(sizes)))]

    def image(self, axes: int = 2) -> list[int]:
        """[batch, channels, sizes ...], with as many sizes as axes."""
        left = max(self.elements / self.batch, 1.0)
        channels = min(self.one_of(1, 2, 3, 3, 8, 16, 32, 48, 64, 96, 128, 256), max(round(left / 4), 1))
        size = max(round((left / channels) ** (1 / axes)), 1)
        return [self.batch, channels, *[size] * axes]

    def input(self, shape: Sequence[int], dtype: str | None = None) -> str:
        from onnx import helper

        name = f"x{len(self._inputs)}"
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype or self.dtype))
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def constant(self, value: Any, dtype: str | None = None) -> str:
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype or self.dtype), name))
        return name

    def weight(self, *shape: int) -> str:
        return self.constant(self.rng.standard_normal(shape))

    def node(self, operator: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> None:
        """The operator; attributes that are no long lists stand in its name."""
        from onnx import helper

        self.told += [f"{name}={value}" for name, value in attributes.items()]
        self._nodes.append(helper.make_node(operator, list(inputs), [f"y{n}" for n in range(outputs)], **attributes))

    def model(self) -> Any:
        """As ``onnx.ModelProto``.

        Raises:
            ValueError, onnx errors: sizes that do not go together.
        """
        from onnx import helper, shape_inference

        outputs = [helper.make_empty_tensor_value_info(name) for name in self._nodes[-1].output]
        graph = helper.make_graph(self._nodes, "drawn", self._inputs, outputs, self._constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=_IR)
        known = {one.name: one for one in shape_inference.infer_shapes(made, strict_mode=True).graph.output}
        for output in made.graph.output:
            output.CopyFrom(known[output.name])
        return made

    def shapes(self) -> str:
        """Of the inputs, in words."""
        kinds = [one.type.tensor_type for one in self._inputs]
        return " ".join("x".join(str(size.dim_value) for size in kind.shape.dim) for kind in kinds)
