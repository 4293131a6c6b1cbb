"""What is stored in the real databases of the tests, and processes that use them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, Row
from op_profiler.measure.measurement import Device, Measurement, ModelTiming, Settings
from op_profiler.operators.locations import Location
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.schedules.schedule import Schedule

PACKAGE_ROOT = Path(__file__).resolve().parents[2] / "python"


LOCATIONS = (
    (Location("stem.conv", "conv2d", "net.py:3").text, Location("stem.norm", "batch_norm", "net.py:3").text),
    (),
)
"""Of the two calls of operator 0; those of the second are not known."""


class Example:
    """Values with every field set to something that a careless store would lose."""

    device = Device(
        kind="llvm",
        target="llvm -keys=cpu -mcpu=znver4",
        processor="AMD EPYC 9R14 µ",
        cores=2,
        clock_mhz=3703.25,
        l1_bytes=32768,
        l2_bytes=1048576,
        l3_bytes=33554432,
        memory_bytes=137438953472,
        driver="550.54",
        tvm_version="0.19.0",
        llvm_version="22.1.8",
        host_fingerprint="0123456789abcdef",
        properties={"flags": ["avx2", "avx512f"], "governor": None, "hypervisor": True},
    )
    settings = Settings(
        threads=2,
        threads_effective=2,
        core_set=(0, 1),
        core_set_effective=(0, 1),
        cache="model",
        cache_mechanism="in-graph",
    )
    schedule = Schedule("conv2d_NCHWc.x86", {"tile_ic": [-1, 8], "unroll_kw": True})
    failed = Measurement(error="Traceback:\n  'tvm.error' said \"no\"; DROP TABLE operators")

    @staticmethod
    def operator(index: int = 0, name: str = "fused_nn_conv2d_clip") -> Operator:
        data, weight = (1, 3, 224, 224), (64 + index, 3, 7, 7)
        return Operator(
            name=name,
            anchor="nn.conv2d",
            op_names=("nn.conv2d", "clip"),
            inputs=(TensorSpec(data, "float32"), TensorSpec((-1,), "int64")),
            params=(TensorSpec(weight, "float32"),),
            outputs=(TensorSpec((1, 64 + index, 112, 112), "float32"),),
            attrs=({"strides": [2, 2], "padding": [3, 3, 3, 3]}, {"a_min": 0.0, "a_max": float("inf")}),
            layouts={"data": "NCHW", "kernel": "OIHW", "out": ""},
            structure="0->1",
            flops=2**40 + index,
            bytes_read=2**33,
            bytes_written=3211264,
        )

    @staticmethod
    def measurement(rounds: int = 3) -> Measurement:
        samples = tuple((100.125 + i, 0.1 + 0.2) for i in range(rounds))
        return Measurement(
            samples_us=samples,
            min_us=50.2125,
            median_us=1 / 3,
            mean_us=50.7,
            std_us=0.0,
            ci_low_us=50.0,
            ci_high_us=51.0,
            load_before=0.0,
            load_after=0.015625,
            foreign_load=True,
            energy_mj=1.5,
            settled=True,
            call_overhead_us=0.015,
        )

    def row(self, index: int = 0, **changes: Any) -> Row:
        fields: dict[str, Any] = {
            "operator_key": self.operator(index).key,
            "schedule": self.schedule,
            "settings": self.settings,
            "device": self.device,
            "model_key": "m",
            "measurement": self.measurement(),
        }
        return Row(**(fields | changes))

    def timing(self, rounds: int = 3) -> ModelTiming:
        return ModelTiming(
            whole_model=self.measurement(rounds),
            before_us=900.5,
            after_us=None,
            sum_of_operators_us=901.25,
            unmeasured=("abc",),
            coverage=0.95,
            details={"rounds": rounds},
        )

    def add_model(self, dataset: Dataset, key: str = "m", operators: int = 2, **changes: Any) -> None:
        """A model whose operator 0 is called first and third."""
        fields: dict[str, Any] = {
            "key": key,
            "name": "resnet-18",
            "source": "local",
            "batch_size": 1,
            "precision": "float32",
            "executor": "default",
            "target": "llvm",
            "notes": ("first", "second"),
            "device_key": self.device.key,
        }
        places = [(0, operators)] + [(i,) for i in range(1, operators)]
        with dataset.transaction():
            dataset.add_device(self.device)
            dataset.add_model(**(fields | changes))
            operators_at = [(self.operator(i), place) for i, place in enumerate(places)]
            dataset.add_operators(key, operators_at, locations={self.operator(0).key: LOCATIONS})

    def fill(self, dataset: Dataset) -> None:
        """A model with one operator that has times and one that failed."""
        self.add_model(dataset)
        dataset.record_all([self.row(0), self.row(1, measurement=self.failed)])
        dataset.record_model_timing("m", self.settings, self.device, self.timing(), complete=True)

    def changed(self, **changes: Any) -> Settings:
        return dataclasses.replace(self.settings, **changes)


@pytest.fixture(scope="session")
def example() -> Example:
    return Example()


@pytest.fixture
def dataset(url: str) -> Iterator[Dataset]:
    with Dataset.open(url) as opened:
        yield opened


@pytest.fixture
def filled(dataset: Dataset, example: Example) -> Dataset:
    example.fill(dataset)
    return dataset


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python code in a process of its own; the code finds `Example` as `example`."""
    processes: list[subprocess.Popen[str]] = []
    prelude = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('example', {str(Path(__file__))!r})\n"
        "module = importlib.util.module_from_spec(spec); sys.modules['example'] = module\n"
        "spec.loader.exec_module(module); example = module.Example()\n"
        "from op_profiler.dataset import Dataset, export_table\n"
    )

    def start_one(code: str, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", prelude + code, *words]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield start_one
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.communicate()
