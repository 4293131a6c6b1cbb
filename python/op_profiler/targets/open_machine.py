"""Which machine a target is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from op_profiler.targets.machine import Machine, Place
from op_profiler.targets.target import BOARD_KINDS, target_kind


def default_thread_counts(target: str, place: Place | None) -> tuple[int, ...]:
    """What is measured where the user does not say: a machine behind RPC is not asked for its cores."""
    if target_kind(target) == "cuda":
        return (0,)
    if target_kind(target) == "pynq":
        return (1, 2)
    if place is not None or target_kind(target) in BOARD_KINDS:
        return (1,)
    from op_profiler.measure import threads

    return threads.default_thread_counts()


def open_machine(name: str, target: Any, place: Place | None, cores: Sequence[int] | None = None) -> Machine:
    """The machine that code for a target runs on.

    Args:
        name: the target as the user wrote it.
        target: what `op_profiler.targets.target.resolve_target` made of it.
        place: of a machine behind RPC; None for this one.
        cores: of this machine's processor, those that threads may be bound to; None for all.

    Raises:
        MeasureError: there is no such machine, or it does not answer.
    """
    if place is not None:
        from op_profiler.targets.remote.board import Board

        return Board(name, target, place)
    if target_kind(name) == "cuda":
        from op_profiler.targets.cuda.gpu import Gpu

        return Gpu(target)
    from op_profiler.targets.llvm.host import Host

    host = Host(target, cores)
    if cores is None and "peaks" not in host.device.properties:  # once for a device
        from op_profiler.measure.turns import locks_of, measuring

        with measuring(locks_of([name])):
            host.probe()
    return host
