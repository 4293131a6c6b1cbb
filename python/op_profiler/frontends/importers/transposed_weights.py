"""Transposes weights at import if a model reads nothing but their transpose.

A build would otherwise contain them three times: original, transposed, and in the layout of its kernels.
"""

from __future__ import annotations

import ctypes
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from op_profiler.compilers.relay_rewriting import main_of, nodes_in, rebuilt
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, DeviceArray, IRModule, Node
from op_profiler.compilers.weight_files import bytes_of, return_freed_memory

if TYPE_CHECKING:
    import numpy as np


_LARGE_BYTES = 1 << 20


def with_transposed_weights(module: IRModule, params: dict[str, DeviceArray]) -> IRModule:
    """Return the typed module without transpositions of weights; the weights in `params` are transposed instead.

    Weights with a second reader, and weights of a module with control flow, are not changed.
    """
    tvm = load_tvm()
    relay, main = tvm.relay, main_of(module)
    if main is None:
        return module
    readers: Counter[str] = Counter()
    transposed: dict[str, Any] = {}
    for one in nodes_in(main.body):
        read = one.args if isinstance(one, relay.Call) else one.fields if isinstance(one, relay.Tuple) else ()
        readers.update(value.name_hint for value in read if isinstance(value, relay.Var))

    def replace(call: Call, arguments: list[Node]) -> Node | None:
        if getattr(call.op, "name", "") != "transpose" or not isinstance(arguments[0], relay.Var):
            return None
        name = arguments[0].name_hint
        if name not in params or readers[name] > 1 or 0 in params[name].shape:
            return None
        transposed[name] = relay.var(name, call.checked_type), call.attrs.axes
        return transposed[name][0]

    body = rebuilt(module, replace)
    if body is None:
        return module
    variables = [transposed[v.name_hint][0] if v.name_hint in transposed else v for v in main.params]
    module.update_func(module.get_global_var("main"), relay.Function(variables, body, main.ret_type, attrs=main.attrs))
    for name, (_, axes) in transposed.items():
        params[name] = _transposed(params[name], axes)
        if bytes_of(params[name]) > _LARGE_BYTES:
            return_freed_memory()
    return relay.transform.InferType()(module)


def _transposed(weight: DeviceArray, axes: Any) -> DeviceArray:
    import numpy as np

    order = list(range(len(weight.shape)))[::-1] if axes is None else [int(axis) for axis in axes]
    made: DeviceArray = load_tvm().nd.empty([weight.shape[axis] for axis in order], weight.dtype)
    np.copyto(_memory(made), _memory(weight).transpose(order))
    return made


def _memory(array: DeviceArray) -> np.ndarray:
    """Return a view of an array's memory; elements of types that numpy does not have are bytes."""
    import numpy as np

    size = bytes_of(array)
    memory = (ctypes.c_uint8 * size).from_address(array.handle.contents.data)
    return np.ctypeslib.as_array(memory).view(f"V{size // math.prod(array.shape)}").reshape(array.shape)
