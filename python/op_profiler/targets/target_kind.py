"""The contract of a kind of target: everything that differs between ``llvm``, ``cuda``, ``pynq`` and others.

A kind is a module in a separate folder, and an entry of `op_profiler.targets.TARGETS`.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, ClassVar

from op_profiler.compilers.tvm_build import DEFAULT_BUILD
from op_profiler.errors import UsageError, require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from types import ModuleType

    from op_profiler.compilers.tvm_types import RuntimeDevice, Target
    from op_profiler.measure.measurement import Device
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes
    from op_profiler.resources.resource import Resource
    from op_profiler.targets.machine import Machine, Place
    from op_profiler.tuning.trials.worker import Worker

NO_PLANS_FOR_BOARDS = "a board is one of several targets that models choose from: --target llvm,pynq"


class TargetKind(abc.ABC):
    """One kind of target. It has no state, and imports heavy modules only inside the methods that need them.

    The methods are about devices of this machine. `op_profiler.targets.remote` measures machines behind RPC (at a
    `Place`), whatever their kind.

    Attributes:
        name: first word of a target as the user writes it; also `Device.kind`, and the folder of schedule records.
        on_host: whether its kernels run on this machine's processor, unless a place is given.
        on_gpu: whether its kernels run on a GPU, so that resources of the GPU apply.
        is_board: whether its code can run only on a board, never on this machine.
        tvm_build: the build of TVM that compiles for it: ``default``, or the name of the kind whose `activate_build`
            puts it on the path.
        tvm_packages: packages that contain this build; the first installed one is used.
        rpc_device: TVM's name of the device behind a session.
        driving_cores: number of this machine's cores that a running model occupies; None: as many as its threads.
        dry_run_builds: whether a dry run compiles, because only a build shows how the kernels are launched.
    """

    name: ClassVar[str]
    on_host: ClassVar[bool] = False
    on_gpu: ClassVar[bool] = False
    is_board: ClassVar[bool] = False
    tvm_build: ClassVar[str] = DEFAULT_BUILD
    tvm_packages: ClassVar[tuple[str, ...]] = ("xtc-tvm-python-bindings", "apache-tvm")
    rpc_device: ClassVar[str] = "cpu"
    driving_cores: ClassVar[int | None] = None
    dry_run_builds: ClassVar[bool] = False

    def activate_build(self, folder: Path) -> None:
        """Put `tvm_build` first on this process's module path; never called for ``default``.

        Args:
            folder: a cache folder for files that this needs.

        Raises:
            OpProfilerError: a package or a library is missing; the message names it.
        """
        raise NotImplementedError

    def prepare_build(self, tvm: ModuleType) -> None:
        """Prepare `tvm_build` after it was imported; never called for ``default``."""
        return

    def check(self, target: str, *, remote: bool, dry_run: bool) -> None:
        """Reject a target of this kind that cannot be used, without importing TVM.

        Args:
            target: as the user wrote it.
            remote: whether the kernels are measured on another machine.
            dry_run: whether nothing is measured: code is at most compiled for the target.

        Raises:
            UsageError: an option is invalid, or the target is a board, and no connection to the board is requested.
            OpProfilerError: this machine lacks something that is needed.
        """
        return

    def check_build(self) -> None:
        """Reject targets if `tvm_build` cannot be used, without importing TVM; called only if the compiler uses it
        (`Compiler.takes_builds_of_targets`).

        Raises:
            OpProfilerError: this machine lacks something that is needed.
        """
        return

    @abc.abstractmethod
    def resolve(self, target: str) -> Target:
        """Return the `tvm.target.Target` that code is compiled for.

        Raises:
            UsageError: TVM or LLVM does not understand an option.
        """

    def for_int8(self, target: Target) -> Target:
        """Return the `tvm.target.Target` for models in int8, without instructions that TVM cannot use."""
        return target

    @abc.abstractmethod
    def default_thread_counts(self, place: Place | None) -> tuple[int, ...]:
        """Return the thread counts to measure if the user gives none."""

    def check_threads(self, counts: Sequence[int], place: Place | None) -> None:
        """Reject impossible thread counts; the cores of a machine behind RPC are not queried.

        Args:
            counts: one or more.

        Raises:
            UsageError: the message has the reason.
        """
        if min(counts) < 1:
            raise UsageError(f"--threads {min(counts)} is out of range")

    def check_resource(self, resource: Resource) -> None:
        """Reject a resource that does not affect kernels of this kind.

        Raises:
            UsageError: the message has the reason.
        """
        if resource.of_gpu and not self.on_gpu:
            raise UsageError(f"--sweep {resource.name} is of a GPU; give --target cuda")

    def check_vendor(self, place: Place | None) -> None:
        """Reject targets on which no kernels of a vendor's library (those that torch calls) can be timed.

        Raises:
            UsageError: the target is on another machine, where there is no torch.
            MissingPackageError: torch, or the build of it that is needed, is not installed.
        """
        if place is not None or self.is_board:
            raise UsageError(
                "--vendor true times torch on this machine's processor or its GPU; leave it out for a board"
            )
        require("torch", "--vendor true")

    def expect_machine(self) -> None:
        """Start slow queries for `open_machine` in the background, while a model is compiled."""
        return

    @abc.abstractmethod
    def open_machine(self, target: Target, cores: Sequence[int] | None = None) -> Machine:
        """Open the device of this machine that runs code for this target.

        Args:
            target: result of `resolve`.
            cores: cores of this machine's processor to which threads may be bound; None for all.

        Raises:
            MeasureError: there is no such device.
        """

    @abc.abstractmethod
    def machine_identity(self) -> str:
        """Return `Device.identity` of this machine's device, without importing TVM.

        Raises:
            MeasureError: there is no such device, or it cannot be identified.
        """

    @abc.abstractmethod
    def processor_name(self) -> str:
        """Return the name under which schedule records of this machine's device are stored, without importing TVM."""

    @abc.abstractmethod
    def lock(self) -> str | None:
        """Return the name of the lock for measuring on this machine's device (`op_profiler.measure.turns`); None if no
        lock is needed.

        Raises:
            MeasureError: there is no such device.
        """

    @abc.abstractmethod
    def trial_worker(self) -> type[Worker]:
        """Return the class of workers that build candidates of a search and time them on this machine.

        Raises:
            MeasureError: candidates cannot be timed on this machine.
        """

    @abc.abstractmethod
    def plan_lanes(self) -> PlanLanes:
        """Return the lanes on which plans run operators on this machine: cores or streams.

        Raises:
            UsageError: plans are not supported for this kind of target.
        """

    def describe_remote(self, runtime: RuntimeDevice, target: Target, address: str) -> Device | None:
        """Return a description of the machine behind an RPC session; None if the machine's own files describe it
        (`op_profiler.targets.remote.probe`).

        Args:
            runtime: the device `rpc_device` of the session.
            target: result of `resolve`.
            address: ``host:port`` of the machine's RPC server.
        """
        return None
