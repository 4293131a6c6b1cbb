"""Ops of Relay with odd shapes and attributes that are not the default, for the process with that TVM.

``python relay_cases.py FOLDER`` writes there one graph of all cases as `compilers.relay.plain_graph` does, and as
`VALUES` the inputs, and what each case is under Relay. In the folder `NETWORK` it writes the graph of a network, and as
`KEYS` the workload keys of its operators under Relay, by their names.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

VALUES, NETWORK, KEYS = "values.npz", "network", "keys.json"


class Maker:
    """Makes the arguments of a case: variables with values, and weights."""

    def __init__(self, relay: Any) -> None:
        self.relay = relay
        self.inputs: dict[str, Any] = {}
        self.values: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(0)

    def given(self, values: np.ndarray) -> Any:
        name = f"x{len(self.inputs)}"
        self.values[name] = values
        self.inputs[name] = self.relay.var(name, shape=values.shape, dtype=str(values.dtype))
        return self.inputs[name]

    def data(self, *shape: int, low: float = -2.0, high: float = 2.0) -> Any:
        return self.given(self.random.uniform(low, high, shape).astype("float32"))

    def whole(self, *shape: int, below: int) -> Any:
        return self.given(self.random.integers(0, below, shape).astype("int32"))

    def truth(self, *shape: int) -> Any:
        return self.given(self.random.integers(0, 2, shape).astype("bool"))

    def weight(self, *shape: int) -> Any:
        return self.relay.const(self.random.uniform(0.5, 1.5, shape).astype("float32"))


Case = Callable[[Any, Maker], Any]
"""From ``tvm.relay``, and what makes arguments."""

_UNARY = (
    *("exp", "erf", "sigmoid", "negative", "abs", "sign", "floor", "ceil", "round", "trunc"),
    *("sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "isnan", "isinf", "isfinite"),
)
_BINARY = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum"),
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
)
_STATISTICS = (5, 5, 5, 5)


def _unary(name: str, low: float = -2.0, high: float = 2.0) -> Case:
    return lambda r, m: getattr(r, name)(m.data(3, 5, low=low, high=high))


def _binary(name: str) -> Case:
    return lambda r, m: getattr(r, name)(m.data(3, 1, 5), m.data(2, 5))


def _reduced(name: str, **options: Any) -> Case:
    return lambda r, m: getattr(r, name)(m.data(2, 3, 4, 5), **options)


def _convolved(
    dimensions: int, shape: tuple[int, ...], weight: tuple[int, ...], kind: str = "", **options: Any
) -> Case:
    def case(r: Any, m: Maker) -> Any:
        return getattr(r.nn, f"conv{dimensions}d{kind}")(m.data(*shape), m.weight(*weight), **options)

    return case


def _pooled(name: str, *shape: int, **options: Any) -> Case:
    return lambda r, m: getattr(r.nn, name)(m.data(*shape), **options)


def _normed(name: str, *shape: int, channels: int, **options: Any) -> Case:
    return lambda r, m: getattr(r.nn, name)(m.data(*shape), m.weight(channels), m.weight(channels), **options)


def _resized(**options: Any) -> Case:
    return lambda r, m: r.image.resize2d(m.data(1, 3, 5, 7), (8, 6), **options)


def _moved(name: str, *shape: int, **options: Any) -> Case:
    return lambda r, m: getattr(r, name)(m.data(*shape), **options)


def _batch_norm(r: Any, m: Maker) -> Any:
    return r.nn.batch_norm(m.data(2, 3, 5), *(m.weight(5) for _ in range(4)), axis=2, epsilon=0.25, scale=False)[0]


def _of_some(r: Any, m: Maker) -> Any:
    first, _, third = r.split(m.data(2, 7, 3), (2, 3), axis=1)
    return r.concatenate([third, first, m.data(2, 1, 3)], axis=-2)


CASES: dict[str, Case] = {
    **{name: _unary(name) for name in _UNARY},
    **{name: _unary(name, 0.1) for name in ("log", "sqrt", "rsqrt")},
    **{name: _unary(name, -0.9, 0.9) for name in ("asin", "acos", "atanh")},
    "acosh": _unary("acosh", 1.5),
    **{name: _binary(name) for name in _BINARY},
    "power": lambda r, m: r.power(m.data(3, 1, 5, low=0.1), m.data(2, 5)),
    **{name: _binary(name) for name in ("floor_divide", "floor_mod")},
    "mod": lambda r, m: r.mod(m.whole(3, 4, below=9), m.given(np.array([2, 3, 4, 7], dtype="int32"))),
    "logical_and": lambda r, m: r.logical_and(m.truth(3, 1), m.truth(5)),
    "logical_or": lambda r, m: r.logical_or(m.truth(3, 1), m.truth(5)),
    "logical_xor": lambda r, m: r.logical_xor(m.truth(3, 1), m.truth(5)),
    "logical_not": lambda r, m: r.logical_not(m.truth(3, 5)),
    "where": lambda r, m: r.where(m.truth(3, 1), m.data(3, 5), m.data(5)),
    "clip": _moved("clip", 3, 5, a_min=-0.25, a_max=0.75),
    "cast": lambda r, m: r.cast(m.data(3, 5), "int32"),
    "cast to truth": lambda r, m: r.cast(m.whole(3, 5, below=3), "bool"),
    **{f"{name} of all": _reduced(name) for name in ("mean", "sum", "max", "min", "prod")},
    **{f"{n} of the others": _reduced(n, axis=-3, exclude=True) for n in ("mean", "sum", "max", "min")},
    "prod of two": _reduced("prod", axis=(-1, 1), keepdims=True),
    "variance": _reduced("variance", axis=(1, -1), keepdims=True),
    "unbiased variance": _reduced("variance", axis=(1, -1), unbiased=True),
    "unbiased variance of the others": _reduced("variance", axis=1, exclude=True, unbiased=True),
    "argmax": _reduced("argmax", axis=-2, keepdims=True),
    "argmax of all": _reduced("argmax"),
    "argmin": _reduced("argmin", axis=1),
    "cumsum": _moved("cumsum", 3, 5, axis=-1),
    "exclusive cumsum": lambda r, m: r.cumsum(m.whole(3, 5, below=9), axis=0, dtype="int64", exclusive=True),
    # convolutions and products
    "conv1d": _convolved(1, (2, 4, 11), (6, 4, 3), strides=2, padding=(1, 2), dilation=2),
    "conv1d in NWC": _convolved(1, (2, 11, 4), (3, 4, 6), padding=(1, 1), data_layout="NWC", kernel_layout="WIO"),
    "conv2d": _convolved(2, (1, 6, 9, 11), (8, 3, 3, 2), strides=(2, 1), padding=(1, 0, 2, 1), groups=2),
    "dilated conv2d": _convolved(2, (1, 5, 9, 11), (7, 5, 3, 3), dilation=(2, 3)),
    "depthwise conv2d with a multiplier": _convolved(2, (1, 3, 7, 5), (6, 1, 3, 3), groups=3),
    "conv2d in NHWC": _convolved(
        2, (1, 7, 5, 4), (3, 3, 4, 6), strides=2, padding=(0, 1, 1, 0), data_layout="NHWC", kernel_layout="HWIO"
    ),
    "depthwise conv2d in NHWC": _convolved(
        2,
        (1, 7, 5, 4),
        (3, 3, 4, 1),
        groups=4,
        data_layout="NHWC",
        kernel_layout="HWOI",
        channels=4,
        kernel_size=(3, 3),
    ),
    "depthwise conv2d in NHWC with a multiplier": _convolved(
        2,
        (1, 7, 5, 3),
        (3, 3, 3, 2),
        groups=3,
        data_layout="NHWC",
        kernel_layout="HWOI",
        channels=6,
        kernel_size=(3, 3),
    ),
    "conv3d": _convolved(3, (1, 4, 5, 6, 7), (6, 4, 2, 3, 1), strides=(1, 2, 2), padding=(1, 0, 1)),
    "conv1d_transpose": _convolved(
        1,
        (1, 3, 7),
        (3, 5, 3),
        "_transpose",
        strides=(2,),
        padding=(1,),
        output_padding=(1,),
        channels=5,
        kernel_size=(3,),
    ),
    "conv2d_transpose": _convolved(
        2,
        (1, 4, 5, 3),
        (4, 3, 3, 2),
        "_transpose",
        strides=(2, 3),
        padding=(1, 0),
        output_padding=(1, 0),
        channels=3,
        kernel_size=(3, 2),
    ),
    "conv2d_transpose in groups": _convolved(
        2, (1, 4, 5, 3), (4, 3, 3, 3), "_transpose", strides=(2, 2), groups=2, channels=6, kernel_size=(3, 3)
    ),
    "conv2d_transpose in NHWC": _convolved(
        2,
        (1, 5, 3, 4),
        (4, 6, 3, 2),
        "_transpose",
        strides=(2, 1),
        channels=6,
        kernel_size=(3, 2),
        data_layout="NHWC",
        kernel_layout="IOHW",
    ),
    "conv3d_transpose": _convolved(
        3, (1, 2, 3, 4, 3), (2, 3, 2, 3, 2), "_transpose", strides=(2, 1, 2), channels=3, kernel_size=(2, 3, 2)
    ),
    "dense": lambda r, m: r.nn.dense(m.data(3, 7), m.weight(5, 7)),
    "matmul": lambda r, m: r.nn.matmul(m.data(7, 3), m.weight(7, 5), transpose_a=True),
    "batch_matmul": lambda r, m: r.nn.batch_matmul(m.data(3, 4, 7), m.data(3, 5, 7)),
    "batch_matmul as it is": lambda r, m: r.nn.batch_matmul(m.data(1, 4, 7), m.data(3, 7, 5), transpose_b=False),
    "bias_add": lambda r, m: r.nn.bias_add(m.data(2, 3, 4), m.weight(3), axis=-2),
    # norms and activations
    "batch_norm": _batch_norm,
    "layer_norm": _normed("layer_norm", 2, 3, 5, channels=3, axis=1, epsilon=0.1),
    "layer_norm without its scale": _normed("layer_norm", 2, 5, channels=5, scale=False, center=False),
    "group_norm": _normed("group_norm", 2, 6, 3, 5, channels=6, num_groups=3, epsilon=0.1),
    "instance_norm": _normed("instance_norm", 2, 6, 3, 5, channels=6, epsilon=0.1),
    "instance_norm of the last axis": _normed("instance_norm", 2, 3, 5, channels=5, axis=-1, center=False, scale=False),
    "group_norm without its shift": _normed("group_norm", 2, 3, 4, channels=4, num_groups=2, axis=2, center=False),
    "l2_normalize": lambda r, m: r.nn.l2_normalize(m.data(2, 3, 5), eps=0.5, axis=[1]),
    "lrn": lambda r, m: r.nn.lrn(m.data(2, 7, 3, 2), size=3, axis=1, bias=2, alpha=0.5, beta=0.75),
    "relu": lambda r, m: r.nn.relu(m.data(3, 5)),
    "leaky_relu": lambda r, m: r.nn.leaky_relu(m.data(3, 5), alpha=0.3),
    "prelu": lambda r, m: r.nn.prelu(m.data(2, 3, 5), m.weight(5), axis=2),
    "softmax": lambda r, m: r.nn.softmax(m.data(2, 3, 5), axis=1),
    "log_softmax": lambda r, m: r.nn.log_softmax(m.data(3, 5)),
    "dropout": lambda r, m: r.nn.dropout(m.data(3, 5), rate=0.3),
    # pooling
    "max_pool1d": _pooled("max_pool1d", 1, 3, 11, pool_size=3, strides=2, padding=(1, 0), ceil_mode=True),
    "max_pool2d": _pooled("max_pool2d", 1, 3, 9, 8, pool_size=(3, 2), strides=(2, 3), padding=(1, 0), dilation=(2, 1)),
    "max_pool2d in NHWC": _pooled("max_pool2d", 1, 9, 8, 3, pool_size=(2, 3), strides=2, layout="NHWC", ceil_mode=True),
    "max_pool3d": _pooled("max_pool3d", 1, 2, 5, 6, 7, pool_size=(2, 3, 2), strides=2, ceil_mode=True),
    "avg_pool1d": _pooled("avg_pool1d", 1, 3, 11, pool_size=4, strides=3, padding=(2, 1), count_include_pad=True),
    "avg_pool2d": _pooled("avg_pool2d", 1, 3, 9, 8, pool_size=3, strides=2, padding=(1, 0, 1, 1)),
    "avg_pool2d with padding": _pooled("avg_pool2d", 1, 3, 9, 8, pool_size=3, padding=1, count_include_pad=True),
    "avg_pool2d, last windows cut": _pooled(
        "avg_pool2d", 1, 3, 10, 9, pool_size=3, strides=2, padding=1, ceil_mode=True, count_include_pad=True
    ),
    "avg_pool3d": _pooled("avg_pool3d", 1, 2, 5, 6, 7, pool_size=(2, 3, 2), strides=2, ceil_mode=True),
    **{
        f"adaptive_{kind}_pool{n}d{name}": _pooled(f"adaptive_{kind}_pool{n}d", 1, 3, *(6, 8, 4)[:n], output_size=size)
        for kind, n in itertools.product(("avg", "max"), (1, 2, 3))
        for name, size in {" to one": (1,) * n, "": (3, 2, 4)[:n]}.items()
    },
    "adaptive_avg_pool2d, windows of two sizes": _pooled("adaptive_avg_pool2d", 1, 3, 7, 5, output_size=(3, 2)),
    "adaptive_avg_pool2d in NHWC": _pooled("adaptive_avg_pool2d", 1, 6, 4, 3, output_size=(3, 1), layout="NHWC"),
    "global_avg_pool2d": _pooled("global_avg_pool2d", 2, 3, 5, 4),
    "global_max_pool2d in NHWC": _pooled("global_max_pool2d", 2, 3, 5, 4, layout="NHWC"),
    "resize2d": _resized(method="linear", coordinate_transformation_mode="half_pixel"),
    "resize2d, corners aligned": _resized(method="linear", coordinate_transformation_mode="align_corners"),
    "resize2d to the nearest": _resized(
        method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"
    ),
    "cubic resize2d": _resized(method="cubic", coordinate_transformation_mode="half_pixel", cubic_alpha=-0.5),
    "upsampling": lambda r, m: r.nn.upsampling(m.data(1, 2, 3, 5), scale_h=2, scale_w=3),
    "bilinear upsampling": lambda r, m: r.nn.upsampling(
        m.data(1, 3, 5, 2), scale_h=2, scale_w=1.5, method="bilinear", align_corners=True, layout="NHWC"
    ),
    "bicubic upsampling": lambda r, m: r.nn.upsampling(m.data(1, 2, 4, 5), scale_h=2, scale_w=3, method="bicubic"),
    # values moved
    "reshape": _moved("reshape", 2, 3, 4, newshape=(0, -1)),
    "squeeze": _moved("squeeze", 1, 3, 1, 2, axis=[2]),
    "expand_dims": _moved("expand_dims", 3, 2, axis=-2, num_newaxis=2),
    "batch_flatten": lambda r, m: r.nn.batch_flatten(m.data(2, 3, 4)),
    "transpose": _moved("transpose", 2, 3, 4, axes=(-1, 0, 1)),
    "transpose of all": _moved("transpose", 2, 3, 4),
    "concatenate": _of_some,
    "concatenate what was split": lambda r, m: r.concatenate(r.split(m.data(2, 6), 3, axis=-1).astuple(), axis=0),
    "stack": lambda r, m: r.stack([m.data(2, 3), m.data(2, 3)], axis=-1),
    "strided_slice": _moved("strided_slice", 7, 5, begin=[1, 0], end=[6, 99], strides=[2, 3]),
    "strided_slice of an axis": _moved("strided_slice", 4, 7, 3, begin=[-5], end=[-1], strides=[2], axes=[1]),
    "strided_slice backwards": _moved("strided_slice", 7, 5, begin=[6, 4], end=[0, -99], strides=[-2, -1]),
    "strided_slice of the first axes": _moved("strided_slice", 4, 7, 3, begin=[1, 2], end=[3, 5]),
    "strided_slice by size": _moved("strided_slice", 7, 5, begin=[2, 1], end=[3, -1], slice_mode="size"),
    "take": lambda r, m: r.take(m.data(3, 5), m.whole(2, 4, below=5), axis=1),
    "take of all": lambda r, m: r.take(m.data(3, 5), m.whole(4, below=15)),
    "take what is wrapped": lambda r, m: r.take(
        m.data(3, 5), m.given(np.array([-1, 7, 2], dtype="int64")), axis=0, mode="wrap"
    ),
    "take what is cut off": lambda r, m: r.take(m.data(3, 5), m.given(np.array([9, -4], dtype="int64")), axis=0),
    "take one": lambda r, m: r.take(m.data(3, 5), r.const(2), axis=-1),
    "gather": lambda r, m: r.gather(m.data(3, 5), -1, m.whole(3, 2, below=5)),
    "gather_nd": lambda r, m: r.gather_nd(m.data(3, 4, 5), m.whole(2, 7, below=3)),
    "repeat": _moved("repeat", 2, 3, repeats=3, axis=-1),
    "tile": _moved("tile", 2, 3, reps=(2, 1, 3)),
    "reverse": _moved("reverse", 2, 3, axis=1),
    "broadcast_to": _moved("broadcast_to", 3, 1, shape=(2, 3, 4)),
    "pad": lambda r, m: r.nn.pad(m.data(2, 3), ((0, 1), (2, 0)), pad_value=-1.5),
    "pad with the smallest": lambda r, m: r.nn.pad(m.data(2, 3), ((0, 1), (2, 0)), pad_value=float(np.finfo("f4").min)),
    "pad with the edge": lambda r, m: r.nn.pad(m.data(2, 3, 4, 3), ((0, 0), (0, 0), (1, 2), (2, 1)), pad_mode="edge"),
    "pad with reflections": lambda r, m: r.nn.pad(m.data(2, 3, 4), ((0, 0), (1, 2), (2, 1)), pad_mode="reflect"),
    "copy": _moved("copy", 2, 3),
    "zeros": lambda r, m: r.add(r.zeros((3, 1), "float32"), m.data(2)),
    "ones": lambda r, m: r.add(r.ones((3, 1), "float32"), m.data(2)),
    "full": lambda r, m: r.add(r.full(r.const(2.5), (3, 1), "float32"), m.data(2)),
    "zeros_like": lambda r, m: r.add(r.zeros_like(m.data(3)), m.data(3)),
    "ones_like": lambda r, m: r.add(r.ones_like(m.data(3)), m.data(3)),
    "full_like": lambda r, m: r.add(r.full_like(m.data(3), r.const(2.5)), m.data(3)),
    "one_hot": lambda r, m: r.one_hot(m.whole(4, below=6), r.const(2.0), r.const(-1.0), 6, 0, "float32"),
    "depth_to_space": lambda r, m: r.nn.depth_to_space(m.data(1, 12, 2, 3), 2),
    "depth_to_space by columns": lambda r, m: r.nn.depth_to_space(m.data(1, 2, 3, 12), 2, layout="NHWC", mode="CRD"),
}


def write_cases(folder: Path) -> None:
    from op_profiler.compilers.relay.plain_graph import write_graph
    from op_profiler.compilers.tvm_build import load_tvm

    tvm = load_tvm()
    from tvm import relay
    from tvm.contrib.graph_executor import GraphModule

    maker = Maker(relay)
    made = [case(relay, maker) for case in CASES.values()]
    made = [getattr(one, "tuple_value", one) if isinstance(one, relay.TupleWrapper) else one for one in made]
    function = relay.Function(list(maker.inputs.values()), relay.Tuple(made))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(function))
    write_graph(folder, module, {})
    target = tvm.target.Target("llvm -opt-level=0")
    with tvm.transform.PassContext(opt_level=0, config={"tir.disable_cse_tir": True}), target:
        library = relay.build(relay.transform.Legalize()(module), target)
    executor = GraphModule(library["default"](tvm.cpu()))
    executor.run(**maker.values)
    outputs: dict[str, Any] = {name: executor.get_output(i).numpy() for i, name in enumerate(CASES)}
    np.savez(folder / VALUES, **(maker.values | outputs))


def _network(r: Any, m: Maker) -> list[Any]:
    """What both compilers fuse alike."""

    def convolved(data: Any, inputs: int, **options: Any) -> Any:
        shape = {"channels": 16, "kernel_size": (3, 3), "padding": (1, 1)}
        return r.nn.bias_add(r.nn.conv2d(data, m.weight(16, inputs, 3, 3), **shape, **options), m.weight(16))

    x = r.clip(convolved(m.data(1, 16, 12, 12), 16), 0.0, 6.0)
    x = r.nn.leaky_relu(convolved(r.clip(convolved(x, 1, groups=16), 0.0, 6.0), 16), 0.1)
    x = r.nn.avg_pool2d(r.nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), (2, 2), (2, 2))
    pooled = r.nn.global_avg_pool2d(r.nn.relu(convolved(x, 16)))
    dense = r.nn.relu(r.nn.bias_add(r.nn.dense(m.data(3, 16), m.weight(48, 16)), m.weight(48)))
    row = r.nn.conv1d(m.data(1, 8, 20), m.weight(16, 8, 3), channels=16, kernel_size=3, padding=1)
    products = r.nn.batch_matmul(m.data(4, 9, 16), m.data(4, 16, 7), transpose_b=False)
    scores = r.nn.softmax(r.multiply(r.nn.batch_matmul(m.data(4, 9, 16), m.data(4, 7, 16)), r.const(0.25)))
    wide = r.nn.bias_add(r.nn.dense(m.data(5, 16), m.weight(64, 16)), m.weight(64))
    gelu = r.multiply(r.multiply(wide, r.const(0.5)), r.add(r.const(1.0), r.erf(r.multiply(wide, r.const(0.70710677)))))
    images = m.data(2, 3, 5, 7)
    return [
        *(pooled, r.nn.softmax(r.nn.dense(dense, m.weight(10, 48)))),
        *(r.nn.relu(row), products, scores, gelu, r.sum(images, axis=[2, 3]), r.mean(images, axis=-1)),
        *(r.tanh(images), r.transpose(images, (0, 2, 3, 1)), r.power(images, r.const(1.7))),
        r.floor_mod(r.cast(images, "int32"), r.const(7)),
        *(r.nn.pad(images, ((0, 0), (0, 0), (1, 1), (2, 0)), pad_value=-1.5), r.nn.adaptive_avg_pool2d(images, (3, 4))),
    ]


def write_network(folder: Path) -> None:
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec
    from op_profiler.compilers.relay.lower import optimize
    from op_profiler.compilers.relay.plain_graph import write_graph
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.targets.target import resolve_target

    tvm = load_tvm()
    maker = Maker(tvm.relay)
    output = tvm.relay.Tuple(_network(tvm.relay, maker))
    function = tvm.relay.Function(list(maker.inputs.values()), output)
    module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(function))
    folder.mkdir()
    write_graph(folder, module, {})
    specs = tuple(InputSpec(name, value.shape) for name, value in maker.values.items())
    occurrences = optimize(ImportedModel("network", "test", module, {}, specs), resolve_target("llvm"))
    operators = [one.operator for one in occurrences if one.operator.anchor != "layout_transform"]
    keys = {operator.name: operator.key for operator in operators}
    (folder / KEYS).write_text(json.dumps(keys))


if __name__ == "__main__":
    write_cases(Path(sys.argv[1]))
    write_network(Path(sys.argv[1]) / NETWORK)
