"""The contract of a kind of target: everything that differs between ``llvm``, ``cuda``, ``pynq`` and others.

A kind is a module in a folder of its own, and an entry of `op_profiler.targets.TARGETS`.
"""

from __future__ import annotations

import abc
import importlib.util
from typing import TYPE_CHECKING, ClassVar

from op_profiler.compilers.tvm_build import DEFAULT_BUILD
from op_profiler.errors import MissingPackageError, UsageError

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
    """One kind of target. It has no state, and imports nothing heavy before a question needs it.

    What is measured behind RPC (at a `Place`) is measured by `op_profiler.targets.remote`, whatever its kind; "here" is
    this machine.

    Attributes:
        name: first word of a target as the user writes it; also `Device.kind`, and the folder of schedule records.
        on_host: its kernels run on this machine's processor, unless a place is given.
        on_gpu: its kernels run on a GPU, whose resources then matter.
        is_board: its code cannot run on this machine at all.
        tvm_build: the build of TVM that compiles for it: ``default``, or the name of the kind whose `activate_build`
            puts it on the path.
        tvm_packages: that bring this build; the first that is installed is used.
        rpc_device: TVM's name of the device behind a session.
        driving_cores: how many cores of this machine models on it keep busy; None for as many as they are given.
        dry_run_builds: a dry run compiles, since only a build tells how the kernels are launched.
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
        """Put `tvm_build` in front of any other TVM on this process's path; never called for ``default``.

        Args:
            folder: of the cache, for what that needs.

        Raises:
            OpProfilerError: something is missing; says what.
        """
        raise NotImplementedError

    def prepare_build(self, tvm: ModuleType) -> None:
        """After `tvm_build` was imported; never called for ``default``."""
        return

    def check(self, target: str, *, remote: bool, dry_run: bool) -> None:
        """Refuse a target of this kind that cannot be used, without importing TVM.

        Args:
            target: as the user wrote it.
            remote: it is measured on another machine.
            dry_run: it is compiled for and not measured.

        Raises:
            UsageError: an option that is none, or a board's target without a way to the board.
            OpProfilerError: this machine lacks what it takes.
        """
        return

    def check_build(self) -> None:
        """Refuse where `tvm_build` cannot be used, without importing TVM; asked where the compiler takes it
        (`Compiler.takes_builds_of_targets`).

        Raises:
            OpProfilerError: this machine lacks what it takes.
        """
        return

    @abc.abstractmethod
    def resolve(self, target: str) -> Target:
        """The `tvm.target.Target` that is compiled for.

        Raises:
            UsageError: TVM or LLVM does not understand an option.
        """

    def for_int8(self, target: Target) -> Target:
        """The `tvm.target.Target` for models in int8: without instructions that TVM cannot use."""
        return target

    @abc.abstractmethod
    def default_thread_counts(self, place: Place | None) -> tuple[int, ...]:
        """What is measured where the user does not say."""

    def check_threads(self, counts: Sequence[int], place: Place | None) -> None:
        """Refuse thread counts that make no sense; a machine behind RPC is not asked for its cores.

        Args:
            counts: one or more.

        Raises:
            UsageError: says why.
        """
        if min(counts) < 1:
            raise UsageError(f"--threads {min(counts)} is out of range")

    def check_resource(self, resource: Resource) -> None:
        """Refuse a resource that its kernels cannot notice.

        Raises:
            UsageError: says why.
        """
        if resource.of_gpu and not self.on_gpu:
            raise UsageError(f"--sweep {resource.name} is of a GPU; give --target cuda")

    def check_vendor(self, place: Place | None) -> None:
        """Refuse what has no kernels of the vendor's.

        Raises:
            UsageError: another machine's, where there is no torch.
            MissingPackageError: torch, or the build of it that is needed, is not installed.
        """
        if place is not None or self.is_board:
            raise UsageError(
                "--vendor true times torch on this machine's processor or its GPU; leave it out for a board"
            )
        if importlib.util.find_spec("torch") is None:
            raise MissingPackageError("torch", "--vendor true")

    def expect_machine(self) -> None:
        """Begin to find out what takes long of what `open_machine` will open; a model is compiled meanwhile."""
        return

    @abc.abstractmethod
    def open_machine(self, target: Target, cores: Sequence[int] | None = None) -> Machine:
        """What it is measured on here.

        Args:
            target: of `resolve`.
            cores: of this machine's processor, those that threads may be bound to; None for all.

        Raises:
            MeasureError: there is none.
        """

    @abc.abstractmethod
    def machine_identity(self) -> str:
        """`Device.identity` of what it is measured on here, without importing TVM.

        Raises:
            MeasureError: it does not tell which one it is, or there is none.
        """

    @abc.abstractmethod
    def processor_name(self) -> str:
        """What schedule records are kept by: the name of what it is measured on here, without importing TVM."""

    @abc.abstractmethod
    def lock(self) -> str | None:
        """What only one process of this machine measures with at a time (`op_profiler.measure.turns`); None: nothing.

        Raises:
            MeasureError: there is none.
        """

    @abc.abstractmethod
    def trial_worker(self) -> type[Worker]:
        """What builds candidates of a search, and times them here.

        Raises:
            MeasureError: nothing can here.
        """

    @abc.abstractmethod
    def plan_lanes(self) -> PlanLanes:
        """What the cores of plans are here.

        Raises:
            UsageError: there are no plans for it.
        """

    def describe_remote(self, runtime: RuntimeDevice, target: Target, address: str) -> Device | None:
        """What the machine behind a session is; None where its own files tell (`op_profiler.targets.remote.probe`).

        Args:
            runtime: its `rpc_device`.
            target: of `resolve`.
            address: ``host:port`` of its server.
        """
        return None
