"""How many cores a process can keep busy, as the kernel's files tell."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from op_profiler import control_groups, cores
from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Measurement, ModelTiming
from op_profiler.measure.threads import ThreadPool

ONE, HALF, MANY = ("100000 100000\n", "50000 100000\n", "100000000 100000\n")
_V1 = Path("/sys/fs/cgroup/cpu")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of the kernel: cgroup v2 at ``v2``, the processor's hierarchy of v1 at ``v1``, of memory at ``memory``."""
    places = {"v2": "cgroup2 cgroup2 rw", "v1": "cgroup cgroup rw,cpu,cpuacct", "memory": "cgroup cgroup rw,memory"}
    mounts = [f"30 24 0:26 / {tmp_path / name} rw,nosuid shared:9 - {kind}\n" for name, kind in places.items()]
    (tmp_path / "mountinfo").write_text(f"24 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n{''.join(mounts)}")
    (tmp_path / "cgroup").write_text(
        "9:memory:/\n4:cpu,cpuacct:/job/task\n1:name=systemd:/job\n0::/a.slice/b.service\n"
    )
    monkeypatch.setattr(control_groups, "_PROCESS", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"v2/cpu.max": "max 100000\n"}, None),
        ({"v2/cpu.max": ONE}, 1),  # of a container, which sees its own group as the root
        ({"v2/cpu.max": HALF}, 1),
        ({"v2/cpu.max": MANY}, None),
        ({"v2/cpu.max": "something else"}, None),
        ({"v2/a.slice/b.service/cpu.max": ONE, "v2/a.slice/cpu.max": "max 100000\n"}, 1),  # systemd's CPUQuota
        ({"v2/a.slice/b.service/cpu.max": "max 100000\n", "v2/a.slice/cpu.max": ONE}, 1),
        ({"v2/a.slice/b.service/cpu.max": MANY, "v2/a.slice/cpu.max": ONE}, 1),
        ({"v2/a.slice/another.service/cpu.max": ONE}, None),
        ({"v1/cpu.cfs_quota_us": "-1\n", "v1/cpu.cfs_period_us": "100000\n"}, None),
        ({"v1/cpu.cfs_quota_us": "150000\n", "v1/cpu.cfs_period_us": "100000\n"}, 1),
        ({"v1/job/cpu.cfs_quota_us": "150000\n", "v1/job/cpu.cfs_period_us": "100000\n"}, 1),
        ({"v1/job/task/cpu.cfs_quota_us": "150000\n", "v1/job/task/cpu.cfs_period_us": "100000\n"}, 1),
        ({"memory/cpu.cfs_quota_us": "150000\n", "memory/cpu.cfs_period_us": "100000\n"}, None),
    ],
)
def test_the_smallest_quota_on_the_way_to_the_root_counts(files: dict[str, str], limit: int | None, proc: Path) -> None:
    _write(proc, files)
    assert cores.usable_cores() == (len(os.sched_getaffinity(0)) if limit is None else limit)


def test_a_container_may_see_its_group_under_the_path_of_its_host(proc: Path) -> None:
    _write(proc, {"cgroup": "0::/docker/ab12/inner\n", "v2/inner/cpu.max": ONE})
    _write(proc, {"mountinfo": f"30 24 0:26 /docker/ab12 {proc / 'v2'} rw - cgroup2 cgroup2 rw\n"})
    assert cores.usable_cores() == 1


def test_without_the_files_of_the_kernel_there_is_no_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "_PROCESS", tmp_path / "missing")
    assert cores.usable_cores() == len(os.sched_getaffinity(0))


def _write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def group() -> Iterator[Path]:
    """A real group of v1, two levels below the root."""
    outer = _V1 / f"op_profiler-{os.getpid()}"
    try:
        (outer / "inner").mkdir(parents=True)
        (outer / "cpu.cfs_quota_us").write_text("100000")
    except OSError:
        pytest.skip("no groups of cgroup v1 can be made here")
    yield outer / "inner"
    (outer / "inner").rmdir()
    outer.rmdir()


def test_a_process_in_a_real_group_sees_the_quota_above_it(group: Path) -> None:
    code = "from op_profiler import control_groups; print(control_groups.processor_quota())"
    join = ["sh", "-c", 'echo $$ > "$0/cgroup.procs"; exec "$@"', str(group), sys.executable, "-c", code]
    done = subprocess.run(join, capture_output=True, text=True, check=True)
    assert done.stdout == "1.0\n"


@pytest.mark.skipif(len(cores.available_cores()) < 2, reason="one core")
def test_a_thread_that_is_bound_changes_nothing_and_can_be_unbound() -> None:
    """As TVM's pool binds the one that calls it."""
    usable, available = cores.usable_cores(), cores.available_cores()
    os.sched_setaffinity(0, available[:1])
    assert (cores.usable_cores(), cores.available_cores()) == (usable, available)
    cores.unbind()
    assert os.sched_getaffinity(0) == set(available)


TOPOLOGY = "devices/system/cpu/cpu{}/topology/thread_siblings_list"
ADJACENT = {TOPOLOGY.format(core): f"{core // 2 * 2}-{core // 2 * 2 + 1}\n" for core in range(8)}
BEHIND = {TOPOLOGY.format(core): f"{core % 4},{core % 4 + 4}\n" for core in range(8)}
KINDS = {f"bus/event_source/devices/{name}/cpus": cpus for name, cpus in (("cpu_core", "0-3\n"), ("cpu_atom", "4-7\n"))}
CLOCKS = {f"devices/system/cpu/cpu{core}/cpufreq/cpuinfo_max_freq": f"{9 - core // 4}\n" for core in range(8)}
LITTLE_FIRST = {f"devices/system/cpu/cpu{core}/cpu_capacity": f"{500 + core // 4}\n" for core in range(8)}
HYBRID = {TOPOLOGY.format(core): f"{core}\n" for core in range(4, 8)} | KINDS
HYBRID |= {TOPOLOGY.format(core): f"{core // 2 * 2}-{core // 2 * 2 + 1}\n" for core in range(4)}


@pytest.mark.parametrize(
    ("files", "available", "order"),
    [
        ({}, "01234567", "01234567"),
        (ADJACENT, "01234567", "02461357"),
        (BEHIND, "01234567", "01234567"),
        (ADJACENT, "1235", "1253"),  # the first hardware thread of a core need not be available
        (HYBRID | CLOCKS, "01234567", "0213"),
        (HYBRID | CLOCKS, "4567", "4567"),  # the others are not available
        (HYBRID | LITTLE_FIRST, "01234567", "4567"),
    ],
)
def test_threads_are_spread_over_physical_cores_of_one_kind(
    files: dict[str, str], available: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, files)
    monkeypatch.setattr(cores, "available_cores", lambda: tuple(map(int, available)))
    assert cores.binding_order(tmp_path) == tuple(map(int, order))
    kinds = [["cpu_core" if order[0] == "0" else "cpu_atom"]] if KINDS.items() <= files.items() else []
    taken = cores.placement(map(int, order[:2]), tmp_path)
    assert taken.pop("physical_cores") == 2 and list(taken.values()) == kinds


def test_two_hardware_threads_of_a_core_are_reported_as_one_core(tmp_path: Path) -> None:
    _write(tmp_path, HYBRID)
    assert cores.placement((0, 1), tmp_path) == {"physical_cores": 1, "core_kinds": ["cpu_core"]}
    assert cores.placement((0, 1, 4), tmp_path) == {"physical_cores": 2, "core_kinds": ["cpu_atom", "cpu_core"]}
    assert cores.placement((), tmp_path) == {}
    timing = ModelTiming(
        whole_model=Measurement(),
        before_us=None,
        after_us=None,
        sum_of_operators_us=None,
        details=cores.placement((0, 1), tmp_path),
    )
    assert timing.placement(2) == ["2 threads on 1 physical core", "on cores of the kind cpu_core"]
    assert dataclasses.replace(timing, details={"physical_cores": 2}).placement(2) == []
    assert dataclasses.replace(timing, details={}).placement(2) == []


def test_the_pool_and_the_settings_take_the_cores_in_that_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order = cores.available_cores()[::-1]
    for module in ("op_profiler.collection.request", "op_profiler.measure.threads"):
        monkeypatch.setattr(f"{module}.binding_order", lambda: order)
    build = BuildRequest(model=ModelRequest(source="local", name="mlp"))
    assert ThreadPool().core_set(1) == CollectRequest(build=build).requested_resources(1)["core_set"] == order[:1]
