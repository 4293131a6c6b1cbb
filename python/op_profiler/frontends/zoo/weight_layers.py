"""Layers of TVM's example networks, from the names of their weights, such as ``stage1_unit1_conv1_weight``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from op_profiler.compilers.relay_rewriting import with_locations

if TYPE_CHECKING:
    from collections.abc import Collection

    from op_profiler.compilers.tvm_types import Call, IRModule

_WEIGHT = re.compile(r"_(weight|bias|gamma|beta|moving_mean|moving_var)$")


def with_layers_of_weights(module: IRModule, weights: Collection[str]) -> IRModule:
    """Return a module in which each call has the layer that the names of its weights contain; calls without weights
    have no layer.

    Args:
        weights: names of the variables of ``main`` that are weights.
    """

    def layer_of(call: Call) -> str:
        read = (str(getattr(argument, "name_hint", "")) for argument in call.args)
        return next((_WEIGHT.sub("", name) for name in read if name in weights and _WEIGHT.search(name)), "")

    return with_locations(module, layer_of)
