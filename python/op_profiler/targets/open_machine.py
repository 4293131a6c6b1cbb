"""`open_machine`: opens the machine that a target is measured on: this one, or another behind RPC."""

from __future__ import annotations

from collections.abc import Sequence

from op_profiler.compilers.tvm_types import Target
from op_profiler.targets.machine import Machine, Place
from op_profiler.targets.target import kind_of


def open_machine(name: str, target: Target, place: Place | None, cores: Sequence[int] | None = None) -> Machine:
    """Open the machine that code for a target runs on.

    Args:
        name: the target as the user wrote it.
        target: result of `op_profiler.targets.target.resolve_target`.
        place: address of a machine behind RPC; None for this machine.
        cores: cores of this machine's processor that threads may be bound to; None for all.

    Raises:
        MeasureError: there is no such machine, or it does not answer.
    """
    if place is not None:
        from op_profiler.targets.remote.board import Board

        return Board(name, target, place)
    return kind_of(name).open_machine(target, cores)
