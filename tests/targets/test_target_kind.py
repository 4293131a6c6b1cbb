"""Every kind of target answers what is asked of kinds, and ours answer it so."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MeasureError, OpProfilerError, UnknownNameError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.resources import local_resources
from op_profiler.targets import TARGETS
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, resolve_target
from op_profiler.targets.target_kind import TargetKind
from op_profiler.testing import TargetKindSuite
from op_profiler.tuning.trials.worker import Worker

PLACE = Place(host="127.0.0.1", port=9, key="a board")
WITHOUT_A_GPU = pytest.mark.skipif(tvm_build.device_count() > 0, reason="there is a GPU here")


class TestKinds(TargetKindSuite):
    @pytest.fixture(params=TARGETS)
    def kind(self, request: pytest.FixtureRequest) -> TargetKind:
        return TARGETS.get(request.param)


every_kind = pytest.mark.parametrize("kind", [TARGETS.get(name) for name in TARGETS], ids=list(TARGETS))


@every_kind
def test_a_machine_is_locked_where_it_is_here(kind: TargetKind) -> None:
    assert kind.is_board or issubclass(kind.trial_worker(), Worker)
    if not kind.is_board and (not kind.on_gpu or tvm_build.device_count() > 0):
        assert kind.lock()
        return
    with contextlib.suppress(MeasureError):
        assert kind.lock() is None


@every_kind
def test_a_gpu_takes_all_resources_but_cores_and_the_others_those_of_no_gpu(kind: TargetKind) -> None:
    refused = set()
    for resource in local_resources():
        try:
            kind.check_resource(resource)
        except UsageError:
            refused.add(resource.name)
    of_gpu = {resource.name for resource in local_resources() if resource.of_gpu}
    assert refused == ({"core_set"} if kind.on_gpu else of_gpu)


@every_kind
def test_only_hosts_with_such_units_compile_for_int8_without_them(kind: TargetKind, tvm: Any) -> None:
    target = resolve_target(f"{kind.name} -arch=sm_90" if kind.on_gpu else kind.name)
    assert ("amx" in str(kind.for_int8(target))) == (kind.on_host and "arm_cpu" not in target.keys)


@every_kind
def test_plans_have_lanes_but_those_for_boards(kind: TargetKind) -> None:
    if kind.is_board:
        with pytest.raises(UsageError, match="a board is one of several targets"):
            kind.plan_lanes()
        return
    lanes = kind.plan_lanes()
    lanes.check()
    numbers = lanes.first(lanes.usual_count)
    assert len(numbers) == lanes.usual_count and lanes.first(1) == numbers[:1]
    counts = lanes.thread_counts(len(numbers))
    assert list(counts) == sorted(set(counts)) and 1 <= counts[0] <= counts[-1] <= len(numbers)
    for count in (0, 100_000):
        with pytest.raises(UsageError, match=f"{lanes.option} {count} is not possible here"):
            lanes.first(count)


@every_kind
def test_a_request_asks_its_kind(kind: TargetKind) -> None:
    threads = kind.default_thread_counts(PLACE)
    request = BuildRequest(model=ModelRequest(source="local", name="mlp"), target=kind.name, threads=threads)
    assert request.kind is kind and request.on_host == kind.on_host
    assert request.record_file() is None or f"/{kind.name}/" in str(request.record_file())


def test_boards_need_a_way_to_them_or_a_dry_run() -> None:
    for kind in map(TARGETS.get, TARGETS):
        if kind.is_board:
            kind.check(kind.name, remote=True, dry_run=False)
            kind.check(kind.name, remote=False, dry_run=True)
            with pytest.raises(UsageError, match="--host and --port"):
                kind.check(kind.name, remote=False, dry_run=False)
            with pytest.raises(MeasureError, match="never on this machine"):
                kind.open_machine(load_tvm().target.Target("llvm"))


@WITHOUT_A_GPU
def test_a_gpu_that_is_not_there_is_missed_before_anything_is_built() -> None:
    with pytest.raises(OpProfilerError, match="this machine lacks"):
        TARGETS.get("cuda").check("cuda", remote=False, dry_run=False)


@pytest.mark.parametrize("target", ["nonsense", "vulkan -max_num_threads=256", "llvm,cuda"])
def test_an_unknown_kind_is_refused_with_those_that_there_are(target: str) -> None:
    with pytest.raises(UnknownNameError) as refused:
        kind_of(target)
    assert all(name in str(refused.value) for name in ("llvm", "cuda", "pynq"))


def test_an_empty_target_is_refused() -> None:
    with pytest.raises(UsageError, match="the target is empty"):
        kind_of("  ")


def test_asking_for_a_kind_imports_nothing_heavy() -> None:
    code = (
        "import sys; from op_profiler.targets import TARGETS; "
        "[TARGETS.get(name) for name in TARGETS]; "
        "print([name for name in ('tvm', 'numpy', 'torch', 'psutil') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
