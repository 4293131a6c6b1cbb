"""Short titles of operators, such as ``conv2d + gelu`` for nine ops that a compiler fused."""

from __future__ import annotations

import re
from collections.abc import Sequence

from op_profiler.operators.layers import CallLayers

_FUNCTIONS = {
    "gelu": "multiply erf multiply add multiply",
    "gelu by tanh": "multiply power multiply add multiply tanh add multiply",
    "layer norm": "subtract add rsqrt multiply multiply add",
    "softmax": "subtract exp sum divide",
    "lstm cell": "split sigmoid sigmoid multiply sigmoid tanh multiply add tanh multiply",
    "gru cell": "split split add sigmoid multiply add tanh subtract add sigmoid multiply add",
    "hard swish": "add clip divide multiply",
    "hard sigmoid": "add clip divide",
    "swish": "sigmoid multiply",
    "attention": r"(?:batch_)?matmul(?: \S+){0,6}? softmax(?: \S+){0,6}? (?:batch_)?matmul",
}
"""By name, the ops of a function that importers express as several ops, in the order of their execution, as a regular
expression. The first match counts, so a function comes before the functions that it contains. Attention comes after
softmax, which importers may express as several ops, too."""

_MOVES = frozenset(
    ("broadcast_to", "cast", "copy", "expand_dims", "layout_transform", "reshape", "squeeze", "strided_slice")
    + ("transpose", "batch_flatten", "permute_dims")
)
"""Ops that compute nothing; titles omit them if another op computes something."""

_MOST = 4
_BUILT_AS = re.compile(
    r"^(nn\.|contrib_|fast_|annotation\.|vision\.|image\.)+|(_NCHW\d*c|_pack|(_without)?_weight_transform)$"
)
"""Parts of an op's name that describe where it is defined, or how it is built."""


def title_of(op_names: Sequence[str]) -> str:
    """Return the functions of an operator, joined by ``+``; functions beyond the fourth are only counted (``2 more``).

    Args:
        op_names: as in `Operator.op_names`.
    """
    names = " ".join(_BUILT_AS.sub("", _BUILT_AS.sub("", name)).replace(" ", "_") for name in op_names)
    for function, ops in _FUNCTIONS.items():
        names = re.sub(rf"(?<!\S){ops}(?!\S)", function.replace(" ", "\0"), names)
    found = names.split(" ")
    found = [name for name in found if name not in _MOVES] or found
    counts = {name: found.count(name) for name in found}
    parts = [name.replace("\0", " ") + (f" x{count}" if count > 1 else "") for name, count in counts.items()]
    more = [f"{len(parts) - _MOST} more"] if len(parts) > _MOST else []
    return " + ".join(parts[:_MOST] + more)


def label_of(op_names: Sequence[str], output: Sequence[int], layers: CallLayers = ()) -> str:
    """Return the title of an operator with its layer and output shape, which distinguish the operators of a model.

    >>> label_of(["nn.dense", "nn.relu"], (1, 128), [["fc1", "relu1"]])
    'dense + relu | fc1 | 1x128'

    Args:
        op_names: as in `Operator.op_names`.
        output: shape of the first output; empty for an operator without outputs.
        layers: layers of its calls; the first layer of the first call is part of the label.
    """
    layer = layers[0][0] if layers and layers[0] else ""
    return " | ".join(filter(None, (title_of(op_names), layer, "x".join(map(str, output)))))
