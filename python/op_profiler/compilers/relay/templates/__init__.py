"""op_profiler's AutoTVM templates, registered next to TVM's own.

Each template is registered with the lowest priority: it is used only if a record names it as the fastest or if the rule
of `--schedules rule` chooses it, so any other build without records is TVM's default.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.compilers.relay.templates.template import Template

_HERE = "op_profiler.compilers.relay.templates"

TEMPLATES: Registry[Template] = Registry(
    "templates",
    "template",
    f"{_HERE}.template:Template",
    {
        "conv2d": Entry(f"{_HERE}.conv2d:TEMPLATE", "convolutions over blocked channels, dense and depthwise"),
        "dense": Entry(f"{_HERE}.dense:TEMPLATE", "products with a weight whose rows are packed in blocks"),
        "batch_matmul": Entry(f"{_HERE}.batch_matmul:TEMPLATE", "products of batches of matrices"),
        "winograd": Entry(f"{_HERE}.winograd:TEMPLATE", "3x3 convolutions by Winograd's minimal filtering"),
    },
)


@functools.cache
def register_templates() -> None:
    """Register the templates with AutoTVM and with Relay's op strategies; may be called repeatedly."""
    load_tvm()
    for _, template in TEMPLATES.available():
        template.register()
