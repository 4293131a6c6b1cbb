"""Rebuilds a Relax module from a graph that a Relay process wrote (`compilers.relay.plain_graph`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from op_profiler.compilers.interrupts import interrupts_wait
from op_profiler.compilers.relax.layers import LayerVariables
from op_profiler.compilers.relax.relay_ops import CONVERTERS
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_errors import kind_and_last_line
from op_profiler.errors import ModelError


@interrupts_wait()
def read_graph(folder: Path) -> Any:
    """Return the Relax module of the graph in a folder, with its weights as constants and its inputs in order.

    Raises:
        ModelError: Relax has no counterpart of an op with these shapes and attributes; the message names the op.
    """
    relax = load_tvm().relax
    graph = json.loads((folder / "graph.json").read_text())
    builder = relax.BlockBuilder()
    inputs = {i["name"]: relax.Var(_name(i["name"]), relax.TensorType(i["shape"], i["dtype"])) for i in graph["inputs"]}
    made: list[Any] = []
    variables = LayerVariables()
    with np.load(folder / "weights.npz") as weights:

        def value(argument: Sequence[Any]) -> Any:
            kind, what, *rest = argument
            if kind == "input":
                return inputs[what]
            if kind == "weight":
                return relax.const(weights[what])
            if kind == "tuple":
                return [value(field) for field in what]
            if kind == "node":
                return made[what]
            whole = value(what)
            return whole[rest[0]] if isinstance(whole, list) else relax.TupleGetItem(whole, rest[0])

        with builder.function("main", list(inputs.values())):
            with builder.dataflow():
                for node in graph["nodes"]:
                    arguments = [value(argument) for argument in node["arguments"]]
                    made.append(_converted(builder, node, arguments, variables.name(tuple(node["locations"]))))
                output = value(graph["output"])
                output = builder.emit_output(relax.Tuple(output) if isinstance(output, list) else output)
            builder.emit_func_output(output)
    return variables.noted_on(builder.get())


def _name(name: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in name)


def _converted(builder: Any, node: dict[str, Any], arguments: list[Any], variable: str) -> Any:
    convert = CONVERTERS.get(node["op"])
    if convert is None:
        raise ModelError(f"Relay's op {node['op']} is not taken over into Relax")
    try:
        made = convert(load_tvm().relax.op, node["attrs"] | {"shapes": node["shapes"]}, arguments)
        same = isinstance(made, list) or any(made is argument for argument in arguments)
        return made if same else builder.emit(made, variable)
    except Exception as error:  # TVM raises any error for shapes or attributes that it does not support
        why = str(error) if isinstance(error, ModelError) else kind_and_last_line(error)
        raise ModelError(f"Relay's op {node['op']} is not taken over into Relax: {why}") from error
