"""Registers a template with AutoTVM, and adds it to the implementations from which Relay chooses for an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import Target

LOWEST_PRIORITY = 1

Implementation = tuple[Callable[..., Any], Callable[..., Any]]
"""Compute and schedule function, wrapped as Relay's strategies require."""


Applies = Callable[[Any, Any], bool]


def registered(
    name: str,
    compute: Callable[..., Any],
    schedule: Callable[[Any, Any, Any, Any], None],
    wrap: Callable[[Callable[..., Any]], Callable[..., Any]],
) -> Implementation:
    """Register a template with AutoTVM.

    Args:
        name: name of the template; also the tag of the operation that `schedule` schedules.
        compute: AutoTVM's compute function of the template.
        schedule: called with the ``te.Schedule``, AutoTVM's configuration, the operation with the tag, and the output.
        wrap: converts a compute function to the form that Relay's strategy of the op requires.
    """
    tvm = load_tvm()
    generic = tvm.relay.op.strategy.generic

    def scheduled(cfg: Any, outs: Any) -> Any:
        outs = [outs] if isinstance(outs, tvm.te.Tensor) else outs
        s = tvm.te.create_schedule([t.op for t in outs])

        def visit(op: Any) -> None:
            if op.tag == name:
                schedule(s, cfg, op, outs[0])

        tvm.topi.utils.traverse_inline(s, outs[0].op, visit)
        return s

    tunable = tvm.autotvm.register_topi_compute(name, compute)
    return wrap(tunable), generic.wrap_topi_schedule(tvm.autotvm.register_topi_schedule(name, scheduled))


def offer(
    generic: Any,
    originals: dict[str, Callable[..., Any]],
    implementations: Mapping[str, tuple[Implementation, Applies]],
) -> None:
    """Offer all implementations of an op next to TVM's own, with lower priority; called once per op.

    Args:
        generic: the op's strategy, one of TVM's generic functions.
        originals: TVM's own strategy function by target key.
        implementations: by the name of the template, each with a function that is called with the attributes and inputs
            of an op, and returns whether the implementation fits the op.
    """
    for key, original in originals.items():

        def extended(attrs: Any, inputs: Any, out_type: Any, target: Target, original: Any = original) -> Any:
            strategy = original(attrs, inputs, out_type, target)
            for name, (implementation, applies) in implementations.items():
                if applies(attrs, inputs):
                    strategy.add_implementation(*implementation, name=name, plevel=LOWEST_PRIORITY)
            return strategy

        generic.register(key, extended, True)
