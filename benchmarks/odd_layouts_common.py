"""Single operators of ONNX that move values or select them, with attributes off their defaults."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from odd_graph_common import MOST_ELEMENTS, Graph


def _joined(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    graph.node(operator, [graph.input(shape) for _ in range(graph.one_of(2, 3, 4))], axis=graph.axis(shape))


def _split(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    axis = graph.axis(shape)
    shape[axis] = max(shape[axis] // 2, 1) * 2
    graph.node(operator, [graph.input(shape)], 2, axis=axis)


def _sliced(graph: Graph, operator: str) -> None:
    shape = graph.shape()
    axis = graph.axis(shape)
    first, step = graph.one_of((0, 1), (shape[axis] // 3, 1), (0, 2), (1, 3), (-1, -1))
    last = np.iinfo("int64").min + 1 if step < 0 else shape[axis]
    graph.told.append(f"axis={axis} from={first} step={step}")
    parts = [graph.constant([value], "int64") for value in (first, last, axis, step)]
    graph.node(operator, [graph.input(shape), *parts])


def _padded(graph: Graph, operator: str) -> None:
    shape = graph.image()
    mode = graph.one_of("constant", "reflect", "edge")
    margin = graph.one_of(1, 3, 8) if min(shape[2:]) > 8 else 0
    graph.told.append(f"margin={margin}")
    pads = graph.constant([0, 0, margin, margin] * 2, "int64")
    graph.node(operator, [graph.input(shape), pads], mode=mode)


def _transposed(graph: Graph, operator: str) -> None:
    shape = graph.shape(graph.one_of(2, 3, 4))
    graph.node(operator, [graph.input(shape)], perm=[int(a) for a in graph.rng.permutation(len(shape))])


def _repeated(graph: Graph, operator: str) -> None:
    shape = graph.shape(graph.one_of(2, 3, 4))
    if operator == "Tile":
        times = [graph.one_of(1, 1, 2, 3) for _ in shape]
        graph.told.append(f"repeats={times}")
        graph.node(operator, [graph.input(shape), graph.constant(times, "int64")])
        return
    axis = graph.axis(shape)
    graph.told.append(f"axis={axis}")
    wanted = graph.constant(shape, "int64")
    graph.node(operator, [graph.input([1 if n == axis else size for n, size in enumerate(shape)]), wanted])


def _gathered(graph: Graph, operator: str) -> None:
    shape = graph.shape(graph.one_of(1, 2, 2, 3, 4))
    axis = graph.axis(shape)
    count = graph.between(1, 1000)
    per_place = math.prod(shape) / shape[axis]
    count = max(min(count, int(MOST_ELEMENTS / per_place)), 1)
    if operator == "Gather":
        places = graph.rng.integers(0, shape[axis], count)
        index = graph.constant(places, "int64") if graph.chance(0.5) else graph.input([count], "int64")
        graph.told.append(f"{count} places")
        graph.node(operator, [graph.input(shape), index], axis=axis)
    elif operator == "GatherElements":
        index = graph.input([min(count, size) if n == axis else size for n, size in enumerate(shape)], "int64")
        graph.node(operator, [graph.input(shape), index], axis=axis)
    else:
        depth = graph.between(1, len(shape))
        graph.node(operator, [graph.input(shape), graph.input([count, depth], "int64")])


def _scattered(graph: Graph, operator: str) -> None:
    shape = graph.shape(graph.one_of(1, 2, 3))
    axis = graph.axis(shape)
    count = min(graph.between(1, 1000), shape[axis])
    attributes: dict[str, Any] = {"reduction": "add"} if graph.chance(0.3) else {}
    if operator == "ScatterElements":
        inner = [count if n == axis else size for n, size in enumerate(shape)]
        graph.node(
            operator,
            [graph.input(shape), graph.input(inner, "int64"), graph.input(inner)],
            axis=axis,
            **attributes,
        )
    else:
        count = min(count, shape[0])
        graph.node(
            operator,
            [graph.input(shape), graph.input([count, 1], "int64"), graph.input([count, *shape[1:]])],
            **attributes,
        )


def _depth(graph: Graph, operator: str) -> None:
    block = graph.one_of(2, 2, 3, 4)
    shape = graph.image()
    if operator == "DepthToSpace":
        shape[1] = max(shape[1] // block**2, 1) * block**2
        graph.node(operator, [graph.input(shape)], blocksize=block, mode=graph.one_of("DCR", "CRD"))
    else:
        shape[2:] = [max(size // block, 1) * block for size in shape[2:]]
        graph.node(operator, [graph.input(shape)], blocksize=block)


def _resized(graph: Graph, operator: str) -> None:
    axes = graph.one_of(1, 2, 2, 2, 3)
    graph.elements = min(graph.elements, MOST_ELEMENTS / 8)
    shape = graph.image(axes)
    mode = graph.one_of("nearest", "linear", "linear", *(["cubic"] if axes == 2 else []))
    scale = graph.one_of(0.5, 2.0, 2.0, 3.0) if min(shape[2:]) > 1 else 2.0
    attributes: dict[str, Any] = {"mode": mode}
    attributes["coordinate_transformation_mode"] = graph.one_of("half_pixel", "align_corners", "asymmetric")
    if mode == "nearest":
        attributes["nearest_mode"] = graph.one_of("round_prefer_floor", "floor")
    if mode == "cubic":
        attributes["cubic_coeff_a"] = graph.one_of(-0.75, -0.5)
    graph.told.append(f"scale={scale}")
    scales = graph.constant([1.0, 1.0, *[scale] * axes], "float32")
    graph.node(operator, [graph.input(shape), "", scales], **attributes)


def _hot(graph: Graph, operator: str) -> None:
    depth = graph.one_of(2, 10, 100, 1000)
    graph.elements = max(graph.elements / depth, 1.0)
    values = graph.constant([0.0, 1.0])
    graph.told.append(f"depth={depth}")
    places = graph.input(graph.shape(graph.one_of(1, 2)), "int64")
    graph.node(operator, [places, graph.constant([depth], "int64"), values], axis=-1)


def _triangle(graph: Graph, operator: str) -> None:
    graph.node(operator, [graph.input(graph.shape(graph.one_of(2, 3)))], upper=graph.one_of(0, 1))


def _reversed(graph: Graph, operator: str) -> None:
    shape = graph.shape(3)
    lengths = graph.input([shape[0]], "int64")
    graph.node(operator, [graph.input(shape), lengths], batch_axis=0, time_axis=1)


def _sampled_grid(graph: Graph, operator: str) -> None:
    graph.elements = min(graph.elements, MOST_ELEMENTS / 8)
    shape = graph.image()
    grid = graph.input([shape[0], *shape[2:], 2])
    modes = {"mode": graph.one_of("bilinear", "nearest"), "padding_mode": graph.one_of("zeros", "border")}
    graph.node(operator, [graph.input(shape), grid], align_corners=graph.one_of(0, 1), **modes)


LAYOUTS: dict[str, Callable[[Graph, str], None]] = {
    "Concat": _joined,
    "Split": _split,
    "Slice": _sliced,
    "Pad": _padded,
    "Transpose": _transposed,
    **dict.fromkeys(("Expand", "Tile"), _repeated),
    **dict.fromkeys(("Gather", "GatherElements", "GatherND"), _gathered),
    **dict.fromkeys(("ScatterElements", "ScatterND"), _scattered),
    **dict.fromkeys(("DepthToSpace", "SpaceToDepth"), _depth),
    "Resize": _resized,
    "OneHot": _hot,
    "Trilu": _triangle,
    "ReverseSequence": _reversed,
    "GridSample": _sampled_grid,
}
"""How each operator is drawn."""
