"""Finds the location of each operator of a torch model: the module to which it belongs (its layer in the imported
model), the node of an exported program, and the line of the user's code.

A trace stores the module of every operator (its scope). TorchScript files and exported programs store it in other ways.
Passes over a graph drop scopes, so the location of a node is stored as an attribute of the node.

TVM's importer names each node by its kind and a number (``aten::relu_3``), and each weight by the node that reads it.
With the names of modules instead, the names of weights would collide. TVM's names are therefore kept, and
`noted_locations` records the location of each node when the importer names the node.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import op_profiler
from op_profiler.compilers.tvm_build import replaced
from op_profiler.operators.locations import Location

WRAPPED = "op_profiler_wrapped"
"""Name of the model inside this package's wrappers; it is not part of the user's names."""

_LOCATION = "op_profiler_location"
_GENERATED = "<eval_with_key>"  # begins the name of the file of generated code
_TRACED_FRAME = re.compile(r"^(.+)\((\d+)\): ", re.MULTILINE)
_PYTHON_FRAME = re.compile(r'^ *File "(.+)", line (\d+)', re.MULTILINE)
_INSTALLED = re.compile(r"[/\\](site|dist)-packages[/\\](torch|op_profiler)[/\\]")
"""Files of torch and of this package, on the machine on which a model was saved."""


@contextlib.contextmanager
def noted_locations() -> Iterator[dict[str, str]]:
    """Yield a dict with the location of each torch node that TVM's importer converts in the block, by the name that the
    importer gives the node; an unknown location is an empty text."""
    from tvm.relay.frontend import pytorch

    usual = pytorch.DefaultNodeKindNamer
    locations: dict[str, str] = {}

    class NotingLocations(usual):  # type: ignore[misc, valid-type]  # TVM has no types
        def get_node_source_name(self, node: Any) -> str:
            name = str(super().get_node_source_name(node))
            locations[name] = node.s(_LOCATION) if node.hasAttribute(_LOCATION) else ""
            return name

    with replaced(pytorch, "DefaultNodeKindNamer", NotingLocations):
        yield locations


def inline(traced: Any, model: Any) -> None:
    """Inline all calls in the graph of a trace, in place; nodes then have their locations, as far as they are known.

    Args:
        model: the traced model.
    """
    import torch

    graph = traced.graph
    called = None if isinstance(traced, torch.jit._trace.TopLevelTracedModule) else _called(traced)
    torch._C._jit_pass_inline(graph)
    nodes = [node for node in graph.nodes() if not node.kind().startswith("prim::")]
    if isinstance(model, torch.fx.GraphModule):
        by_line = _nodes_by_line(model)
        locations = [_location_of(_node_of(_frames(node), by_line), model) for node in nodes]
    elif called is not None and [kind for kind, _ in called] == [node.kind() for node in nodes]:
        locations = [location for _, location in called]
    else:
        locations = [Location(_module_of(node.scopeName()), source_line=_users_line(_frames(node))) for node in nodes]
    whole = "" if called is not None and not any(location.layer for location in locations) else _name_of(model)
    for node, location in zip(nodes, locations):
        node.s_(_LOCATION, location._replace(layer=location.layer or whole).text)


def note_location(node: Any, function: Any, model: Any) -> None:
    """Store the location of `function`, the node out of which a pass moved `node`, as the location of `node`."""
    layer = _module_of(function.scopeName()) or _name_of(model)
    node.s_(_LOCATION, Location(layer, source_line=_users_line(_frames(function))).text)


def copy_location(node: Any, others: Iterable[Any]) -> None:
    """Give other operators the location of a node."""
    for other in others:
        if node.hasAttribute(_LOCATION) and not other.kind().startswith("prim::"):
            other.s_(_LOCATION, node.s(_LOCATION))


def _called(script: Any) -> list[tuple[str, Location]]:
    """Return kind and location of each operator of a script that was not inlined; empty if other calls are made."""
    found: list[tuple[str, Location]] = []
    modules = dict(script.named_modules(remove_duplicate=False))

    def walk(module: Any, method: str, place: str, callers: list[tuple[str, str]]) -> bool:
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
                if not walk(modules[inner], node.s("name"), inner, [*_frames(node), *callers]):
                    return False
            elif node.kind() in ("prim::CallFunction", "prim::If", "prim::Loop"):
                return False
            elif not node.kind().startswith("prim::"):
                line = _users_line([*_frames(node), *callers])
                found.append((node.kind(), Location(place, source_line=line)))
        return True

    try:
        return found if walk(script, "forward", "", []) else []
    except (KeyError, RuntimeError):  # it calls what is no module
        return []


def exported_locations(model: Any) -> Callable[[Any], Location]:
    """Return a function that returns the location of a ``torch.fx.Node`` of the program that torch.export creates from
    a model."""
    import torch

    program = unwrapped(model)
    if not isinstance(program, torch.fx.GraphModule):
        return lambda node: _location_of(node, model)
    by_line = _nodes_by_line(program)
    return lambda node: _location_of(_node_of(_exported_frames(node), by_line), program)


def _nodes_by_line(program: Any) -> dict[int, Any]:
    """Return the nodes of an exported program that have a module, by their lines in the program's generated code, which
    traces and exports of the program contain."""
    made = {node.name: node for node in program.graph.nodes if node.meta.get("nn_module_stack")}
    code = enumerate(program.code.splitlines(), start=1)
    named = ((number, line.partition(" = ")[0].strip()) for number, line in code)
    return {number: made[name] for number, name in named if name in made}


def _node_of(frames: Sequence[tuple[str, str]], by_line: Mapping[int, Any]) -> Any:
    """Return the program's node that made a node with these frames, innermost first; None if it is unknown."""
    numbers = [int(number) for file, number in frames if file.startswith(_GENERATED)]
    return by_line.get(numbers[-1]) if numbers else None


def _location_of(node: Any, model: Any) -> Location:
    """Return the location of a ``torch.fx.Node``; an empty location if the node is None or has no module.

    Args:
        model: the exported program that contains the node, or the module that was exported.
    """
    import torch

    stack = node.meta.get("nn_module_stack") if node is not None else None
    if not stack:
        return Location()  # the decomposition of an operator inserted it
    layer = _module_of(str(list(stack.values())[-1][0])) or _name_of(model)
    name = str(node.name) if isinstance(model, torch.fx.GraphModule) else ""
    return Location(layer, name, _users_line(_exported_frames(node)))


def _exported_frames(node: Any) -> list[tuple[str, str]]:
    """Return file and line number of the frames that made a ``torch.fx.Node``, innermost first."""
    return _PYTHON_FRAME.findall(node.meta.get("stack_trace") or "")[::-1]


def _frames(node: Any) -> list[tuple[str, str]]:
    """Return file and line number of the frames that made a node of a trace or script, innermost first; of a script
    only the innermost is known."""
    text = node.sourceRange()
    return (_PYTHON_FRAME if text.lstrip().startswith("File ") else _TRACED_FRAME).findall(text)


def _users_line(frames: Sequence[tuple[str, str]]) -> str:
    """Return the innermost line outside of torch and this package; its file is relative to the folder that Python
    imports it from.

    Args:
        frames: file and line number, innermost first.
    """
    import torch

    own = tuple(str(Path(package.__file__ or "").parent) for package in (torch, op_profiler))
    for file, number in frames:
        if not file.startswith((*own, "<")) and not _INSTALLED.search(file):
            folders = [
                folder for folder in (*sys.path, str(Path.cwd()), "/") if folder and Path(file).is_relative_to(folder)
            ]
            return f"{Path(file).relative_to(max(folders, key=len)) if folders else file}:{number}"
    return ""


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
