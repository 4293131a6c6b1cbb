"""Repairs what TVM declares of operators behind a convolution, whose channels Relay packs in blocks (NCHW8c).

Relay asks each operator for the layouts of its inputs. The answers of some operators are wrong if an axis on which they
work is split: their kernel computes something else, or TVM ends with an internal error. They get the layout that they
would have without packing, and the mean from which a variance is computed keeps its own layout.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_LEVEL = 11
"""Priority of the registered functions, above that of TVM's own functions."""
_SPLIT_AXIS = re.compile(r"\d+([a-z])")
_REDUCTIONS = ("all", "any", "max", "mean", "min", "prod", "sum", "variance")


def repair(tvm: ModuleType) -> None:
    """In this process, make Relay infer correct layouts of operators for which TVM's functions return wrong ones."""
    relay = tvm.relay
    if not hasattr(relay.op.op, "register_infer_correct_layout"):  # TVM 0.8
        return
    conditions: dict[str, Callable[[Any, str, Any], bool]] = {
        "split": _parts_have_parts_of_blocks,
        "squeeze": _removes_a_split_axis,
        "strided_slice": lambda attrs, *_: attrs.slice_mode == "size",
        **{name: lambda attrs, *_: bool(attrs.exclude) for name in _REDUCTIONS},
        **{name: lambda attrs, *_: attrs.axis is None or len(attrs.axis) > 1 for name in ("argmax", "argmin")},
        "topk": lambda *_: True,
    }
    more = {"variance": _with_mean_as_computed, "topk": _with_as_many_outputs}
    for name, is_wrong in conditions.items():
        inferred = tvm.ir.Op.get(name).get_attr("FInferCorrectLayout")
        if inferred is not None:
            infer = functools.partial(_inferred, inferred, is_wrong, more.get(name))
            relay.op.op.register_infer_correct_layout(name, infer, _LEVEL)


def _inferred(
    inferred: Callable[..., Any],
    is_wrong: Callable[[Any, str, Any], bool],
    finish: Callable[..., tuple[Sequence[Any], Sequence[Any]]] | None,
    attrs: Any,
    new: Sequence[Any] | None,
    old: Sequence[Any],
    types: Sequence[Any],
) -> Any:
    """Answer for one call.

    Args:
        inferred: TVM's answer.
        is_wrong: whether TVM's answer is wrong for these attributes, this layout of the data, and its original type.
        finish: returns the layouts of inputs and outputs, from the attributes, TVM's answer, and the original layouts.
        new: layouts in which the inputs are; None or unknown if they were not changed.
        old: layouts that they would have without a change.
    """
    from tvm.relay.transform.infer_layout_utils import InferCorrectLayoutOutput

    data = new[0] if new else None
    if data is not None and _SPLIT_AXIS.search(data.name) and is_wrong(attrs, data.name, types[0]):
        new = None
    found = inferred(attrs, new, old, types)
    if finish is None:
        return found
    inputs, outputs = finish(attrs, found, old)
    return InferCorrectLayoutOutput(inputs, outputs, found.new_attrs)


def _removes_a_split_axis(attrs: Any, layout: str, _type: Any) -> bool:
    blocks = _blocks(layout)
    return attrs.axis is None or any(blocks[int(axis)] is not None for axis in attrs.axis)


def _parts_have_parts_of_blocks(attrs: Any, layout: str, data: Any) -> bool:
    """TVM checks this for parts that are given by their ends, but not for a number of equal parts."""
    block, parts = _blocks(layout)[int(attrs.axis)], attrs.indices_or_sections
    if block is None or not isinstance(parts, int):
        return False
    return int(data.shape[int(attrs.axis)]) // parts % block != 0


def _blocks(layout: str) -> list[int | None]:
    """Return the size of the blocks of each axis, None for an axis that is not split."""
    sizes = {axis.upper(): int(size) for size, axis in re.findall(r"(\d+)([a-z])", layout)}
    return [sizes.get(letter) for letter in layout if letter.isupper()]


def _with_mean_as_computed(attrs: Any, found: Any, old: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """TVM declares blocks of the data's size for the mean, whose blocks have one channel; it would be filled with
    zeros, and only the first channel of each block centered."""
    from tvm.tir import layout

    data = found.input_layouts[0]
    if data is None or old[0] is None:
        return found.input_layouts, found.output_layouts
    axes = range(len(old[0].name)) if attrs.axis is None else attrs.axis
    reduced = {old[0].name[int(axis)] for axis in axes}
    mean = _SPLIT_AXIS.sub(lambda split: f"1{split[1]}" if split[1].upper() in reduced else split[0], data.name)
    return [data, layout(mean)], found.output_layouts


def _with_as_many_outputs(attrs: Any, found: Any, _old: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """TVM always declares two outputs, values and indices."""
    return found.input_layouts, list(found.output_layouts)[: 2 if attrs.ret_type == "both" else 1]
