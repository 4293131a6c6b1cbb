"""Finds the module of a torch model to which each operator belongs: the operator's layer in the imported model.

A trace stores the module of every operator (its scope). TorchScript files and exported programs store it in other ways.
Passes over a graph drop scopes, so the layer of a node is stored as an attribute of the node.

TVM's importer names each node by its kind and a number (``aten::relu_3``), and each weight by the node that reads it.
With the names of modules instead, the names of weights would collide. TVM's names are therefore kept, and
`noted_layers` records the layer of each node when the importer names the node.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import op_profiler
from op_profiler.compilers.tvm_build import replaced

WRAPPED = "op_profiler_wrapped"
"""Name of the model inside this package's wrappers; it is not part of the user's names."""

_LAYER = "op_profiler_layer"
_GENERATED = re.compile(r"<eval_with_key>[^(]*\((\d+)\): forward")
_TRACED_FRAME = re.compile(r"^(.+)\((\d+)\): ", re.MULTILINE)
_EXPORTED_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


@contextlib.contextmanager
def noted_layers() -> Iterator[dict[str, str]]:
    """Record the layers of everything that TVM's importer creates in the block, by its names."""
    from tvm.relay.frontend import pytorch

    usual = pytorch.DefaultNodeKindNamer
    layers: dict[str, str] = {}

    class NotingLayers(usual):  # type: ignore[misc, valid-type]  # TVM has no types
        def get_node_source_name(self, node: Any) -> str:
            name = str(super().get_node_source_name(node))
            layers[name] = node.s(_LAYER) if node.hasAttribute(_LAYER) else ""
            return name

    with replaced(pytorch, "DefaultNodeKindNamer", NotingLayers):
        yield layers


def inline(traced: Any, model: Any) -> dict[str, list[str]]:
    """Inline all calls in the graph of a trace, in place; nodes then have their layers, if known.

    Args:
        model: the traced model.

    Returns:
        For each layer, the lines of the user's code that call its operators; for traces and exported programs only.
    """
    import torch

    graph = traced.graph
    called = None if isinstance(traced, torch.jit._trace.TopLevelTracedModule) else _called(traced)
    torch._C._jit_pass_inline(graph)
    nodes = [node for node in graph.nodes() if not node.kind().startswith("prim::")]
    lines = [""] * len(nodes)
    if isinstance(model, torch.fx.GraphModule):
        made = _exported_nodes(model, nodes)
        layers = [str(list(node.meta["nn_module_stack"].values())[-1][0]) if node is not None else "" for node in made]
        frames = [_EXPORTED_FRAME.findall(node.meta.get("stack_trace") or "") if node else [] for node in made]
        lines = [_users_line(found[::-1]) for found in frames]
    elif called is None:
        layers = [_module_of(node.scopeName()) for node in nodes]
        lines = [_users_line(_TRACED_FRAME.findall(node.sourceRange())) for node in nodes]
    else:
        layers = [layer for _, layer in called] if [kind for kind, _ in called] == [n.kind() for n in nodes] else []
    if called is not None and not any(layers):
        return {}  # a file that names no modules
    source_lines: dict[str, list[str]] = {}
    for node, layer, line in zip(nodes, layers, lines):
        name = layer or _name_of(model)
        node.s_(_LAYER, name)
        if line and line not in source_lines.setdefault(name, []):
            source_lines[name].append(line)
    return source_lines


def note_layer(node: Any, scope: str, model: Any) -> None:
    """Store the scope of a node that a pass inserted into the graph."""
    node.s_(_LAYER, _module_of(scope) or _name_of(model))


def _called(script: Any) -> list[tuple[str, str]]:
    """Return kind and module of each operator of a script that was not inlined; empty if other calls are made."""
    found: list[tuple[str, str]] = []
    modules = dict(script.named_modules(remove_duplicate=False))

    def walk(module: Any, method: str, place: str) -> bool:
        """Add the operators of a method; return whether all of its calls are known."""
        places = {"self": place}
        graph = module._c._get_method(method).graph
        places[next(iter(graph.inputs())).debugName()] = place
        for node in graph.nodes():
            if node.kind() == "prim::GetAttr":
                owner = places.get(node.inputsAt(0).debugName())
                places[node.output().debugName()] = f"{owner}.{node.s('name')}".lstrip(".")
            elif node.kind() == "prim::CallMethod":
                inner = places.get(node.inputsAt(0).debugName(), "")
                if not walk(modules[inner], node.s("name"), inner):
                    return False
            elif node.kind() in ("prim::CallFunction", "prim::If", "prim::Loop"):
                return False
            elif not node.kind().startswith("prim::"):
                found.append((node.kind(), place))
        return True

    try:
        return found if walk(script, "forward", "") else []
    except (KeyError, RuntimeError):  # it calls what is no module
        return []


def _exported_nodes(program: Any, nodes: list[Any]) -> list[Any]:
    """Return for each node of a trace of an exported program the program's node with its module, or None: the trace
    contains the lines of the program's generated code."""
    made = {node.name: node for node in program.graph.nodes if node.meta.get("nn_module_stack")}
    code = enumerate(program.code.splitlines(), start=1)
    by_line = {number: made.get(line.partition(" = ")[0].strip()) for number, line in code}
    lines = [_GENERATED.findall(node.sourceRange()) for node in nodes]
    return [by_line.get(int(found[-1])) if found else None for found in lines]


def _users_line(frames: Sequence[tuple[str, str]]) -> str:
    """Return the innermost line outside of torch and this package; its file is relative to the folder that Python
    imports it from.

    Args:
        frames: file and line number, innermost first.
    """
    import torch

    own = tuple(str(Path(package.__file__ or "").parent) for package in (torch, op_profiler))
    for file, number in frames:
        if not file.startswith((*own, "<")):
            folders = [
                folder for folder in (*sys.path, str(Path.cwd())) if folder and Path(file).is_relative_to(folder)
            ]
            return f"{Path(file).relative_to(max(folders, key=len, default='/'))}:{number}"
    return ""


def layer_of_node(node: Any, model: Any) -> str:
    """Return the module of a node of a program exported by torch.export.

    Args:
        node: ``torch.fx.Node``.
        model: the exported model.
    """
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""  # of what decomposing an operator put in
    return _module_of(str(list(stack.values())[-1][0])) or _name_of(model)


def _module_of(scope: str) -> str:
    """Return the module in a scope: ``__module.encoder/__module.encoder.layer`` is the module ``encoder.layer``."""
    parts = scope.rpartition("/")[2].removeprefix("__module").split(".")
    return ".".join(part for part in parts if part and part != WRAPPED)


def unwrapped(model: Any) -> Any:
    """Return the user's module inside the wrappers used for tracing."""
    while hasattr(model, WRAPPED):
        model = getattr(model, WRAPPED)
    return model


def _name_of(model: Any) -> str:
    """Return the layer of operators that belong to the model itself, not to a module: the name of its class."""
    model = unwrapped(model)
    for node in model.graph.nodes if hasattr(model, "code") and hasattr(model, "meta") else ():
        if stack := node.meta.get("nn_module_stack"):
            return str(next(iter(stack.values()))[1]).rpartition(".")[2]
    return str(getattr(model, "original_name", type(model).__name__))
