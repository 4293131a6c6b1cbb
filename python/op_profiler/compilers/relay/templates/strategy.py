"""Adds an implementation to those from which Relay chooses for an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from op_profiler.compilers.tvm_types import Target

LOWEST_PRIORITY = 1

Implementation = tuple[Callable[..., Any], Callable[..., Any]]
"""Compute and schedule function, wrapped the way that Relay's strategies want them."""


def offer(
    generic: Any,
    originals: dict[str, Callable[..., Any]],
    name: str,
    implementation: Implementation,
    applies: Callable[[Any, Any], bool] = lambda attrs, inputs: True,
) -> None:
    """Offer an implementation beside TVM's own, below them all in priority.

    Args:
        generic: the op's strategy, one of TVM's generic functions.
        originals: TVM's own strategy function by target key.
        name: of the template; also that of the implementation.
        applies: whether it can compute the op with these attributes and inputs.
    """
    for key, original in originals.items():

        def extended(attrs: Any, inputs: Any, out_type: Any, target: Target, original: Any = original) -> Any:
            strategy = original(attrs, inputs, out_type, target)
            if applies(attrs, inputs):
                strategy.add_implementation(*implementation, name=name, plevel=LOWEST_PRIORITY)
            return strategy

        generic.register(key, extended, True)
