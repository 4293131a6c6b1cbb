"""Rewrites of a model for builds by the rule, before Relay's passes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from op_profiler.compilers.relay.more_channels import WithMoreChannels
from op_profiler.compilers.relay.more_columns import with_more_columns
from op_profiler.compilers.relay.phases import as_convolution
from op_profiler.compilers.relay_rewriting import Replace, rebuilt, with_body
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Call, IRModule, Node
from op_profiler.schedules.usable_records import ruled

_REWRITES: dict[str, Callable[[], Replace]] = {
    "transposed convolutions": lambda: as_convolution,
    "products of odd columns": lambda: with_more_columns,
    "convolutions of odd channels": WithMoreChannels,
}
"""For each rewrite, returns what replaces the calls of one module."""
_active: list[tuple[set[str], bool]] = []


@contextlib.contextmanager
def rewriting(asked: set[str], *, by_rule: bool) -> Iterator[None]:
    """Record in `asked` the rewrites that fit a model that is lowered inside this block; apply them if `by_rule` is
    set."""
    _active.append((asked, by_rule))
    try:
        yield
    finally:
        _active.pop()


def rewritten(module: IRModule) -> IRModule:
    """Return the module to lower in place of `module`; outside of a `rewriting` block, `module` itself."""
    if not _active:
        return module
    asked, by_rule = _active[-1]
    names: set[str] = set()
    rewrites = {name: start() for name, start in _REWRITES.items()}

    def replacement(call: Call, arguments: list[Node]) -> Node | None:
        for name, rewrite in rewrites.items():
            found = rewrite(call, arguments)
            if found is not None:
                names.add(ruled(name))
                return found
        return None

    tvm = load_tvm()
    typed = tvm.relay.transform.InferType()(module)
    body = rebuilt(typed, replacement)
    if body is None or not names:
        return module
    asked |= names
    copy = tvm.IRModule(typed.functions, typed.type_definitions)
    return tvm.relay.transform.InferType()(with_body(copy, body)) if by_rule else module
