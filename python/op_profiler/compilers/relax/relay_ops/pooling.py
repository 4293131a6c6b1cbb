"""Pooling, and resizing of images."""

from __future__ import annotations

from typing import Any

from op_profiler.compilers.relax.relay_ops.convert import Attrs, Convert, shape_of
from op_profiler.errors import ModelError

_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def _pool(kind: str, dimensions: int) -> Convert:
    def convert(op: Any, a: Attrs, x: list[Any]) -> Any:
        more = {"count_include_pad": a.get("count_include_pad", False)} if kind == "avg" else {}
        return getattr(op.nn, f"{kind}_pool{dimensions}d")(
            x[0],
            pool_size=a["pool_size"],
            strides=a["strides"],
            padding=a["padding"],
            dilation=a.get("dilation", [1] * dimensions),
            ceil_mode=a.get("ceil_mode", False),
            layout=a["layout"],
            **more,
        )

    return convert


def _spatial(a: Attrs) -> list[int]:
    return [i for i, axis in enumerate(a["layout"]) if axis in "DHW"]


def _global_average(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.mean(x[0], axis=_spatial(a), keepdims=True)


def _global_maximum(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.max(x[0], axis=_spatial(a), keepdims=True)


def _sizes(a: Attrs, axes: list[int]) -> list[int]:
    return [a["shapes"][0][axis] for axis in axes]


def _adaptive_average(op: Any, a: Attrs, x: list[Any]) -> Any:
    sizes = _sizes(a, _spatial(a))
    if set(sizes) == {1}:
        return _global_average(op, a, x)
    return getattr(op.nn, f"adaptive_avg_pool{len(sizes)}d")(x[0], output_size=sizes, layout=a["layout"])


def _adaptive_maximum(op: Any, a: Attrs, x: list[Any]) -> Any:
    """Pool by windows that do not overlap, because Relax has no adaptive maximum."""
    axes = _spatial(a)
    sizes, shape = _sizes(a, axes), shape_of(x[0])
    if set(sizes) == {1}:
        return _global_maximum(op, a, x)
    if any(shape[axis] % size for axis, size in zip(axes, sizes)):
        raise ModelError(f"windows of several sizes, from {shape} to {sizes}")
    window = [shape[axis] // size for axis, size in zip(axes, sizes)]
    return getattr(op.nn, f"max_pool{len(sizes)}d")(x[0], pool_size=window, strides=window, layout=a["layout"])


def _resize2d(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.image.resize2d(
        x[0],
        size=tuple(a["size"]),
        roi=tuple(a.get("roi", (0.0, 0.0, 0.0, 0.0))),
        layout=a["layout"],
        method=a["method"],
        coordinate_transformation_mode=a["coordinate_transformation_mode"],
        rounding_method=a.get("rounding_method", ""),
        cubic_alpha=a["cubic_alpha"],
        cubic_exclude=a["cubic_exclude"],
        extrapolation_value=a["extrapolation_value"],
    )


def _upsampling(op: Any, a: Attrs, x: list[Any]) -> Any:
    return op.image.resize2d(
        x[0],
        size=tuple(_sizes(a, _spatial(a))),
        layout=a["layout"],
        method=_METHODS[a["method"]],
        coordinate_transformation_mode="align_corners" if a["align_corners"] else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,  # what Relay computes with, and has no attribute for
    )


POOLING: dict[str, Convert] = {
    **{f"nn.{kind}_pool{n}d": _pool(kind, n) for kind in ("avg", "max") for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive_average for n in (1, 2, 3)},
    **{f"nn.adaptive_max_pool{n}d": _adaptive_maximum for n in (1, 2, 3)},
    "nn.global_avg_pool2d": _global_average,
    "nn.global_max_pool2d": _global_maximum,
    "image.resize2d": _resize2d,
    "nn.upsampling": _upsampling,
}
