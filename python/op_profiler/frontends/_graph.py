"""What has to be changed in the graph of a trace before TVM's importer reads it.

Weights: a layer that is called twice (all of ALBERT's) is read once per call, and the importer would copy its weights for
each. Here each weight is read once.

Writing in place: Relay's values never change, and TVM's importer keeps only what an in-place operator returns: code that goes on with the
tensor that was written to gets the old values, without a word. Here every later use is pointed at what the operator
returned, and `fill_` and `zero_` of a part of a tensor become `masked_fill` of the whole.
"""

from __future__ import annotations

from typing import Any

_FILLS = ("aten::fill_", "aten::zero_")
_VIEWS = ("aten::slice", "aten::select", "aten::unsqueeze")


def prepare(traced: Any) -> None:
    """Rewrite the graph of a trace, in place."""
    import torch

    graph = traced.graph
    torch._C._jit_pass_inline(graph)
    _read_weights_once(graph)
    for node in list(graph.nodes()):
        kind = node.kind()
        if not kind.startswith("aten::") or not kind.endswith("_") or kind.endswith("__") or kind == "aten::copy_":
            continue  # copy_ is the one that the importer follows itself
        written = node.inputsAt(0)
        if kind in _FILLS and written.node().kind() in _VIEWS:
            _fill_part(graph, node)
        else:
            written.replaceAllUsesAfterNodeWith(node, node.output())


def _read_weights_once(graph: Any) -> None:
    first: dict[tuple[str, str], Any] = {}
    for node in list(graph.nodes()):
        if node.kind() == "prim::GetAttr":
            value = first.setdefault((node.inputsAt(0).debugName(), node.s("name")), node.output())
            if value is not node.output():
                node.output().replaceAllUsesWith(value)
                node.destroy()


def _fill_part(graph: Any, node: Any) -> None:
    """``base[part].fill_(value)`` as ``base = base.masked_fill(mask, value)``, where the part is known while tracing."""
    import torch

    chain = []
    view = node.inputsAt(0)
    while view.node().kind() in _VIEWS:
        chain.append(view.node())
        view = view.node().inputsAt(0)
    base, value = view, 0 if node.kind() == "aten::zero_" else node.inputsAt(1).toIValue()
    arguments = [[i.toIValue() for i in list(n.inputs())[1:]] for n in chain]
    if base.type().sizes() is None or value is None or any(a is None for given in arguments for a in given):
        return  # computed while running: the importer drops the write
    mask = torch.zeros(base.type().sizes(), dtype=torch.bool)
    part = mask
    for made, given in zip(reversed(chain), reversed(arguments), strict=True):
        part = getattr(torch.ops.aten, made.kind().removeprefix("aten::"))(part, *given)
    part.fill_(True)
    with graph.insert_point_guard(node):
        inputs = [base, graph.insertConstant(mask), graph.insertConstant(float(value))]
        filled = graph.insertNode(graph.create("aten::masked_fill", inputs, 1))
    filled.output().setType(base.type())
    base.replaceAllUsesAfterNodeWith(filled, filled.output())
    if not node.output().uses():
        node.destroy()
