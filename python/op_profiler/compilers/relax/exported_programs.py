"""Programs of torch.export, where Relax's importer makes another one of them without a word."""

from __future__ import annotations

import contextlib
import io
import operator
from collections.abc import Callable
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm

_RANDOM = ("rand", "bernoulli", "exponential", "multinomial", "normal_", "normal.", "uniform", "poisson", "geometric")
_TRAINING = ("batch_norm.", "native_batch_norm.", "_native_batch_norm_legit.")


def export(program: Any, examples: tuple[Any, ...]) -> Any:
    """The program that torch.export makes of a module, with nothing left that the importer would overlook.

    Raises:
        RuntimeError: it makes none; says why in a sentence, where torch prints the whole program.
        NotImplementedError: an operator cannot be said in another way.
    """
    import torch

    try:
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            exported = torch.export.export(program, examples)
    except Exception as error:  # whatever the model's code raises, and torch's own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise RuntimeError(f"torch.export: {lines[0] if lines else type(error).__name__}") from error
    _spell_out(exported.graph)
    return exported


def _spell_out(graph: Any) -> None:
    """Rewrite the graph of an exported program, in place, so that nothing is left that the importer would overlook.

    Raises:
        NotImplementedError: an operator cannot be said in another way.
    """
    for node in list(graph.nodes):
        if node.op != "call_function":
            continue
        name = str(node.target).removeprefix("aten.")
        for overlooked, message in _OVERLOOKED:
            if overlooked(name, node):
                raise NotImplementedError(f"aten::{name} {message}")
        if name.startswith(("div.", "reciprocal.")):
            _divide_fractions(graph, node)


def _argument(node: Any, place: int, name: str) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name)


def _takes_second(node: Any) -> bool:
    return node.target is operator.getitem and node.args[1] == 1


_OVERLOOKED: list[tuple[Callable[[str, Any], Any], str]] = [
    (lambda name, node: name.startswith(_RANDOM), "draws at random, which Relax does not"),
    (lambda name, node: name.startswith("_upsample") and "_aa" in name, "smooths what it makes smaller"),
    (
        lambda name, node: "dropout" in name and _argument(node, 1, "p") and _argument(node, 2, "train"),
        "drops at random, as in training; switch it off",
    ),
    (
        lambda name, node: name.startswith("scaled_dot_product") and _argument(node, 4, "dropout_p"),
        "drops at random, as in training; switch it off",
    ),
    (lambda name, node: name.startswith("avg_pool") and _argument(node, 6, "divisor_override"), "has a divisor"),
    (
        lambda name, node: "max_pool" in name and any(_takes_second(one) for one in node.users),
        "tells the places of the largest; leave out return_indices",
    ),
    (
        lambda name, node: name.startswith(_TRAINING) and _argument(node, 5, "training"),
        "norms by the statistics of the batch, as in training",
    ),
]
"""Whether a node of a name is overlooked, and what is."""


def _divide_fractions(graph: Any, node: Any) -> None:
    """Cast whole numbers that are divided: the importer makes whole numbers of what torch makes fractions."""
    import torch

    dtype = node.meta["val"].dtype
    for given in node.all_input_nodes if dtype.is_floating_point else ():
        if given.meta["val"].dtype.is_floating_point:
            continue
        with graph.inserting_before(node):
            cast = graph.call_function(torch.ops.aten.to.dtype, (given, dtype))
        cast.meta = {**given.meta, "val": given.meta["val"].to(dtype)}
        node.replace_input_with(given, cast)


def check(node: Any, made: Any) -> None:
    """What became of a node must have its shape, and be of fractions where it is.

    Args:
        node: a ``torch.fx.Node``.
        made: an expression of Relax, or several; what is none is not checked.

    Raises:
        NotImplementedError: it has another one, or is not.
    """
    relax = load_tvm().relax
    expected = node.meta.get("val")
    if not hasattr(expected, "shape") or not isinstance(made, relax.Expr):
        return
    kind = made.ty
    if not isinstance(kind, relax.TensorType) or kind.shape is None:
        return
    sizes = [getattr(size, "value", None) for size in getattr(kind.shape, "values", ())]
    fixed = None not in sizes and all(isinstance(size, int) for size in expected.shape)
    if fixed and sizes != list(expected.shape):
        raise NotImplementedError(
            f"{node.target} became one of shape {sizes}, which is {list(expected.shape)} in torch"
        )
    if str(kind.dtype).startswith(("float", "bfloat")) != expected.dtype.is_floating_point:
        raise NotImplementedError(f"{node.target} became one of {kind.dtype}, which is {expected.dtype} in torch")
