"""Creates the Relay call that a task of an AutoTVM template computes.

A task lists its tensors and arguments without names; their layouts depend on the template (`autotvm_names.py`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from op_profiler.compilers.tvm_types import Call
from op_profiler.operators.kinds.shapes import sizes
from op_profiler.operators.operator import TensorSpec

_LARGEST_SIZE = 2**31
_DTYPE = re.compile(r"(u?int|float|bfloat)\d{1,2}")
_SPATIAL = "DHW"
_OTHER_VERSION = "arguments of another version of the template"
_WINOGRAD_KERNELS = range(3, 8)  # TVM's Winograd computes no others


@dataclasses.dataclass(frozen=True)
class TaskReader:
    """Describes how to read the tasks of one template.

    Attributes:
        call: creates the Relay call from the template and a task.
        data, weight: possible layouts of the first and second tensor, distinguished by their number of axes; a
            lower-case letter is the axis of a block, whose size is read from the tensor's shape.
        op: Relay's name of the op, if it is not the default for `call`.
        tile: for a Winograd convolution with a transformed weight: returns the edge length of the output tiles for
            the height of the input.
    """

    call: Callable[[ModuleType, TaskReader, TaskArguments], Call]
    data: tuple[str, ...] = ()
    weight: tuple[str, ...] = ()
    op: str = ""
    tile: Callable[[int], int] = lambda height: 4


@dataclasses.dataclass(frozen=True)
class TaskArguments:
    """The arguments of a task, sorted by their types.

    Attributes:
        tensors: data and weight, and further tensors of the template.
        lists: lists of integers, such as strides; a single number for all axes is a list with one element.
        layouts: layouts of data and result, if the task names them.
        numbers: single integers after the lists, such as groups.
        out_dtype: dtype of the result; the dtype of the data if the task does not contain it.
    """

    tensors: tuple[TensorSpec, ...]
    lists: tuple[tuple[int, ...], ...]
    layouts: tuple[str, ...]
    numbers: tuple[int, ...]
    out_dtype: str

    @classmethod
    def of(cls, arguments: Sequence[Any], *, windows: int) -> TaskArguments:
        """Parse the arguments of a task in AutoTVM's serialized form.

        Args:
            windows: number of arguments after the tensors that are lists of integers or one integer for all axes.

        Raises:
            ValueError: an argument is missing or of another type; TVM would crash on, for example, a null as a size.
        """
        tensors = [_tensor(argument) for argument in arguments if _is_tensor(argument)]
        rest = [argument for argument in arguments if not _is_tensor(argument)]
        lists = [_whole(one if isinstance(one, tuple) else (one,)) for one in rest[:windows]]
        rest = rest[windows:]
        words = [one for one in rest if isinstance(one, str)]
        dtypes = [word for word in words if _DTYPE.fullmatch(word)]
        if len(tensors) < 2 or len(lists) < windows or len(dtypes) > 1:
            raise ValueError(_OTHER_VERSION)
        return cls(
            tuple(tensors),
            (*lists, *(_whole(one) for one in rest if isinstance(one, tuple))),
            tuple(word for word in words if word not in dtypes),
            _whole(tuple(int(one) for one in rest if isinstance(one, int))),
            dtypes[0] if dtypes else tensors[0].dtype,
        )

    @property
    def result(self) -> dict[str, str]:
        """Return Relay's argument ``out_dtype``; an empty dict if the dtypes of result and data are equal.

        Models imported by op_profiler omit the argument in that case too.
        """
        return {} if self.out_dtype == self.tensors[0].dtype else {"out_dtype": self.out_dtype}


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, tuple) and argument[:1] == ("TENSOR",) and len(argument) > 2


def _tensor(argument: Any) -> TensorSpec:
    shape, dtype, *views = argument[1:]
    if views:
        raise ValueError(_OTHER_VERSION)
    if not shape or min(_whole(shape)) < 1 or not isinstance(dtype, str) or not _DTYPE.fullmatch(dtype):
        raise ValueError("a tensor without a fixed shape and type")
    return TensorSpec(shape, dtype)


def _whole(values: Any) -> tuple[int, ...]:
    if not isinstance(values, tuple) or not all(type(v) is int and abs(v) < _LARGEST_SIZE for v in values):
        raise ValueError("an argument that is no list of whole numbers")
    return values


def _variables(relay: ModuleType, tensors: Sequence[TensorSpec], names: Sequence[str]) -> list[Any]:
    return [relay.var(name, shape=one.shape, dtype=one.dtype) for name, one in zip(names, tensors, strict=True)]


def _layout(choices: Sequence[str], tensor: TensorSpec) -> str:
    """Return the layout of a tensor with the sizes of its blocks, e.g. ``NCHW16c``: the choice with as many axes."""
    for choice in choices:
        if len(choice) == len(tensor.shape):
            return "".join(f"{size if axis.islower() else ''}{axis}" for axis, size in zip(choice, tensor.shape))
    raise ValueError(f"a tensor of {len(tensor.shape)} dimensions, which no layout of the template has")


@dataclasses.dataclass(frozen=True)
class _Convolution:
    """A convolution task with its axes by name.

    Attributes:
        data, weight: size of each axis, including its block.
        axes: the spatial axes, a part of ``DHW``.
        layouts: Relay's attributes for the layouts; empty for Relay's defaults.
        strides: stride of each spatial axis.
        padding: as in the task.
    """

    data: dict[str, int]
    weight: dict[str, int]
    axes: str
    layouts: dict[str, str]
    strides: tuple[int, ...]
    padding: tuple[int, ...]

    @classmethod
    def of(cls, template: TaskReader, task: TaskArguments) -> _Convolution:
        data, weight = (_layout(*one) for one in ((template.data, task.tensors[0]), (template.weight, task.tensors[1])))
        plain = re.sub(r"[^A-Z]", "", data)
        if any(layout not in (plain, data) for layout in task.layouts[:1]):
            raise ValueError(f"data of the shape {list(task.tensors[0].shape)} in the layout {task.layouts[0]}")
        layouts = {}
        if plain not in ("NCW", "NCHW", "NCDHW") or data != plain or not weight.isalpha():
            layouts = {"data_layout": data, "kernel_layout": weight}
        if block := re.search(r"\d+o", weight):
            layouts |= {"out_layout": re.sub(r"\d+c", f"{block[0][:-1]}c", data)} if data != plain else {}
        axes = "".join(axis for axis in _SPATIAL if axis in plain)
        strides, padding = _each(task.lists[0], axes), task.lists[1]
        if len(strides) != len(axes) or min(strides) < 1 or len(padding) % len(axes) * len(padding[1:]):
            raise ValueError("strides or padding of other axes than the data's")
        return cls(sizes(task.tensors[0], data), sizes(task.tensors[1], weight), axes, layouts, strides, padding)

    @property
    def kernel(self) -> tuple[int, ...]:
        return tuple(self.weight[axis] for axis in self.axes)


def _each(values: tuple[int, ...], axes: str) -> tuple[int, ...]:
    return values * len(axes) if len(values) == 1 else values


def convolution(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a convolution with one to three spatial axes, grouped if the data has more channels than the weight."""
    conv = _Convolution.of(template, task)
    in_channels, channels = conv.data["C"], conv.weight["O"]
    groups, rest = divmod(in_channels, conv.weight["I"])
    if rest or channels % max(groups, 1) or any(number != groups for number in task.numbers):
        raise ValueError(f"{in_channels} channels do not fit a weight for {conv.weight['I']}")
    return _call(relay, template, task, conv, groups=groups, channels=channels, kernel_size=conv.kernel)


def winograd(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return the convolution of a Winograd template.

    If the weight has five axes and the data has four, the weight is transformed already; otherwise the template
    transforms it.
    """
    if len(task.tensors[1].shape) == 5 and len(task.tensors[0].shape) == 4:
        ready = dataclasses.replace(template, call=transformed_winograd, weight=("AAOIo",))
        return transformed_winograd(relay, ready, task)
    kernel = _Convolution.of(template, task).kernel
    if len(set(kernel)) > 1 or kernel[0] not in _WINOGRAD_KERNELS:
        raise ValueError(f"a kernel of {' x '.join(map(str, kernel))}, which Winograd's algorithm does not compute")
    return convolution(relay, template, task)


def depthwise(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a depthwise convolution; axis O of the weight is the channel, axis I the filters of each channel."""
    conv = _Convolution.of(template, task)
    groups, channels = conv.data["C"], conv.weight["O"] * conv.weight["I"]
    if groups != conv.weight["O"]:
        raise ValueError(f"{groups} channels do not fit filters for {conv.weight['O']}")
    return _call(relay, template, task, conv, groups=groups, channels=channels, kernel_size=conv.kernel)


def gemm(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a convolution that is computed as a matrix product.

    Its weight was reshaped to a matrix, so the kernel size and the number of output channels are arguments of the task.
    """
    conv = _Convolution.of(dataclasses.replace(template, weight=("IO", "OIio", "OIoi")), task)
    if len(task.lists) != 4 or len(task.numbers) != 1:
        raise ValueError(_OTHER_VERSION)
    conv = dataclasses.replace(conv, layouts={"data_layout": "NHWC", "kernel_layout": "HWIO"})
    return _call(relay, template, task, conv, channels=task.numbers[0], kernel_size=task.lists[3])


def transformed_winograd(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a Winograd convolution whose weight is transformed: alpha x alpha, where alpha = tile + kernel - 1.

    The kernel size is derived from alpha and the tile that the template uses for this height of the data.

    Raises:
        ValueError: the padding fits the kernel size of another tile better (versions of the template differ in the
            tile), or the weight does not fit the data.
    """
    alpha, other = task.tensors[1].shape[:2]
    conv = _Convolution.of(template, task)
    tile = template.tile(conv.data["H"])
    kernel = alpha - tile + 1
    weight = f"a transformed weight of {alpha} x {other}"
    if alpha != other or kernel not in _WINOGRAD_KERNELS:
        raise ValueError(f"{weight}, which no kernel becomes with tiles of {tile}")
    for size in {alpha - others + 1 for others in (2, 4, 6)} - {kernel}:
        if size in _WINOGRAD_KERNELS and _keeps_size(conv, size) and not _keeps_size(conv, kernel):
            raise ValueError(f"{weight}, which is ambiguous: its kernel is {kernel} x {kernel} or {size} x {size}")
    channels = conv.weight["O"]
    if conv.weight["I"] != conv.data["C"]:
        raise ValueError(f"{conv.data['C']} channels do not fit a weight for {conv.weight['I']}")
    if conv.layouts:  # as TVM passes the layout of the weight on that it transforms
        of_weight = "HWIO" if conv.layouts["data_layout"].startswith("NHWC") else "OIHW"
        conv = dataclasses.replace(conv, layouts=conv.layouts | {"kernel_layout": of_weight})
    return _call(relay, template, task, conv, tile_size=tile, channels=channels, kernel_size=(kernel, kernel))


def _keeps_size(conv: _Convolution, kernel: int) -> bool:
    padding = conv.padding if len(conv.padding) == 4 else _each(conv.padding, conv.axes) * 2
    return padding[0] + padding[2] == kernel - 1 == padding[1] + padding[3]


def transposed_convolution(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a transposed convolution; the output padding is 0 if the task does not state it (older logs)."""
    conv = _Convolution.of(template, task)
    groups = task.numbers[0] if task.numbers else 1
    if len(task.lists) > 3 or len(task.numbers) > 1 or conv.weight["I"] != conv.data["C"]:
        raise ValueError(f"{conv.data['C']} channels do not fit a weight for {conv.weight['I']}")
    more: dict[str, Any] = {"output_padding": _each(task.lists[2], conv.axes)} if len(task.lists) == 3 else {}
    return _call(
        relay,
        template,
        dataclasses.replace(task, lists=(*task.lists[:2], (1,) * len(conv.axes))),
        conv,
        groups=groups,
        channels=conv.weight["O"] * groups,
        kernel_size=conv.kernel,
        **more,
    )


def deformable(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a deformable convolution, whose second tensor contains the offsets of the kernel's taps."""
    if len(task.tensors) != 3 or len(task.numbers) != 2:
        raise ValueError(_OTHER_VERSION)
    conv = _Convolution.of(template, dataclasses.replace(task, tensors=task.tensors[::2]))
    deformable_groups, groups = task.numbers
    if conv.data["C"] != conv.weight["I"] * groups:
        raise ValueError(f"{conv.data['C']} channels do not fit a weight for {conv.weight['I']}")
    attrs = {"deformable_groups": deformable_groups, "groups": groups, "channels": conv.weight["O"]}
    return _call(relay, template, task, conv, ("data", "offset", "weight"), **attrs, kernel_size=conv.kernel)


def _call(
    relay: ModuleType,
    template: TaskReader,
    task: TaskArguments,
    conv: _Convolution,
    names: Sequence[str] = ("data", "weight"),
    **attrs: Any,
) -> Call:
    if len(task.tensors) != len(names):
        raise ValueError(f"{len(task.tensors)} tensors in place of {len(names)}")
    op = template.op if template.op and (conv.layouts or not template.op.endswith("nchwc")) else _OPS[template.call]
    return getattr(relay.nn, op.format(len(conv.axes)))(
        *_variables(relay, task.tensors, names),
        strides=conv.strides,
        padding=conv.padding,
        dilation=_each(task.lists[2], conv.axes),
        **conv.layouts,
        **attrs,
        **task.result,
    )


def dense(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return the matrix product of data and weight, plus a bias if there is a third tensor.

    If the task has no flags for transposition, the weight is read as transposed.
    """
    data, weight = _variables(relay, task.tensors[:2], ("data", "weight"))
    layout = _layout(template.weight, task.tensors[1])
    transposes = tuple(map(bool, task.numbers)) or (False, True)
    rows, packed = sizes(task.tensors[0], "KN" if transposes[0] else "NK"), sizes(task.tensors[1], layout)
    if len(task.tensors[0].shape) != 2 or rows["K"] != packed["C" if transposes[1] else "N"] or len(transposes) != 2:
        raise ValueError("rows of data and weight that are not of one length")
    if layout != "NC":
        call = relay.nn.contrib_dense_pack(data, weight, layout, **task.result)
    elif transposes == (False, True) and template.op != "matmul":
        call = relay.nn.dense(data, weight, **task.result)
    else:
        call = relay.nn.matmul(data, weight, transpose_a=transposes[0], transpose_b=transposes[1], **task.result)
    if len(task.tensors) == 3:
        return relay.nn.bias_add(call, *_variables(relay, task.tensors[2:], ("weight",)))
    return call


def batch_matmul(relay: ModuleType, template: TaskReader, task: TaskArguments) -> Call:
    """Return a batched matrix product.

    If the task has no flags for transposition (older logs), the second tensor is read as transposed.
    """
    if len(task.tensors) != 2 or len(task.numbers) not in (0, 2):
        raise ValueError(_OTHER_VERSION)
    transpose_a, transpose_b = map(bool, task.numbers or (0, 1))
    a, b = _variables(relay, task.tensors, ("a", "b"))
    return relay.nn.batch_matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b, **task.result)


_OPS: dict[Callable[..., Call], str] = {
    convolution: "conv{}d",
    winograd: "conv2d",
    depthwise: "conv2d",
    gemm: "contrib_conv2d_gemm_without_weight_transform",
    transformed_winograd: "contrib_conv2d_winograd_without_weight_transform",
    transposed_convolution: "conv{}d_transpose",
    deformable: "deformable_conv2d",
}
WINDOWS: dict[Callable[..., Call], int] = {
    **dict.fromkeys((convolution, winograd, depthwise, gemm, transformed_winograd, deformable), 3),
    transposed_convolution: 2,
}
"""Number of list arguments after the tensors (strides, padding, dilation), for `TaskArguments.of`."""
