"""The kind ``cuda``: this machine's GPU, or one that code is only compiled for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.errors import MissingPackageError, OpProfilerError, UsageError
from op_profiler.targets.cuda import machine_code, tvm_build
from op_profiler.targets.machine import Machine, Place
from op_profiler.targets.target import tvm_target
from op_profiler.targets.target_kind import TargetKind

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from op_profiler.compilers.tvm_types import RuntimeDevice, Target
    from op_profiler.measure.measurement import Device
    from op_profiler.parallel.runtime.plan_lanes import PlanLanes
    from op_profiler.resources.resource import Resource
    from op_profiler.tuning.trials.worker import Worker

_WITHOUT_A_GPU = (
    ". Two ways on: --host and --port of a tracker that has a GPU; or --dry-run with --target 'cuda -arch=sm_90', "
    "which compiles every kernel and measures nothing"
)
_TORCH_WITH_CUDA = (
    "a torch that was built with CUDA, and the one that is installed was not. Install one with: "
    "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu126"
)


class CudaKind(TargetKind):
    """The kind ``cuda``: GPU 0 of those that this process can use, through the TVM with CUDA."""

    name = "cuda"
    on_gpu = True
    tvm_build = "cuda"
    tvm_packages = ("bitblas",)
    rpc_device = "cuda"
    driving_cores = 1  # of the thread that launches
    dry_run_builds = True

    def activate_build(self, folder: Path) -> None:
        """Activate the TVM with CUDA; without a driver, a stub compiled in `folder` stands in for it."""
        tvm_build.activate(folder / "driver-stub")

    def prepare_build(self, tvm: ModuleType) -> None:
        """Make TVM compile CUDA code with NVRTC, or with nvcc if NVRTC is missing."""
        machine_code.use(tvm)

    def check(self, target: str, *, remote: bool, dry_run: bool) -> None:
        """Check the form of the architecture, and that there is a GPU to measure on or to compile for."""
        architecture = re.search(r"-arch=(\S*)", target)
        if architecture is not None and not re.fullmatch(r"sm_\d{2,3}[a-z]?", architecture[1]):
            raise UsageError(f"-arch={architecture[1]} is no architecture of a GPU; they are named like sm_90")
        compile_only = remote or dry_run
        lacking = [] if compile_only else tvm_build.missing_gpu()
        if lacking:
            raise OpProfilerError(f"target cuda: this machine lacks {'; '.join(lacking)}{_WITHOUT_A_GPU}")
        if compile_only and "-arch=" not in target and not tvm_build.device_count():
            raise UsageError(
                "there is no GPU here to compile for: name its architecture, as in --target 'cuda -arch=sm_90'"
            )

    def check_build(self) -> None:
        """Raise OpProfilerError if the TVM with CUDA or a library of it is missing."""
        lacking = tvm_build.missing()
        if lacking:
            raise OpProfilerError(f"target cuda: this machine lacks {'; '.join(lacking)}")

    def resolve(self, target: str) -> Target:
        """Return TVM's target for the user's target string; no options are added."""
        return tvm_target(target)

    def default_thread_counts(self, place: Place | None) -> tuple[int, ...]:
        """Return 0, which stands for the threads that the schedule decides."""
        return (0,)

    def check_threads(self, counts: Sequence[int], place: Place | None) -> None:
        """Raise UsageError for any count but 0."""
        if min(counts) < 0:
            raise UsageError(f"--threads {min(counts)} is out of range")
        if tuple(counts) != (0,):
            raise UsageError(
                "--threads has no meaning for cuda: a schedule decides the blocks and threads of its kernels"
            )

    def check_resource(self, resource: Resource) -> None:
        """Raise UsageError for ``core_set``; other resources of the processor affect the launching thread."""
        if resource.name == "core_set":
            raise UsageError("--sweep core_set has no meaning for cuda: kernels run on the GPU's SMs")

    def check_vendor(self, place: Place | None) -> None:
        """Reject targets as the base class does, and a torch that was built without CUDA."""
        from op_profiler.targets.cuda.vendor import cuda_of_torch

        super().check_vendor(place)
        if cuda_of_torch() is None:
            raise MissingPackageError("torch", "--vendor true with --target cuda", build=_TORCH_WITH_CUDA)

    def open_machine(self, target: Target, cores: Sequence[int] | None = None) -> Machine:
        """Open GPU 0 of those that this process can use; `cores` is ignored."""
        from op_profiler.targets.cuda.gpu import Gpu

        return Gpu(target)

    def machine_identity(self) -> str:
        """Return the fingerprint of the host and the UUID of the GPU."""
        from op_profiler.targets.llvm import identity

        return f"{identity.host_fingerprint()} {tvm_build.device_uuid()}"

    def processor_name(self) -> str:
        """Return the driver's name of the GPU; ``gpu`` without a GPU."""
        return tvm_build.device_name() or "gpu"

    def lock(self) -> str:
        """Return the UUID of the GPU, which is the name of its lock."""
        return tvm_build.device_uuid()

    def plan_lanes(self) -> PlanLanes:
        """Return `StreamLanes`: plans run operators on the GPU's streams."""
        from op_profiler.targets.cuda.stream_lanes import StreamLanes

        return StreamLanes()

    def trial_worker(self) -> type[Worker]:
        """Return the class of workers that time candidates on this GPU."""
        from op_profiler.targets.cuda.trial_worker import GpuWorker

        return GpuWorker

    def describe_remote(self, runtime: RuntimeDevice, target: Target, address: str) -> Device:
        """Describe the GPU by what TVM's runtime reports of it, and by the address."""
        from op_profiler.targets.cuda.gpu import describe_remote_gpu

        return describe_remote_gpu(target, runtime, address)


CUDA = CudaKind()
