"""Energy: a fake tree of counters, where this machine has none, and real kernels that make them go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.session import Session
from op_profiler.compilers.relay.graph_executor import load_graph
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.energy import Rapl
from op_profiler.measure.samples import Samples
from op_profiler.targets.llvm.host import Host


class Tree:
    """Zones as Linux shows them (`/sys/class/powercap`)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def zone(self, folder: str, name: str, uj: int, range_uj: int = 10**9) -> Path:
        zone = self.root / folder
        zone.mkdir(exist_ok=True)
        (zone / "name").write_text(f"{name}\n")
        (zone / "max_energy_range_uj").write_text(f"{range_uj}\n")
        self.set(folder, uj)
        return zone

    def set(self, folder: str, uj: int) -> None:
        (self.root / folder / "energy_uj").write_text(f"{uj}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_only_packages_count_and_each_once(tree: Tree) -> None:
    tree.zone("intel-rapl:0", "package-0", 1_000)
    tree.zone("intel-rapl:0:0", "core", 1_000)
    tree.zone("intel-rapl:0:1", "dram", 1_000)
    tree.zone("intel-rapl:1", "psys", 1_000)
    tree.zone("intel-rapl:2", "package-1", 1_000)
    tree.zone("intel-rapl-mmio:0", "package-0", 1_000)
    rapl = Rapl(tree.root)
    assert rapl.energy_mj() == 0.0
    for folder in (
        "intel-rapl:0",
        "intel-rapl:0:0",
        "intel-rapl:0:1",
        "intel-rapl:1",
        "intel-rapl:2",
        "intel-rapl-mmio:0",
    ):
        tree.set(folder, 4_000)
    assert rapl.energy_mj() == 6.0
    assert rapl.description == "RAPL: package-0, package-1"


def test_a_counter_that_starts_again_is_corrected_by_the_range_of_its_zone(tree: Tree) -> None:
    tree.zone("intel-rapl:0", "package-0", 9_000, range_uj=10_000)
    tree.zone("intel-rapl:1", "package-1", 60_000, range_uj=65_000)
    rapl = Rapl(tree.root)
    tree.set("intel-rapl:0", 500)  # 1,500 on
    tree.set("intel-rapl:1", 61_000)  # 1,000 on
    assert rapl.energy_mj() == pytest.approx(2.5)
    tree.set("intel-rapl:0", 600)
    tree.set("intel-rapl:1", 0)  # 4,000 on
    assert rapl.energy_mj() == pytest.approx(2.5 + 4.1)


def test_a_machine_without_readable_counters_says_so(tree: Tree) -> None:
    assert Rapl(tree.root).energy_mj() is None and "no package counter" in Rapl(tree.root).description
    tree.zone("intel-rapl:0", "package-0", 1_000)
    (tree.zone("intel-rapl:1", "package-1", 1_000) / "energy_uj").unlink()  # not root: neither package is the whole
    assert Rapl(tree.root).energy_mj() is None and "cannot be read" in Rapl(tree.root).description


class Meter:
    """A slow counter that every run of a kernel pushes on by 3 mJ and every run of the model by 7, in a real model."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.used_mj = 0.0
        self.calls: dict[int, int] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def energy_mj(self) -> float:
        time.sleep(0.06)  # longer than what is measured takes
        return self.used_mj

    def run_model(self) -> None:
        self.model.run_model()
        self.used_mj += 7.0

    def repeat_kernel(self, index: int, calls: int) -> bool:
        self.used_mj += 3.0 * calls
        self.calls[index] = self.calls.get(index, 0) + calls
        return bool(self.model.repeat_kernel(index, calls))


def test_operators_have_the_energy_of_many_unchecked_calls_and_its_state_is_stored(
    compiled_small: Any, small_network: Any, target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import numpy as np

    monkeypatch.setattr("op_profiler.measure.energy._SECONDS", 0.05)
    host = Host(target)
    inputs = {spec.name: spec.random(np.random.default_rng(0)) for spec in small_network.inputs}
    meter = Meter(load_graph(compiled_small, host.runtime, inputs))
    monkeypatch.setattr(host, "energy_mj", meter.energy_mj)
    operators = [compiled_small.by_label[label].operator for label in meter.labels]
    build = BuildRequest(model=ModelRequest(source="test", name="small"))
    request = CollectRequest(build=build, measuring=Measuring(coverage=0.5, rounds=1))
    session = Session(request, host, meter, operators, limits=host.limits.of_rounds(1))
    (result,) = session.measure({1: Samples()}, lambda *_: None)
    whole = result.timing.whole_model
    assert whole.energy_mj == pytest.approx(7.0) and whole.energy_cache == "model"
    heavy = [one.measurement for one in result.operators if one.measurement.energy_mj is not None]
    assert 0 < len(heavy) < len(result.operators) and len(heavy) == len(meter.calls)
    assert all(one.energy_mj == pytest.approx(3.0) and one.energy_cache == "hot" for one in heavy)
    light = [one.measurement for one in result.operators if one.measurement.energy_mj is None]
    assert all(one.energy_cache is None for one in light)


def test_the_virtual_machines_kernels_have_no_energy_of_their_own(tvm: Any, target: Any, small_network: Any) -> None:
    import numpy as np

    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.compilers.relay.virtual_machine import VmKernels

    inputs = [spec.random(np.random.default_rng(0)) for spec in small_network.inputs]
    kernels = VmKernels(compile_model(small_network, target, "vm"), tvm.cpu(), inputs)
    assert not kernels.repeat_kernel(0, 3)
