"""torch's kernels beside ours: on this processor, and on a GPU, whose part is played by this processor."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MeasureError
from op_profiler.targets.cuda import vendor
from op_profiler.targets.cuda.trial_worker import GpuWorker
from op_profiler.targets.cuda.vendor import BuiltByVendorOnGpu, Cuda, cuda_of_torch
from op_profiler.tuning.candidate import VENDOR, Candidate, TaskSpec
from op_profiler.tuning.reference import Reference
from op_profiler.tuning.trials.vendor import vendor_kernels
from op_profiler.tuning.trials.worker import WorkerSetup

from ..installed import needs

pytestmark = needs("torch")


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, "float32")


CONVOLUTION = TaskSpec(
    "conv2d_nchw.cuda",
    (tensor(1, 8, 9, 9), tensor(16, 8, 3, 3), (2, 2), (1, 1, 1, 1), (1, 1), "float32"),
)
PRODUCT = TaskSpec("dense_small_batch.gpu", (tensor(4, 32), tensor(16, 32), None, "float32"))
BATCHED = TaskSpec("batch_matmul.cuda", (tensor(2, 8, 16), tensor(2, 8, 16), (2, 8, 8), "float32", 0, 1))


class OnThisProcessor(Cuda):
    """Stands in for the GPU: tensors stay where they are, a graph is its calls, the clock is Python's."""

    settings = "CUDA 0, cuDNN 0"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def put(self, array: np.ndarray) -> Any:
        return self.torch.from_numpy(array.copy())

    def wait(self) -> None:
        return

    def captured(self, function: Callable[[], Any], calls: int) -> Any:
        return lambda: [function() for _ in range(calls)]

    def replayed_us(self, graph: Any) -> float:
        started = time.perf_counter()
        graph()
        return (time.perf_counter() - started) * 1e6


@pytest.fixture
def orders(target: Any, tmp_path: Path) -> WorkerSetup:
    log = str(tmp_path / "log")
    return WorkerSetup(target=str(target), threads=1, modules=(), memory_bytes=None, check=True, cache="hot", log=log)


@pytest.fixture
def gpu_worker(orders: WorkerSetup, monkeypatch: pytest.MonkeyPatch) -> GpuWorker:
    monkeypatch.setattr(vendor, "Cuda", OnThisProcessor)
    return GpuWorker(orders)


@pytest.mark.parametrize(
    ("task", "kernel"),
    [(CONVOLUTION, "conv2d"), (PRODUCT, "linear"), (BATCHED, "bmm")],
    ids=["conv", "dense", "batched"],
)
def test_a_gpus_kernels_are_torchs_on_that_gpu_with_its_settings(
    gpu_worker: GpuWorker, task: TaskSpec, kernel: str
) -> None:
    built = gpu_worker.build(0, Candidate(task, VENDOR))
    assert built.error is None
    assert isinstance(gpu_worker.built[0], BuiltByVendorOnGpu)
    (result,) = gpu_worker.compare([0], 3, 100.0)
    assert len(result.samples_us) == 3 and min(result.samples_us) > 0
    assert kernel in str(result.kernel) and str(result.kernel).endswith("CUDA 0, cuDNN 0")


def test_kernels_that_compute_something_else_are_not_timed(
    gpu_worker: GpuWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    linear = torch.nn.functional.linear
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, w: linear(x, w) + 1)
    assert "wrong numbers" in str(gpu_worker.build(0, Candidate(PRODUCT, VENDOR)).error)


def test_a_study_times_torch_where_its_operators_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from op_profiler.building.request import BuildRequest
    from op_profiler.collection.request import CollectRequest
    from op_profiler.collection.studies import vendor
    from op_profiler.collection.studies.vendor import VendorComparison
    from op_profiler.frontends.frontend import ModelRequest

    class Started(Exception):
        pass

    def runner(target: str, threads: int, **options: Any) -> None:
        raise Started(target, options)

    monkeypatch.setattr(vendor, "TrialRunner", runner)
    monkeypatch.setattr(vendor, "tunables_of", lambda *_: ([], 0))
    request = CollectRequest(
        build=BuildRequest(model=ModelRequest(source="local", name="mlp"), target="cuda", threads=(0,))
    )
    nothing: Any = None
    target = load_tvm().target.Target("cuda -arch=sm_90")
    study = VendorComparison(request, frozenset(), nothing, nothing, target, lambda **_: None, {})
    with pytest.raises(Started) as started:
        study.run(nothing)
    assert started.value.args == (str(target), {"name": "cuda"})


def test_a_graph_is_timed_between_two_events_of_the_device() -> None:
    """The calls of torch's interface, in their order; the names are those of the installed torch."""
    import torch

    told: list[str] = []

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            told.append("record")

        def synchronize(self) -> None:
            told.append("synchronize")

        def elapsed_time(self, end: Any) -> float:
            return 1.5  # milliseconds

    class Torch:
        class cuda:  # noqa: N801 - torch's name
            pass

    Torch.cuda.Event = Event  # type: ignore[attr-defined]
    gpu = OnThisProcessor()
    gpu.torch = Torch

    class Graph:
        def replay(self) -> None:
            told.append("replay")

    assert Cuda.replayed_us(gpu, Graph()) == 1500.0
    assert told == ["record", "replay", "record", "synchronize"]
    for name in ("Event", "CUDAGraph", "graph", "Stream", "stream", "current_stream", "synchronize", "is_available"):
        assert hasattr(torch.cuda, name)
    for module in (torch.backends.cuda.matmul, torch.backends.cudnn.conv):
        before = module.fp32_precision
        module.fp32_precision = "ieee"
        assert module.fp32_precision == "ieee"
        module.fp32_precision = before


def test_without_a_gpu_torch_says_so() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch finds a GPU here")
    with pytest.raises(MeasureError, match="finds no GPU"):
        Cuda()


def test_whether_torch_has_cuda_is_told_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    assert cuda_of_torch() == torch.version.cuda
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('not to be imported')")
    (package / "version.py").write_text("__version__ = '2.13.0+cu126'\ncuda: Optional[str] = '12.6'\nhip = None\n")
    spec = type("Spec", (), {"origin": str(package / "__init__.py")})
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert cuda_of_torch() == "12.6"


def test_the_processors_kernels_are_refused_with_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their times are stored with the threads that were asked for."""
    import torch

    for name in ("OMP_PLACES", "OMP_PROC_BIND", "OMP_NUM_THREADS"):
        monkeypatch.setenv(name, "")
    more = torch.get_num_threads() + 1
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    with pytest.raises(MeasureError, match=f"not on {more}"):
        vendor_kernels(BATCHED, cast("Reference", None), more)
