"""The kinds ``pynq`` and ``arm_cpu``: boards with ARM processors, which are measured over RPC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NoReturn

from op_profiler.errors import MeasureError, UsageError
from op_profiler.targets.llvm.options import checked
from op_profiler.targets.machine import Machine, Place
from op_profiler.targets.target import options_of
from op_profiler.targets.target_kind import NO_PLANS_FOR_BOARDS, TargetKind

if TYPE_CHECKING:
    from op_profiler.compilers.tvm_types import Target
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes
    from op_profiler.tuning.trials.worker import Worker


class ArmBoard(TargetKind):
    """The kind of a target that is an ARM board; options in the user's target replace the default ones.

    Attributes:
        default_options: default options for LLVM.
        default_threads: default thread counts.
    """

    is_board = True
    driving_cores = 0
    default_options: ClassVar[str]
    default_threads: ClassVar[tuple[int, ...]] = (1,)

    def check(self, target: str, *, remote: bool, dry_run: bool) -> None:
        """Raise UsageError if kernels are measured, but not over RPC."""
        if not remote and not dry_run:
            raise UsageError(
                f"target {self.name!r} is measured on a board: give --host and --port of its tracker or RPC server "
                "(op-profiler devices --host H --port P lists the boards), or --dry-run to compile only"
            )

    def resolve(self, target: str) -> Target:
        """Return a target of LLVM for ARM, with the user's options in place of `default_options`."""
        return checked(f"llvm -keys=arm_cpu,cpu -device=arm_cpu {options_of(target) or self.default_options}")

    def default_thread_counts(self, place: Place | None) -> tuple[int, ...]:
        """Return `default_threads`."""
        return self.default_threads

    def open_machine(self, target: Target, cores: Sequence[int] | None = None) -> Machine:
        """Raise MeasureError: a board is opened over RPC only."""
        self._not_here()

    def machine_identity(self) -> str:
        """Raise MeasureError: a board is identified over RPC, not by this machine."""
        self._not_here()

    def processor_name(self) -> str:
        """Return the name of the kind, under which the records of all its boards are stored."""
        return self.name

    def lock(self) -> None:
        """Return None: a tracker gives a board to one process at a time."""
        return

    def plan_lanes(self) -> PlanLanes:
        """Raise UsageError: plans are not supported on boards."""
        raise UsageError(NO_PLANS_FOR_BOARDS)

    def trial_worker(self) -> type[Worker]:
        """Raise MeasureError: candidates are timed over RPC only."""
        self._not_here()

    def _not_here(self) -> NoReturn:
        raise MeasureError(f"target {self.name!r} is measured on a board, never on this machine")


class Pynq(ArmBoard):
    """The kind ``pynq``: PYNQ boards, whose processor is a Cortex-A9 with hard floats."""

    name = "pynq"
    default_options = (
        "-model=pynq -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon -mfloat-abi=hard -num-cores=2"
    )
    default_threads = (1, 2)


class ArmCpu(ArmBoard):
    """The kind ``arm_cpu``: boards with a 64-bit ARM processor, unless options name another processor."""

    name = "arm_cpu"
    default_options = "-mtriple=aarch64-linux-gnu -mattr=+neon"


PYNQ = Pynq()
ARM_CPU = ArmCpu()
