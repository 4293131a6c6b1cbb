"""Resize of ONNX by scales that leave a fraction of an element: TVM computes places from the rounded sizes instead."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.frontends.importers.onnx_graph import attribute
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_BY_SCALE = (b"half_pixel", b"half_pixel_symmetric", b"pytorch_half_pixel", b"asymmetric")
"""Transformations of coordinates that read the scale."""


class FractionalScales(Rewriting):
    """Of one model that Relay imports."""

    def spell_out(self) -> None:
        """Write each such Resize as a weighted sum of elements, axis by axis.

        Raises:
            ModelError: a node interpolates numbers that are not floating-point.
        """
        self.rewrite({"Resize": self._resize})

    def _resize(self, graph: Any, node: Any) -> list[Any]:
        transformation = attribute(node, "coordinate_transformation_mode", b"half_pixel")
        scales = self.constants.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        dims = self.sizes.get(node.input[0], ())
        if transformation not in _BY_SCALE or scales is None or len(scales) != len(dims) or None in dims:
            return [node]
        sizes = [int(np.floor(size * scale)) for size, scale in zip(dims, scales, strict=True)]
        if all(size * scale == made for size, scale, made in zip(dims, scales, sizes, strict=True)):
            return [node]
        kind = self.kind_of(node.input[0])
        if attribute(node, "mode", b"nearest") != b"nearest" and not kind.startswith("float"):
            raise self.refused(node, "interpolates whole numbers by a fractional scale; cast its input to float32")
        writer = NodeWriter(graph, node, self.opset, kind)
        data = node.input[0]
        for axis, (size, scale, made) in enumerate(zip(dims, scales, sizes, strict=True)):
            if scale != 1:
                data = _resized(writer, data, axis, len(dims), _taps(node, size, scale, made))
        writer.add("Identity", data, output=node.output[0])
        return writer.nodes


def _resized(writer: NodeWriter, data: str, axis: int, rank: int, taps: list[tuple[Any, Any]]) -> str:
    """A tensor whose elements along an axis are the sum of others with weights.

    Args:
        taps: indices, and weights of the elements there or None, each of one element of the result.
    """
    total = ""
    for indices, weights in taps:
        part = writer.take(data, indices, axis)
        if weights is not None:
            part = writer.add("Mul", part, writer.constant(weights.reshape(-1, *[1] * (rank - axis - 1))))
        total = writer.add("Add", total, part) if total else part
    return total


def _taps(node: Any, size: int, scale: Any, made: int) -> list[tuple[Any, Any]]:
    """Indices and weights along one axis."""
    mode = attribute(node, "mode", b"nearest")
    places = _places(attribute(node, "coordinate_transformation_mode", b"half_pixel"), size, scale, made)
    if mode == b"nearest":
        rounding = attribute(node, "nearest_mode", b"round_prefer_floor")
        half = np.float32(0.5)
        rounded = {
            b"round_prefer_floor": np.ceil(places - half),
            b"round_prefer_ceil": np.floor(places + half),
            b"floor": np.floor(places),
            b"ceil": np.ceil(places),
        }[rounding]
        return [(rounded.clip(0, size - 1).astype("int64"), None)]
    first = np.floor(places)
    part = places - first
    if mode == b"linear":
        steps, weights = [0, 1], [1 - part, part]
    else:
        a = np.float32(attribute(node, "cubic_coeff_a", -0.75))
        steps, weights = [-1, 0, 1, 2], [_cubic(part + 1, a), _cubic(part, a), _cubic(1 - part, a), _cubic(2 - part, a)]
    indices = [first + step for step in steps]
    if mode == b"cubic" and attribute(node, "exclude_outside", 0):
        weights = [np.where((at < 0) | (at >= size), 0, weight) for at, weight in zip(indices, weights, strict=True)]
        weights = [weight / sum(weights) for weight in weights]
    inside = [at.clip(0, size - 1).astype("int64") for at in indices]
    return list(zip(inside, weights, strict=True))


def _places(transformation: bytes, size: int, scale: Any, made: int) -> Any:
    """Where in the data each element of the result lies. In float32, as onnxruntime computes it."""
    at, half, step = np.arange(made, dtype="float32"), np.float32(0.5), np.float32(scale)
    if transformation == b"asymmetric":
        return at / step
    if transformation == b"pytorch_half_pixel" and made == 1:
        return np.zeros(1, "float32")
    places = (at + half) / step - half
    if transformation == b"half_pixel_symmetric":
        places += np.float32(size) / 2 * (1 - np.float32(made) / (step * np.float32(size)))
    return places


def _cubic(distance: Any, a: Any) -> Any:
    """Weight of an element at a distance of 0 to 2 (Keys, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return (distance <= 1) * near + (distance > 1) * far
