"""A built model in TVM's own executor, to run it without this project's."""

from __future__ import annotations

from typing import Any


def executor_of(library: Any) -> Any:
    """The graph executor of a `Library`, with its weights."""
    import tvm
    from tvm.contrib import graph_executor

    made = graph_executor.create(library.get_graph_json(), library.get_lib(), tvm.cpu())
    made.set_input(**library.get_params())
    return made
