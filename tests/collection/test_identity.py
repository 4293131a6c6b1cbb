"""What counts as the same model on the same machine: only that is answered from the dataset."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection import lookup
from op_profiler.collection.request import CollectRequest
from op_profiler.dataset import Dataset
from op_profiler.errors import MeasureError, UsageError
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.llvm import identity

from .collector import rows, run, summary

MLP = CollectRequest(build=BuildRequest(model=ModelRequest(source="local", name="mlp")))
NETWORK = """
import torch
from parts import sizes
from parts.weights import weight

def net():
    layer = torch.nn.Linear(8, sizes.OUTPUTS, bias=False)
    layer.weight = torch.nn.Parameter(torch.full((sizes.OUTPUTS, 8), weight()))
    return layer.eval(), (torch.zeros(1, 8),)
"""


def collect(folder: Path, *arguments: str, libraries: Sequence[str] = (), **environment: str) -> tuple[int, int]:
    """Run the collector; how many operators it measured, and how many it found in the dataset."""
    options = ("--threads=1", "--quiet", "--summary-json=summary.json")
    done = run(folder, *arguments, *options, libraries=libraries, **environment)
    assert done.returncode == 0, done.stderr
    (entry,) = summary(folder)
    return entry["measured"], entry["reused"]


def test_a_function_of_the_users_is_what_it_returns(tmp_path: Path) -> None:
    """Whatever it imports or reads may be edited: what was lowered decides."""
    pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(NETWORK)
    (tmp_path / "parts").mkdir()
    sizes, weights = tmp_path / "parts" / "sizes.py", tmp_path / "parts" / "weights.py"
    sizes.write_text("OUTPUTS = 4\n")
    weights.write_text("def weight(): return float(open('checkpoint').read())\n")
    (tmp_path / "checkpoint").write_text("0.5")
    network = ("--modelsource=file", "--modelname=net:net")
    measured = functools.partial(collect, tmp_path, *network, libraries=("torch",))
    operators, reused = measured()
    assert operators > 0 and reused == 0
    sizes.write_text("# how many there are\nOUTPUTS = 2 + 2\n")
    (tmp_path / "net.py").write_text(NETWORK.replace("layer", "only_layer"))
    assert measured() == (0, operators)
    sizes.write_text("OUTPUTS = 5\n")
    assert measured() == (operators, 0)
    (tmp_path / "checkpoint").write_text("0.25")
    assert measured() == (operators, 0)


def test_a_twin_of_the_host_measures_for_itself(tmp_path: Path, url: str) -> None:
    """Two hosts of one kind with one dataset between them."""
    mlp = ("--modelname=mlp", f"--db={url}")
    assert collect(tmp_path, *mlp, OP_PROFILER_HOST_ID="one") == (4, 0)
    assert collect(tmp_path, *mlp, OP_PROFILER_HOST_ID="twin") == (4, 0)
    assert collect(tmp_path, *mlp, OP_PROFILER_HOST_ID="one") == (0, 4)
    with Dataset.open(url, read_only=True) as dataset:
        devices = [dataset.find_device(str(model.device_key)) for model in dataset.models()]
    assert len({device.machine_id for device in devices if device is not None}) == len(devices) == 2


class Files:
    """Stands for the files of a host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **texts: str) -> None:
        self.texts = {"boot_id": "b", "machine-id": "m", "mounts": "/dev/vda / ext4 rw 0 0", **texts}
        monkeypatch.setattr(identity, "text_in", lambda path: self.texts.get(str(path).rpartition("/")[2], ""))
        monkeypatch.setattr(identity, "_CONTAINER_FILES", ())
        for name in (*identity._CONTAINER_VARIABLES, "OP_PROFILER_HOST_ID"):
            monkeypatch.delenv(name, raising=False)

    def host_id(self, **texts: str) -> str:
        self.texts |= texts
        identity.host_id.cache_clear()
        return identity.host_id()


@pytest.fixture(autouse=True)
def forget_the_host() -> Any:
    yield
    identity.host_id.cache_clear()


def test_a_host_is_known_by_its_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(monkeypatch)
    first = files.host_id()
    assert first == files.host_id(boot_id="after a boot") and len(first) == 16
    assert first != files.host_id(**{"machine-id": "of its twin"})
    without = files.host_id(**{"machine-id": ""})
    assert without != files.host_id(boot_id="of another host")


@pytest.mark.parametrize("sign", ["mounts", "file", "variable"])
def test_in_a_container_the_kernel_tells_the_host(sign: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine-id is the image's there: the same in all containers, on every host."""
    files = Files(monkeypatch)
    outside = files.host_id()
    if sign == "mounts":
        files.texts["mounts"] = "overlay / overlay rw,lowerdir=x 0 0"
    elif sign == "file":
        monkeypatch.setattr(identity, "_CONTAINER_FILES", (str(tmp_path),))
    else:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    inside = files.host_id()
    assert inside != outside and inside == files.host_id(**{"machine-id": "of another image"})
    assert inside != files.host_id(boot_id="of another host")
    monkeypatch.setenv("OP_PROFILER_HOST_ID", "ours")
    assert files.host_id() == files.host_id(boot_id="any")


class Driver:
    """Stands for NVIDIA's driver with one GPU."""

    def __init__(self, uuid: int | None) -> None:
        self._uuid = uuid

    def cuInit(self, flags: int) -> int:
        return 0

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 1
        return 0

    def cuDeviceGet(self, handle: Any, ordinal: int) -> int:
        handle._obj.value = 7
        return 0

    def cuDeviceGetName(self, name: Any, size: int, handle: int) -> int:
        name.value = b"NVIDIA H100 80GB HBM3"
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, handle: ctypes.c_int) -> int:
        if self._uuid is None or handle.value != 7:
            return 801  # not supported
        raw._obj[:] = self._uuid.to_bytes(16, "big")
        return 0


def test_gpus_of_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    request = MLP.of(target="cuda", threads=(0,))
    keys = []
    for uuid in (0x0123, 0x0124, 0x0123):
        monkeypatch.setattr(tvm_build, "driver", lambda uuid=uuid: Driver(uuid))
        keys.append(request.build.base_key("content", str(request.machine())))
    assert keys[0] == keys[2] != keys[1]
    assert tvm_build.device_uuid() == "GPU-00000000-0000-0000-0000-000000000123"
    monkeypatch.setattr(tvm_build, "driver", lambda: Driver(None))
    with pytest.raises(MeasureError, match="could be another one's"):
        request.machine()


def test_the_device_in_the_dataset_is_the_one_that_look_ups_name(target: Any) -> None:
    found = identity.describe_host(target)
    assert found.identity == MLP.machine() and found.machine_id == identity.host_id()


@pytest.fixture
def stored(tmp_path: Path) -> Any:
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset:
        yield dataset


def test_a_model_is_found_by_what_is_known_before_it_is_built(stored: Dataset) -> None:
    base = MLP.build.base_key("content", "machine")
    assert lookup.find(stored, MLP, base, "") is None
    about = {"name": "mlp", "source": "local", "batch_size": 1, "precision": "float32", "executor": "default"}
    stored.add_model(key=MLP.build.model_key(base, ()), base_key=base, target="llvm", **about)  # type: ignore[arg-type]
    assert lookup.find(stored, MLP, base, "") is None, "its operators are not known"
    stored.add_operators(MLP.build.model_key(base, ()), [])
    found = lookup.find(stored, MLP, base, "")
    assert found is not None and found.answered == frozenset()
    others = [MLP.build.base_key("other", "machine"), MLP.build.base_key("content", "twin")]
    assert [lookup.find(stored, MLP, other, "") for other in others] == [None, None]


@pytest.mark.parametrize("schedules", ["auto", "rule"])
def test_results_of_an_older_rule_answer_only_requests_without_the_rule(stored: Dataset, schedules: str) -> None:
    """A build without the rule also notes which computations the rule could choose."""
    request = dataclasses.replace(MLP, build=dataclasses.replace(MLP.build, schedules=schedules))
    base = request.build.base_key("content", "machine")
    about = {"name": "mlp", "source": "local", "batch_size": 1, "precision": "float32", "executor": "default"}
    stored.add_model(key=base, base_key=base, target="llvm", asked=["rule 3: dense"], **about)  # type: ignore[arg-type]
    stored.add_operators(base, [])
    assert (lookup.find(stored, request, base, "") is None) == (schedules == "rule")


def test_a_model_by_the_rule_is_another_one(tmp_path: Path) -> None:
    arguments = ("--modelname", "mlp", "--schedules")
    measured, _ = collect(tmp_path, *arguments, "rule")
    assert any("compiled by this project's rule" in note for note in summary(tmp_path)[0]["notes"])
    origins = "SELECT DISTINCT p.anchor, s.origin FROM schedules s JOIN measurements m ON m.schedule_key = s.key"
    origins += " JOIN operators p ON p.key = m.operator_key"
    found = rows(tmp_path, origins)
    assert ("nn.contrib_dense_pack", "rule") in found and ("nn.softmax", "rule") in found
    assert collect(tmp_path, *arguments, "rule") == (0, measured)
    assert collect(tmp_path, *arguments, "none") == (measured, 0)
    assert collect(tmp_path, *arguments, "auto") == (0, measured)  # there are no records


@pytest.mark.parametrize(("compiler", "target"), [("relax", "llvm"), ("relay", "cuda")])
def test_the_rule_is_refused_where_it_has_no_effect(compiler: str, target: str) -> None:
    model = ModelRequest(source="local", name="mlp")
    request = BuildRequest(model=model, schedules="rule", compiler=compiler, target=target)
    with pytest.raises(UsageError, match="--schedules rule is for --compiler relay"):
        request.check_anywhere()
