"""The project's AutoTVM templates, registered beside TVM's own.

Each is offered to the compiler at the lowest priority: it is taken only where a record says that it is the fastest, so
a build without records is TVM's default.
"""

from __future__ import annotations

import functools

from op_profiler.compilers.relay.tvm_build import load_tvm

SUFFIX = ".op_profiler"
"""Ends the name of each of the project's templates."""


@functools.cache
def register_templates() -> None:
    """Make the templates known to AutoTVM and to Relay's op strategies; may be called any number of times."""
    load_tvm()
    from op_profiler.schedules.templates import batch_matmul, conv2d, dense, winograd

    for module in (conv2d, dense, batch_matmul, winograd):
        module.register()
