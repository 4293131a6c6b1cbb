"""The kind ``llvm``: this machine's processor, or another that LLVM compiles for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.compilers.tvm_build import host_cpu, load_tvm
from op_profiler.measure.threads import check_thread_counts, default_thread_counts
from op_profiler.measure.turns import PROCESSOR, measuring
from op_profiler.targets.llvm.options import checked
from op_profiler.targets.machine import Machine, Place
from op_profiler.targets.target import options_of
from op_profiler.targets.target_kind import TargetKind

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes
    from op_profiler.tuning.trials.worker import Worker


class LlvmKind(TargetKind):
    """The kind ``llvm``; without options it is this machine's processor."""

    name = "llvm"
    on_host = True

    def resolve(self, target: str) -> Target:
        """Return a target with the user's options, otherwise with LLVM's name of this processor."""
        options = options_of(target)
        return checked(f"llvm {options}" if options else f"llvm -mcpu={host_cpu()}")

    def for_int8(self, target: Target) -> Target:
        """Return the target without AMX (Intel from Sapphire Rapids on), because with AMX, TVM builds only dense layers
        whose sizes are multiples of its tiles."""
        if "arm_cpu" in target.keys:
            return target
        attributes = ["-amx-int8", *map(str, target.attrs.get("mattr", []) or [])]
        return load_tvm().target.Target({**target.export(), "mattr": attributes})

    def default_thread_counts(self, place: Place | None) -> tuple[int, ...]:
        """Return 1 for a machine behind RPC, otherwise the default thread counts of this processor."""
        if place is not None:
            return (1,)

        return default_thread_counts()

    def check_threads(self, counts: Sequence[int], place: Place | None) -> None:
        """Compare the counts with the cores that this process may use, unless the machine is behind RPC."""
        if place is not None:
            super().check_threads(counts, place)
            return

        check_thread_counts(tuple(counts))

    def expect_machine(self) -> None:
        """Query the processor's identity in the background."""
        from op_profiler.targets.llvm import identity

        identity.ask_ahead()

    def open_machine(self, target: Target, cores: Sequence[int] | None = None) -> Machine:
        """Open this machine's processor. When all its cores are opened for the first time, its peaks are measured,
        which takes seconds."""
        from op_profiler.targets.llvm.host import Host

        host = Host(target, cores)
        if cores is None and "peaks" not in host.device.properties:  # once for a device
            with measuring([self.lock()]):
                host.probe()
        return host

    def machine_identity(self) -> str:
        """Return the fingerprint and the identifier of the host."""
        from op_profiler.targets.llvm import identity

        return f"{identity.host_fingerprint()} {identity.host_id()}"

    def processor_name(self) -> str:
        """Return name, family and model of this processor."""
        from op_profiler.targets.llvm import identity

        return identity.processor_name()

    def lock(self) -> str:
        """Return the name of the lock of this machine's processor."""
        return PROCESSOR

    def plan_lanes(self) -> PlanLanes:
        """Return `CoreLanes`: plans run operators on the processor's cores."""
        from op_profiler.targets.llvm.core_lanes import CoreLanes

        return CoreLanes()

    def trial_worker(self) -> type[Worker]:
        """Return the class of workers that time candidates on this processor."""
        from op_profiler.tuning.trials.worker import Worker

        return Worker


LLVM = LlvmKind()
