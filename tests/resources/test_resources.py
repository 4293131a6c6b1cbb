"""Resources: what is said of them, and that they are restored. Files in a folder stand in for the kernel's."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from op_profiler.cores import available_cores
from op_profiler.errors import UnknownNameError, UsageError
from op_profiler.measure.measurement import RESOURCE_FIELDS, Settings, effective
from op_profiler.resources import RESOURCES, applied, local_resources, read_back, resource_to_sweep
from op_profiler.resources.resource import Resource, ResourceError
from op_profiler.resources.sm_share_percent import SmShare
from op_profiler.targets.cuda import tvm_build
from op_profiler.testing import ResourceSuite

FILES = {
    "devices/system/cpu/cpu0/cpufreq/scaling_available_governors": "performance powersave schedutil",
    "devices/system/cpu/cpu0/cpufreq/scaling_governor": "schedutil",
    "devices/system/cpu/cpu1/cpufreq/scaling_available_governors": "performance powersave",
    "devices/system/cpu/cpu1/cpufreq/scaling_governor": "powersave",
    "devices/system/node/node0/cpulist": "0",
    "devices/system/node/node1/cpulist": "1",
    "fs/resctrl/info/L3/cbm_mask": "fff",
    "fs/resctrl/info/L3/min_cbm_bits": "2",
    "fs/resctrl/schemata": "    MB:0=100;1=100\n    L3:0=fff;1=ff0",
    "fs/resctrl/tasks": "",
    "fs/resctrl/ours/schemata": "L3:0=fff;1=fff",
    "fs/resctrl/ours/tasks": "",
}


@pytest.fixture
def root() -> Iterator[Path]:
    """A sysfs of a machine with two cores, two memory nodes and a divisible cache; other users may look into it."""
    with tempfile.TemporaryDirectory(prefix="op-sysfs-") as folder:
        os.chmod(folder, 0o755)
        for name, text in FILES.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        yield Path(folder)


@contextlib.contextmanager
def no_rights() -> Iterator[None]:
    """As somebody who owns nothing: root may write to every file."""
    was = os.geteuid()
    if was == 0:
        try:
            os.seteuid(65534)
        except OSError as error:
            pytest.skip(f"root may not become another user here: {error}")
    try:
        yield
    finally:
        os.seteuid(was)


def skip_where_memory_cannot_be_bound(root: Path) -> None:
    """There may be no libnuma, and many containers forbid the system calls."""
    try:
        with applied({"numa_node": 0}, root):
            pass
    except ResourceError as error:
        pytest.skip(str(error))


def named(name: str, root: Path) -> Resource:
    return RESOURCES.get(name)(root)


def test_every_resource_has_its_fields_in_the_settings() -> None:
    fields = {field.name for field in dataclasses.fields(Settings)}
    names = [resource.name for resource in local_resources()]
    assert set(names) <= fields and len(set(names)) == len(names)
    assert {effective(name) for name in names if name in RESOURCE_FIELDS} <= fields
    assert names == list(RESOURCES)
    assert set(RESOURCE_FIELDS) == set(names) - {"threads", "core_set", "streams"}


def test_what_this_machine_says_is_plain_and_gives_a_reason() -> None:
    states = [resource.state() for resource in local_resources()]
    json.dumps([dataclasses.asdict(state) for state in states])
    for state in states:
        assert state.settable == (state.reason is None)
        assert state.readable or (state.value is None and not state.settable)
    by_name = {state.name: state for state in states}
    assert by_name["core_set"].value == list(available_cores()) and by_name["core_set"].settable
    assert by_name["threads"].range == {"least": 1, "most": len(available_cores())}


def test_a_machine_without_them_says_what_is_missing(tmp_path: Path) -> None:
    states = {name: named(name, tmp_path).state() for name in ("governor", "cache_ways", "numa_node")}
    assert not any(state.readable or state.settable for state in states.values())
    assert all(str(tmp_path) in (state.reason or "") for state in states.values())
    assert states["numa_node"].range is None
    assert set(read_back(of_gpu=False, root=tmp_path)) == {f"{name}_effective" for name in states}


def test_ranges_and_values(root: Path) -> None:
    skip_where_memory_cannot_be_bound(root)
    states = {name: named(name, root).state() for name in ("governor", "cache_ways", "numa_node")}
    assert all(state.settable for state in states.values()), states
    assert (states["governor"].range, states["governor"].value) == (
        ["performance", "powersave"],
        "powersave, schedutil",
    )
    assert (states["cache_ways"].range, states["cache_ways"].value) == ({"least": 2, "most": 12}, 8)
    assert (states["numa_node"].range, states["numa_node"].value) == ([0, 1], None)


def test_values_are_set_read_back_and_restored(root: Path) -> None:
    skip_where_memory_cannot_be_bound(root)
    before = {path: path.read_text() for path in root.rglob("*") if path.is_file()}
    values = {"governor": "performance", "cache_ways": 3, "numa_node": 0, "core_set": available_cores()[:1]}
    with applied(values, root):
        found = read_back(of_gpu=False, root=root)
        assert found == {"governor_effective": "performance", "cache_ways_effective": 3, "numa_node_effective": 0}
        assert (root / "fs/resctrl/schemata").read_text() == "L3:0=7;1=7\n"
        Settings(threads=1, **found)
        inherited = "from op_profiler.resources import read_back; print(read_back(of_gpu=False))"
        child = subprocess.run([sys.executable, "-c", inherited], capture_output=True, text=True, check=True)
        assert "'numa_node_effective': 0" in child.stdout
    assert {path: path.read_text().strip() for path in before} == {p: text.strip() for p, text in before.items()}
    assert named("numa_node", root).read() is None


def test_what_fails_inside_is_restored_too(root: Path) -> None:
    skip_where_memory_cannot_be_bound(root)
    with pytest.raises(KeyboardInterrupt), applied({"governor": "performance", "numa_node": 0}, root):
        raise KeyboardInterrupt
    assert named("governor", root).read() == "powersave, schedutil"
    assert named("numa_node", root).read() is None


def test_the_cache_ways_are_those_of_this_process_s_group(root: Path) -> None:
    (root / "fs/resctrl/ours/tasks").write_text(f"1\n{os.getpid()}\n")
    assert named("cache_ways", root).read() == 12
    with applied({"cache_ways": 2}, root):
        assert (root / "fs/resctrl/ours/schemata").read_text() == "L3:0=3;1=3\n"
    assert (root / "fs/resctrl/schemata").read_text() == FILES["fs/resctrl/schemata"] + "\n"


@pytest.mark.parametrize("name", ["governor", "cache_ways"])
def test_who_may_not_write_is_told_so(root: Path, name: str) -> None:
    for path in root.rglob("*"):
        if path.is_file():
            path.chmod(0o444)
    with no_rights():
        state = named(name, root).state()
        assert state.readable and not state.settable and "Permission denied" in (state.reason or "")
        with pytest.raises(UsageError, match=f"--sweep {name} is not possible here: .*Permission denied"):
            resource_to_sweep(name, root)
        with pytest.raises(ResourceError, match="Permission denied"), applied({name: 2}, root):
            raise AssertionError("nothing may run under a value that was not set")
    assert named("governor", root).read() == "powersave, schedutil"


def test_memory_at_one_node_is_not_bound(root: Path) -> None:
    skip_where_memory_cannot_be_bound(root)
    (root / "devices/system/node/node1/cpulist").unlink()
    (root / "devices/system/node/node1").rmdir()
    state = named("numa_node", root).state()
    assert state.readable and not state.settable and state.reason == "all memory is at one node"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("governor", "powersave", "powersave"),
        ("cache_ways", "12", 12),
        ("numa_node", "1", 1),
        ("core_set", str(available_cores()[0]), available_cores()[:1]),
    ],
)
def test_values_on_the_command_line(root: Path, name: str, text: str, value: object) -> None:
    if name == "numa_node":
        skip_where_memory_cannot_be_bound(root)
    assert resource_to_sweep(name, root).parse(text) == value


@pytest.mark.skipif(available_cores()[:2] != (0, 1), reason="needs cores 0 and 1")
def test_core_sets_on_the_command_line() -> None:
    cores = resource_to_sweep("core_set")
    assert [cores.parse(text) for text in ("0-1", "1+0", "1+0-1", " 1 ")] == [(0, 1), (1, 0), (1, 0), (1,)]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("governor", "schedutil", "none of performance, powersave"),
        ("cache_ways", "1", "from 2 to 12"),
        ("cache_ways", "all", "from 2 to 12"),
        ("numa_node", "2", "none of 0, 1"),
        ("core_set", "0-4096", "cores .*4096.* are not there; this process may use"),
        ("core_set", "1-0", "holds no core"),
        ("core_set", "0;1", "write it like 0, 0-3 or 0\\+2"),
    ],
)
def test_values_out_of_range_are_refused_with_the_range(root: Path, name: str, text: str, words: str) -> None:
    if name == "numa_node":
        skip_where_memory_cannot_be_bound(root)
    with pytest.raises(UsageError, match=words):
        resource_to_sweep(name, root).parse(text)


def test_what_cannot_be_swept_is_refused_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="'governer'; the nearest known: governor"):
        resource_to_sweep("governer")
    with pytest.raises(UsageError, match="--threads 1,2,4"):
        resource_to_sweep("threads")
    with pytest.raises(UsageError, match=f"--sweep governor is not possible here: there is no {tmp_path}"):
        resource_to_sweep("governor", tmp_path)


def test_the_share_of_sms_is_a_variable_for_processes_started_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Needs no GPU: the service's control pipe is a file here."""
    variable = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    share = SmShare()
    with pytest.raises(ResourceError, match="nvidia-cuda-mps-control -d"), share.applied(50):
        raise AssertionError("without the service the variable means nothing")
    (tmp_path / "control").touch()
    monkeypatch.delenv(variable, raising=False)
    for before in (None, "80"):
        if before is not None:
            monkeypatch.setenv(variable, before)
        with share.applied(50):
            assert os.environ[variable] == "50"
        assert os.environ.get(variable) == before


@pytest.mark.gpu
@pytest.mark.skipif(not tvm_build.device_count(), reason="no GPU here (no driver, or it lists no device)")
def test_the_resources_of_a_gpu_can_be_read() -> None:
    states = {resource.name: resource.state() for resource in local_resources() if resource.of_gpu}
    assert all(state.readable for state in states.values()), states
    clocks = states["gpu_clock_mhz"].range
    assert isinstance(clocks, list) and clocks == sorted(clocks) and 0 < states["gpu_clock_mhz"].value <= clocks[-1]
    assert states["sm_share_percent"].value == 100 or states["sm_share_percent"].settable


@pytest.mark.skipif(tvm_build.device_count() > 0, reason="there is a GPU")
def test_without_a_gpu_its_resources_say_so() -> None:
    for resource in local_resources():
        if resource.of_gpu:
            assert resource.state().reason == "there is no GPU that NVIDIA's driver lets this process use"


class TestResources(ResourceSuite):
    @pytest.fixture(params=RESOURCES)
    def resource(self, request: pytest.FixtureRequest) -> Resource:
        return RESOURCES.get(request.param)()
