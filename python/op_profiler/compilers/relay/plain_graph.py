"""A Relay model as plain data, from which another compiler rebuilds it in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.compilers.plain_values import plain
from op_profiler.compilers.relay.control import open_control
from op_profiler.compilers.relay.extract import attributes, tensors
from op_profiler.compilers.relay.layers import locations_in_span
from op_profiler.compilers.relay_rewriting import nodes_in
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import DeviceArray, IRModule, Node
from op_profiler.errors import ModelError

GRAPH, WEIGHTS = "graph.json", "weights.npz"


def write_graph(folder: Path, module: IRModule, params: dict[str, DeviceArray]) -> None:
    """Write the graph of ``main`` as `GRAPH` and its constants as `WEIGHTS`.

    The graph has ``inputs`` (names, shapes), ``nodes`` (op, attributes, arguments, shapes of the outputs, locations, in
    execution order) and ``output``.
    An argument is ``["input", name]``, ``["weight", name]``, ``["node", number]``, ``["field", argument, number]`` or
    ``["tuple", arguments]``.

    Args:
        module: a typed `tvm.IRModule`.
        params: weights by the variable of ``main`` that each is bound to.

    Raises:
        ModelError: the module has control flow or separate functions.
    """
    relay = load_tvm().relay
    what = " and ".join(open_control(module))
    if what:
        raise ModelError(
            f"it has {what} that only run time decides, so its calls are not known beforehand; measure it with "
            "op-profiler collect --compiler relay --executor vm"
        )
    function = module["main"]
    weights: dict[str, Any] = {name: value.numpy() for name, value in params.items()}
    inputs: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    known: dict[Node, list[Any]] = {}
    for variable in function.params:
        name = str(variable.name_hint)
        known[variable] = ["weight" if name in weights else "input", name]
        if name not in weights:
            (spec,) = tensors(variable.checked_type)
            inputs.append({"name": name, "shape": spec.shape, "dtype": spec.dtype})
    for node in nodes_in(function.body):
        if node in known or isinstance(node, (relay.Function, load_tvm().ir.Op)):
            continue
        if isinstance(node, relay.Call) and isinstance(node.op, load_tvm().ir.Op):
            known[node] = ["node", len(nodes)]
            arguments = [known[argument] for argument in node.args]
            shape = [list(spec.shape) for spec in tensors(node.checked_type)]
            attrs = _attributes(node.attrs)
            about = {"op": str(node.op.name), "attrs": attrs, "arguments": arguments, "shapes": shape}
            nodes.append(about | {"locations": locations_in_span(node)})
        elif isinstance(node, relay.Tuple):
            known[node] = ["tuple", [known[field] for field in node.fields]]
        elif isinstance(node, relay.TupleGetItem):
            known[node] = ["field", known[node.tuple_value], int(node.index)]
        elif isinstance(node, relay.Constant):
            name = f"constant {len(weights)}"
            weights[name] = node.data.numpy()
            known[node] = ["weight", name]
        else:
            raise ModelError(f"a model with {type(node).__name__} cannot be taken over from Relay")
    np.savez(folder / WEIGHTS, **weights)
    (folder / GRAPH).write_text(json.dumps({"inputs": inputs, "nodes": nodes, "output": known[function.body]}))


def _attributes(attrs: Any) -> dict[str, Any]:
    """Return attributes as plain values, also if they have no class in Python (`nn.adaptive_avg_pool1d`)."""
    if attrs is None or hasattr(attrs, "keys"):
        return attributes(attrs)
    values = {name: plain(getattr(attrs, name)) for name in sorted(set(dir(attrs)) - set(dir(type(attrs))))}
    return {name: value for name, value in values.items() if value not in (None, "", [])}
