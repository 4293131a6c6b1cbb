"""Rewrites two forms of ONNX's Resize: by a scale that does not give a whole size, for which TVM computes another scale
from the rounded size, and with antialiasing, which TVM ignores."""

from __future__ import annotations

from typing import Any

import numpy as np

from op_profiler.frontends.importers.onnx_graph import attribute, set_attributes
from op_profiler.frontends.importers.onnx_nodes import NodeWriter
from op_profiler.frontends.importers.onnx_rewriting import Rewriting

_BY_SCALE = (b"half_pixel", b"half_pixel_symmetric", b"pytorch_half_pixel", b"asymmetric")
"""Coordinate transformations that use the scale."""


class FractionalScales(Rewriting):
    """Rewrites the Resize nodes of one model, for Relay's importer."""

    def spell_out(self) -> None:
        """Write each Resize with a fractional scale or antialiasing as weighted sums, axis by axis.

        Raises:
            ModelError: a node interpolates numbers that are not floating-point.
        """
        self.rewrite({"Resize": self._resize})

    def _resize(self, graph: Any, node: Any) -> list[Any]:
        if self.opset >= 11:
            return self._summed(graph, node)
        # as onnxruntime has it; before opset 11 there are no such attributes
        set_attributes(node, coordinate_transformation_mode="asymmetric", nearest_mode="simple")
        made = self._summed(graph, node)
        set_attributes(node, coordinate_transformation_mode=None, nearest_mode=None)
        return made

    def _summed(self, graph: Any, node: Any) -> list[Any]:
        transformation = attribute(node, "coordinate_transformation_mode", b"half_pixel")
        dims = self.sizes.get(node.input[0], ())
        scales = self._scales(node, dims)
        if transformation not in _BY_SCALE or scales is None or len(scales) != len(dims) or None in dims:
            return [node]
        sizes = [int(np.floor(size * scale)) for size, scale in zip(dims, scales, strict=True)]
        whole = all(size * scale == made for size, scale, made in zip(dims, scales, sizes, strict=True))
        if whole and not _is_antialiased(node):
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

    def _scales(self, node: Any, dims: Any) -> Any:
        """Return the scale of each axis; None if the scales are unknown, or if the node has sizes and no antialiasing,
        a form that TVM computes correctly."""
        given = [self.constants.value(name) if name else None for name in node.input[2 if self.opset >= 11 else 1 :]]
        if given and given[0] is not None and len(given[0]):
            return given[0]
        stretched = attribute(node, "keep_aspect_ratio_policy", b"stretch") == b"stretch"
        if len(given) < 2 or given[1] is None or None in dims or len(given[1]) != len(dims) or not stretched:
            return None
        return np.asarray(given[1]) / np.asarray(dims) if _is_antialiased(node) else None


def _is_antialiased(node: Any) -> bool:
    return bool(attribute(node, "antialias", 0)) and attribute(node, "mode", b"nearest") != b"nearest"


def _resized(writer: NodeWriter, data: str, axis: int, rank: int, taps: list[tuple[Any, Any]]) -> str:
    """Return a tensor whose elements along an axis are weighted sums of other elements.

    Args:
        taps: indices, and the weights of these elements or None, one pair per summand.
    """
    total = ""
    for indices, weights in taps:
        part = writer.take(data, indices, axis)
        if weights is not None:
            part = writer.add("Mul", part, writer.constant(weights.reshape(-1, *[1] * (rank - axis - 1))))
        total = writer.add("Add", total, part) if total else part
    return total


def _taps(node: Any, size: int, scale: Any, made: int) -> list[tuple[Any, Any]]:
    """Return indices and weights along one axis."""
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
            b"simple": np.ceil(places) if scale < 1 else np.floor(places),
        }[rounding]
        return [(rounded.clip(0, size - 1).astype("int64"), None)]
    first = np.floor(places)
    part = places - first
    antialiased = _is_antialiased(node)
    stretch = min(np.float32(scale), np.float32(1)) if antialiased else np.float32(1)
    first_step = int(np.floor(-(1 if mode == b"linear" else 2) / stretch)) + 1
    steps = range(first_step, 2 - first_step)
    distances = [np.abs(step - part) * stretch for step in steps]
    a = np.float32(attribute(node, "cubic_coeff_a", -0.75))
    weights = [(1 - at).clip(0) if mode == b"linear" else _cubic(at, a) for at in distances]
    indices = [first + step for step in steps]
    outside = mode == b"cubic" and attribute(node, "exclude_outside", 0)
    if outside:
        weights = [np.where((at < 0) | (at >= size), 0, weight) for at, weight in zip(indices, weights, strict=True)]
    if outside or antialiased:
        weights = [weight / sum(weights) for weight in weights]
    inside = [at.clip(0, size - 1).astype("int64") for at in indices]
    return list(zip(inside, weights, strict=True))


def _places(transformation: bytes, size: int, scale: Any, made: int) -> Any:
    """Return the position in the data of each element of the result, in float32, as onnxruntime computes it."""
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
    """Return the weight of an element at a distance (Keys, 1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return (distance <= 1) * near + ((distance > 1) & (distance < 2)) * far
