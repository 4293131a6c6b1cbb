"""The source ``simple``: single operators with sizes that are common in networks; --inputshape sets every size.

The first operand is the data. Weights are constants, as in a network, so that the compiler may change their layout.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Node
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.frontends.fingerprints import fingerprint
from op_profiler.frontends.frontend import Frontend, ModelRequest
from op_profiler.frontends.input_shapes import batch_of, shapes_by_name

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Operator:
    """How to create one operator.

    Attributes:
        build: creates the operator in Relay; called as ``build(relay, variables, shapes)``, both by operand name.
        data: name of the first operand.
        default: returns the default shape of the first operand for a batch size.
        others: default shapes of the other operands, given the shape of the first.
        weights: names of the operands that are constants.
    """

    build: Callable[[ModuleType, dict[str, Node], dict[str, Shape]], Node]
    data: str
    default: Callable[[int], Shape]
    others: Mapping[str, Callable[[Shape], Shape]] = dataclasses.field(default_factory=dict)
    weights: tuple[str, ...] = ()

    def names(self) -> tuple[str, ...]:
        return (self.data, *self.others)

    def shapes(self, given: Mapping[str, Shape], batch: int) -> dict[str, Shape]:
        """Return the shape of every operand: the given one, otherwise a default that fits the data."""
        data = given.get(self.data, self.default(batch))
        return {self.data: data} | {name: given.get(name) or rule(data) for name, rule in self.others.items()}


def _matmul(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return a (rows, inner) times b (inner, columns), both inputs; the batch size multiplies the default rows."""
    if shapes["a"][1] != shapes["b"][0]:  # TVM's own check lets it pass
        raise UsageError(f"matmul: these shapes do not fit together: a {shapes['a']}, b {shapes['b']}")
    return relay.nn.matmul(x["a"], x["b"])


def _dense(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return data (batch, inputs) times the transpose of weight (units, inputs)."""
    return relay.nn.dense(x["data"], x["weight"], units=shapes["weight"][0])


def _batch_matmul(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return a (batch, rows, inner) times b (batch, columns, inner) transposed, both inputs, as in attention."""
    return relay.nn.batch_matmul(x["a"], x["b"])


def _convolution(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return a convolution of data (batch, channels, *sizes) and weight (channels out, channels in, *kernel).

    There are 1 to 3 sizes; the stride is 1. The padding keeps the sizes if those of the kernel are odd. If the weight
    has fewer input channels than the data, the convolution has groups.
    """
    data, (out, per_group, *kernel) = shapes["data"], shapes["weight"]
    if data[1] % per_group:
        raise UsageError(f"weight {shapes['weight']} does not fit data {data}: its channels in must divide {data[1]}")
    function = (relay.nn.conv1d, relay.nn.conv2d, relay.nn.conv3d)[len(kernel) - 1]
    return function(
        x["data"],
        x["weight"],
        channels=out,
        kernel_size=tuple(kernel),
        padding=tuple(k // 2 for k in kernel),
        groups=data[1] // per_group,
    )


def _conv2d_transpose(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return a transposed convolution of data (batch, channels, height, width) and weight (channels in, channels out,
    kh, kw) with stride 2 and padding 1."""
    _, out, *kernel = shapes["weight"]
    return relay.nn.conv2d_transpose(
        x["data"], x["weight"], channels=out, kernel_size=tuple(kernel), strides=(2, 2), padding=(1, 1)
    )


def _pooling(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return the maximum over 3 x 3 windows of data (batch, channels, height, width), stride 2, padding 1."""
    return relay.nn.max_pool2d(x["data"], pool_size=(3, 3), strides=(2, 2), padding=(1, 1))


def _softmax(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return the softmax of data of any shape over the last dimension."""
    return relay.nn.softmax(x["data"], axis=-1)


def _layer_norm(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return data of any shape, normalised over the last dimension; gamma and beta have shape (last dimension,)."""
    return relay.nn.layer_norm(x["data"], x["gamma"], x["beta"], axis=-1)


def _add(relay: ModuleType, x: dict[str, Node], shapes: dict[str, Shape]) -> Node:
    """Return the sum of a and b, both inputs, of the same shape or of shapes that broadcast."""
    return relay.add(x["a"], x["b"])


_WEIGHT = ("weight",)
OPERATORS: dict[str, _Operator] = {
    "matmul": _Operator(_matmul, "a", lambda n: (512 * n, 512), {"b": lambda a: (a[1], 512)}),
    "dense": _Operator(_dense, "data", lambda n: (n, 1024), {"weight": lambda d: (1024, d[1])}, _WEIGHT),
    "batch_matmul": _Operator(_batch_matmul, "a", lambda n: (12 * n, 128, 64), {"b": lambda a: (a[0], 128, a[2])}),
    "conv1d": _Operator(_convolution, "data", lambda n: (n, 64, 256), {"weight": lambda d: (64, d[1], 3)}, _WEIGHT),
    "conv2d": _Operator(
        _convolution, "data", lambda n: (n, 64, 56, 56), {"weight": lambda d: (64, d[1], 3, 3)}, _WEIGHT
    ),
    "depthwise_conv2d": _Operator(
        _convolution, "data", lambda n: (n, 128, 56, 56), {"weight": lambda d: (d[1], 1, 3, 3)}, _WEIGHT
    ),
    "conv3d": _Operator(
        _convolution, "data", lambda n: (n, 32, 8, 28, 28), {"weight": lambda d: (64, d[1], 3, 3, 3)}, _WEIGHT
    ),
    "conv2d_transpose": _Operator(
        _conv2d_transpose, "data", lambda n: (n, 64, 28, 28), {"weight": lambda d: (d[1], 32, 4, 4)}, _WEIGHT
    ),
    "pooling": _Operator(_pooling, "data", lambda n: (n, 64, 112, 112)),
    "softmax": _Operator(_softmax, "data", lambda n: (n, 12, 128, 128)),
    "layer_norm": _Operator(
        _layer_norm,
        "data",
        lambda n: (n, 128, 768),
        {"gamma": lambda d: (d[-1],), "beta": lambda d: (d[-1],)},
        ("gamma", "beta"),
    ),
    "add": _Operator(_add, "a", lambda n: (n, 64, 56, 56), {"b": lambda a: a}),
}
_ANY_RANK = ("softmax", "layer_norm", "add")


class SimpleFrontend(Frontend):
    """The source ``simple``: models that consist of a single operator."""

    source = "simple"

    def names(self) -> list[str]:
        """Return the names of `OPERATORS`, sorted."""
        return sorted(OPERATORS)

    def default_names(self) -> list[str]:
        """Return the names of `OPERATORS`, in the order of that table."""
        return list(OPERATORS)

    def _check(self, request: ModelRequest) -> None:
        if request.name not in OPERATORS:
            raise UnknownNameError("simple model", request.name, OPERATORS)
        operator = OPERATORS[request.name]
        given = shapes_by_name(request, operator.names())
        batch_of(request, given.get(operator.data))
        usual = operator.shapes({}, 1)
        for name, shape in given.items():
            if len(shape) != len(usual[name]) and not (request.name in _ANY_RANK and name == operator.data):
                if request.name == "add":
                    continue
                raise UsageError(
                    f"{request.name} takes {name} of {len(usual[name])} dimensions such as {usual[name]}, not {shape}"
                )

    def has_framework(self, request: ModelRequest) -> bool:
        """Return False: the operators are written in Relay."""
        return False

    def fingerprint(self, request: ModelRequest) -> str:
        """Hash the request alone, which determines the operator and its shapes."""
        return fingerprint(request)

    def load(self, request: ModelRequest) -> ImportedModel:
        """Create the operator in Relay; operands without a given shape get one that fits the first.

        Raises:
            UsageError: the shapes do not fit together, or an operand has another name.
            UnknownNameError: there is no such operator.
        """
        self.check(request)
        tvm = load_tvm()
        operator = OPERATORS[request.name]
        given = shapes_by_name(request, operator.names())
        shapes = operator.shapes(given, request.batch_size)
        variables = {name: tvm.relay.var(name, shape=shape) for name, shape in shapes.items()}
        body = operator.build(tvm.relay, variables, shapes)
        module = tvm.IRModule.from_expr(tvm.relay.Function(list(variables.values()), body))
        try:
            module = tvm.relay.transform.InferType()(module)
        except tvm.TVMError as error:
            sizes = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
            raise UsageError(f"{request.name}: these shapes do not fit together: {sizes}") from error
        batch = batch_of(request, given.get(operator.data))
        inputs = tuple(InputSpec(n, s) for n, s in shapes.items() if n not in operator.weights)
        return ImportedModel(request.name, request.source, module, _weights(operator, shapes), inputs, batch)


def _weights(operator: _Operator, shapes: Mapping[str, Shape]) -> dict[str, Any]:
    """Return random constants, scaled so that the outputs are near 1."""
    import numpy as np

    tvm, rng = load_tvm(), np.random.default_rng(0)
    made = {}
    for name in operator.weights:
        values = rng.standard_normal(shapes[name]) / math.sqrt(math.prod(shapes[name][1:]))
        made[name] = tvm.nd.array(values.astype("float32"))
    return made


FRONTEND = SimpleFrontend()
