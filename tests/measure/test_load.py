"""Load of others: of the cores in use, of all others, and of a GPU; their counters by stand-ins where a test needs more
cores than there are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from op_profiler.child_processes import COMMAND, public_command
from op_profiler.collection.sampling.run import SampleReport
from op_profiler.collection.summary import ThreadReport
from op_profiler.cores import available_cores, binding_order, parse_core_list
from op_profiler.measure import background, load
from op_profiler.measure.disturbance import CORES_SLOW, disturbed_text
from op_profiler.measure.load import CoreMeter
from op_profiler.measure.measurement import Measurement
from op_profiler.targets.cuda.load import GpuMeter

from ..command_line import op_profiler

TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A processor of many cores, for a while that the test decides."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, cores: int, siblings: int = 1) -> None:
        self.folder = folder
        self.busy = dict.fromkeys(range(cores), 0.0)
        self.now = self.own = 0.0
        self.steal: set[int] = set()
        for core in self.busy:
            topology = folder / f"sys/devices/system/cpu/cpu{core}/topology"
            topology.mkdir(parents=True)
            same = range(core % (cores // siblings), cores, cores // siblings)
            (topology / "thread_siblings_list").write_text(",".join(map(str, same)) + "\n")
        patch.setattr(time, "monotonic", lambda: self.now)
        patch.setattr(os, "times", lambda: SimpleNamespace(user=self.own, system=0.0))
        self.write()

    def write(self) -> None:
        lines = ["cpu  1 2 3 4 5 6 7 8 9 10"]
        for core, seconds in self.busy.items():
            ticks = round(seconds * TICK)
            fields = (
                [0, 0, 0, 999, 50, 0, 0, ticks, 0, 0] if core in self.steal else [ticks, 0, 0, 999, 50, 0, 0, 0, 0, 0]
            )
            lines.append(f"cpu{core} " + " ".join(map(str, fields)))
        (self.folder / "stat").write_text("\n".join([*lines, "intr 1 2 3", ""]))

    def meter(self, *cores: int) -> CoreMeter:
        return CoreMeter(cores, proc=self.folder, sysfs=self.folder / "sys")

    def passes(self, seconds: float, own: float = 0.0, **others: float) -> None:
        """Time goes by: seconds of work, by core (``c3=0.5``) for others."""
        self.now += seconds
        self.own += own
        for name, taken in others.items():
            self.busy[int(name[1:])] += taken
        self.write()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda cores, siblings=1: Server(tmp_path, monkeypatch, cores, siblings)


def test_work_on_other_cores_of_a_server_does_not_count_until_it_is_a_quarter_of_them(server: Any) -> None:
    machine = server(64)
    meter = machine.meter(0, 1)
    machine.passes(1.0, own=2.0, c0=1.0, c1=1.0, **{f"c{core}": 1.0 for core in range(2, 17)})
    quiet = meter.read()
    assert (quiet.share, quiet.disturbs) == (0.0, False)
    machine.passes(1.0, own=2.0, c0=1.0, c1=1.0, **{f"c{core}": 1.0 for core in range(2, 18)})
    loud = meter.read()
    assert (loud.share, loud.disturbs) == (0.0, True)


@pytest.mark.parametrize("stolen", [False, True])
def test_work_on_the_cores_in_use_counts(server: Any, stolen: bool) -> None:
    machine = server(4)
    meter = machine.meter(2)
    machine.passes(1.0, own=0.9, c2=1.0)
    assert not meter.read().disturbs
    machine.passes(1.0, own=0.8, c2=1.0)
    assert meter.read().disturbs
    machine.passes(1.0)
    meter.read()
    machine.steal = {2} if stolen else set()
    machine.passes(1.0, c2=0.5)
    found = meter.read()
    assert found.disturbs and found.share == pytest.approx(0.5)


def test_a_daemon_on_a_server_that_is_all_in_use_is_no_foreign_load(server: Any) -> None:
    machine = server(64)
    meter = machine.meter(*range(64))
    machine.passes(1.0, own=0.0, c5=1.0)
    assert not meter.read().disturbs
    machine.passes(1.0, own=0.0, c5=1.0, c6=0.5)
    assert meter.read().disturbs


def test_the_other_half_of_a_physical_core_is_in_use_too(server: Any) -> None:
    machine = server(8, siblings=2)  # 0 and 4 are one core
    meter = machine.meter(0)
    machine.passes(1.0, own=1.0, c0=1.0, c4=0.5)
    found = meter.read()
    assert found.disturbs and found.share == pytest.approx(0.25)
    machine.passes(1.0, own=1.0, c0=1.0, c5=0.5)
    assert not meter.read().disturbs


def test_too_short_a_time_says_nothing(server: Any) -> None:
    machine = server(2)
    meter = machine.meter(0)
    machine.passes(0.05, c0=0.05)
    assert meter.read() is None
    machine.passes(0.05, c0=0.05)
    assert meter.read().share == pytest.approx(1.0)


def test_a_real_process_on_a_core_in_use_is_seen() -> None:
    """Until it has worked for a second, however long that takes where it is not alone."""
    core = min(os.sched_getaffinity(0))
    busy = f"import os; os.sched_setaffinity(0, [{core}]); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", busy], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline()
            meter, started = CoreMeter([core]), time.monotonic()
            until = 1.0 + _busy_seconds(process.pid)
            while _busy_seconds(process.pid) < until:
                time.sleep(0.05)
            found, elapsed = meter.read(), time.monotonic() - started
        finally:
            process.kill()
    assert found is not None and found.disturbs
    assert found.share is not None and found.share > 0.1 / elapsed  # the core may be one of several in a physical one


def _busy_seconds(pid: int) -> float:
    taken = psutil.Process(pid).cpu_times()
    return float(taken.user + taken.system)


def test_lists_of_cores() -> None:
    assert parse_core_list("0-2,8\n") == {0, 1, 2, 8} and parse_core_list("\n") == set()


class Nvml:
    """In place of NVIDIA's library: processes with a context, and samples of what they used since a time."""

    class NVMLError(Exception):
        @property
        def value(self) -> int:
            return int(self.args[0])

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.used: dict[int, list[int]] | None = {}
        self.asked_us: list[int] = []

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: str) -> list[Any]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetProcessUtilization(self, gpu: str, since_us: int) -> list[Any]:  # noqa: N802
        self.asked_us.append(since_us)
        if self.used is None:
            raise self.NVMLError(3)  # not supported
        if not self.used:
            raise self.NVMLError(6)  # not found
        samples = [(pid, percent) for pid, found in self.used.items() for percent in found]
        return [SimpleNamespace(pid=p, smUtil=u, timeStamp=since_us + n + 1) for n, (p, u) in enumerate(samples)]


@pytest.fixture
def gpu_meter(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A meter of a GPU in a machine of four cores, and that machine."""
    machine = server(4)
    original = load.CoreMeter.__init__

    def init(self: Any, cores: Any) -> None:
        original(self, cores, proc=machine.folder, sysfs=machine.folder / "sys")

    monkeypatch.setattr(load.CoreMeter, "__init__", init)
    return lambda library: (GpuMeter(library, "gpu", range(4)), machine)


def test_other_processes_on_a_gpu_are_seen_and_this_one_is_none(gpu_meter: Any) -> None:
    library = Nvml(os.getpid(), 77)
    meter, machine = gpu_meter(library)
    library.used = {os.getpid(): [90, 80]}
    machine.passes(1.0, own=1.0, c0=1.0)
    found = meter.read()
    assert (found.share, found.disturbs) == (0.0, False)
    library.used = {os.getpid(): [60], 77: [40, 20]}
    machine.passes(1.0)
    found = meter.read()
    assert found.share == pytest.approx(0.3) and found.disturbs
    assert library.asked_us == sorted(set(library.asked_us))  # no sample counts twice
    library.used = {}
    machine.passes(1.0)
    assert not meter.read().disturbs


def test_in_a_container_the_busiest_process_is_this_one(gpu_meter: Any) -> None:
    library = Nvml(40_000_001, 40_000_002)
    meter, machine = gpu_meter(library)
    library.used = {40_000_001: [95], 40_000_002: [1]}
    machine.passes(1.0)
    assert not meter.read().disturbs
    library.used = {40_000_001: [70], 40_000_002: [30]}
    machine.passes(1.0)
    assert meter.read().share == pytest.approx(0.3)


@pytest.mark.parametrize(("pids", "disturbs"), [((1,), False), ((1, 2), True)])
def test_where_utilization_is_not_told_every_other_process_counts(
    gpu_meter: Any, pids: tuple[int, ...], disturbs: bool
) -> None:
    library = Nvml(*pids)
    library.used = None
    meter, machine = gpu_meter(library)
    machine.passes(1.0)
    found = meter.read()
    assert found.share is None and found.disturbs == disturbs


def test_the_processor_of_a_gpu_counts_only_where_no_core_is_left_to_launch(gpu_meter: Any) -> None:
    meter, machine = gpu_meter(None)
    machine.passes(1.0, own=1.0, c0=1.0, c1=1.0, c2=1.0, c3=1.0)  # three of four are others'
    assert not meter.read().disturbs
    machine.passes(1.0, own=0.5, c0=1.0, c1=1.0, c2=1.0, c3=1.0)
    assert meter.read().disturbs


@pytest.fixture
def spinning() -> Iterator[int]:
    """The number of a process that keeps the core busy that a model at 1 thread is measured on."""
    code = f"import os\nos.sched_setaffinity(0, [{binding_order()[0]}])\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    yield process.pid
    process.kill()
    process.wait()


def test_what_keeps_the_processor_busy_is_named(spinning: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "_MOST_NAMED", 1000)  # other tests run meanwhile
    told: list[str] = []
    background.report_background_load(available_cores(), told.append)
    (note,) = told
    assert note.startswith("the processor is busy: ")
    share = re.search(rf"\(process {spinning}\) uses (\d+)% of a core", note)
    assert share is not None and 5 <= int(share[1]) <= 120
    assert f"process {os.getpid()})" not in note


@pytest.mark.parametrize("same", [True, False])
def test_a_process_of_the_same_command_is_no_background(
    same: bool, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(background, "_LEAST_SHARE", 0.3)  # other tests run meanwhile
    if same:
        monkeypatch.setenv(COMMAND, public_command())
    spinning = request.getfixturevalue("spinning")
    told: list[str] = []
    background.report_background_load(available_cores(), told.append)
    assert any(f"(process {spinning})" in note for note in told) == (not same)


def test_nothing_is_said_of_a_quiet_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CoreMeter, "read", lambda self: load.ForeignLoad(0.0, disturbs=False))
    started = time.monotonic()
    background.report_background_load(available_cores(), pytest.fail)
    assert time.monotonic() - started < 0.4, "one short look"


@pytest.mark.slow  # one of a single batch is in tests/collection/test_unhurried.py
def test_a_run_of_several_batches_says_once_that_the_processor_is_busy(spinning: int, tmp_path: Path) -> None:
    pytest.importorskip("tvm")
    amount = ["--count", "12", "--rounds", "3", "--threads", "1"]
    words = ["sample", "--kinds", "softmax", *amount, "--db", "runs.db", "--json"]
    done = op_profiler(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("the processor is busy: ") == 1
    found = json.loads(done.stdout)
    assert found["batches"] == 2 and found["timings"] == found["measured"] >= sum(found["disturbed"].values())


def test_disturbed_times_are_counted_by_reason() -> None:
    states = [(True, None), (True, "unsteady"), (False, "unsteady"), (False, CORES_SLOW), (False, None)]
    times = {
        str(number): Measurement(median_us=1.0, foreign_load=foreign, disturbed_by=reasons)
        for number, (foreign, reasons) in enumerate(states)
    }
    report = ThreadReport(None, None, times | {"failed": Measurement(error="x", foreign_load=True)}, 0, 0)
    assert (report.timings, report.disturbed) == (5, {"background load": 2, "unsteady": 1})
    whole = SampleReport(timings=1, disturbed={"unsteady": 1})
    whole.add(SampleReport(timings=report.timings, disturbed=dict(report.disturbed)))
    assert disturbed_text(whole.timings, whole.disturbed) == (
        "4 of 6 timings are disturbed (background load 2, unsteady 2); predictors leave them out; measure them again "
        "with --remeasure noisy"
    )
    assert disturbed_text(6, {}) is None
