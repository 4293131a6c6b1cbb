"""Creates programs of torch.export that Relax's importer accepts."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from op_profiler.errors import first_line

_RANDOM = ("rand", "bernoulli", "exponential", "multinomial", "normal_", "normal.", "uniform", "poisson", "geometric")


def export(program: Any, examples: tuple[Any, ...]) -> Any:
    """Return the program that torch.export creates from the torch module `program`; reject programs that draw random
    values.

    Args:
        examples: example inputs of the module.

    Raises:
        RuntimeError: torch creates no program; the message is the first line of torch's error.
        NotImplementedError: an operator draws random values.
    """
    import torch

    try:
        with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
            exported = torch.export.export(program, examples)
    except Exception as error:  # whatever the model's code raises, and torch's own
        raise RuntimeError(f"torch.export: {first_line(error)}") from error
    _spell_out(exported.graph)
    return exported


def _spell_out(graph: Any) -> None:
    """Cast divided integers in the graph of an exported program, in place (`_divide_fractions`).

    Raises:
        NotImplementedError: an operator draws random values.
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


_OVERLOOKED: list[tuple[Callable[[str, Any], Any], str]] = [
    (lambda name, node: name.startswith(_RANDOM), "draws at random, which Relax does not"),
    (
        lambda name, node: "dropout" in name and _argument(node, 1, "p") and _argument(node, 2, "train"),
        "drops at random, as in training; switch it off",
    ),
    (
        lambda name, node: name.startswith("scaled_dot_product") and _argument(node, 4, "dropout_p"),
        "drops at random, as in training; switch it off",
    ),
]
"""Operators that draw random values, by name. The importer does not draw any, and nothing else would show this, because
outputs that depend on random values cannot be compared with torch (`building.agreement`)."""


def _divide_fractions(graph: Any, node: Any) -> None:
    """Cast integers that are divided: for them, the importer would return integers, but torch returns fractions."""
    import torch

    dtype = node.meta["val"].dtype
    for given in node.all_input_nodes if dtype.is_floating_point else ():
        if given.meta["val"].dtype.is_floating_point:
            continue
        with graph.inserting_before(node):
            cast = graph.call_function(torch.ops.aten.to.dtype, (given, dtype))
        cast.meta = {**given.meta, "val": given.meta["val"].to(dtype)}
        node.replace_input_with(given, cast)
