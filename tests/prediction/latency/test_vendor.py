"""Kernels of vendors' libraries: stored predictors, and real models with the included one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import op_profiler
from op_profiler.errors import DatasetError, UnknownNameError, UsageError
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.prediction.latency import vendor
from op_profiler.prediction.latency.network import Network, NetworkPrediction, predict_network
from op_profiler.prediction.sets import neusight
from op_profiler.prediction.sets.kernel_problem import KernelPredictor
from op_profiler.prediction.sets.kernels import Processor
from op_profiler.shipped import shipped_vendor_kernels

from ... import command_line
from ...installed import needs

SHEETS = [Processor("one", 1e7, 1e6, 80, 6e6), Processor("two", 2e7, 2e6, 108, 4e7)]


def rows(count: int) -> list[dict[str, str]]:
    random, found = np.random.default_rng(0), []
    for at in range(count):
        high, wide, depth = (int(size) for size in 2 ** random.integers(5, 12, 3))
        ms = (7 + 2 * high * wide * depth / 1e7) / 1e3
        shape = {"B": "1", "M": str(high), "N": str(wide), "K": str(depth)}
        found.append({"OPName": "linear", "Device": SHEETS[at % 2].name, "Latency": str(ms), **shape})
    return found


def test_a_stored_predictor_gives_the_same_times(tmp_path: Path) -> None:
    table = neusight.kernels(rows(400), SHEETS)
    fitted = KernelPredictor.fit(table, 0, own=False)
    path = tmp_path / "kernels.zip"
    vendor.save(path, {"one": {"float32": SHEETS[0]}}, {"float32 product": fitted}, {"float32 product": 1.0})
    contents, loaded = vendor.load(path)
    assert list(contents["gpus"]) == ["one"]
    before, after = fitted.predict(table), loaded["float32 product"].predict(table)
    assert np.array_equal(before.latency_us, after.latency_us) and np.array_equal(before.high_us, after.high_us)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DatasetError, match="vendor kernels"):
        vendor.load(path)


def test_products_are_predicted_on_every_gpu_that_is_included() -> None:
    network = Network.of("two", [described(Dense(512, 4096, 4096)), described(BatchMatmul(12, 128, 128, 64))])
    times = {}
    for device in vendor.vendor_devices():
        found = predict_network(vendor.open_vendor(device.key), network, threads=0)
        assert found.low_us < found.total_us < found.high_us and found.tiers == {"vendor": 1.0}
        times[device.key] = found.total_us
    assert times["h100"] < times["a100"] < times["v100"]
    assert shipped_vendor_kernels().stat().st_size < 4e6
    with pytest.raises(UnknownNameError, match="h200"):
        vendor.open_vendor("b580")


def test_an_operator_smaller_than_all_measured_ones_has_no_estimate() -> None:
    found = op_profiler.predict("mlp", device="h200", kernels="vendor")
    assert isinstance(found, NetworkPrediction)
    assert np.isnan(found.total_us) and any("softmax" in name for name in found.unsupported)


@needs("torch")
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_attention_has_a_whole_sum(precision: str) -> None:
    import torch

    class Attention(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x.reshape(1, 256, 8, 64).transpose(1, 2)
            near = torch.softmax(heads @ heads.transpose(2, 3) / 8, dim=-1)
            return (near @ heads).transpose(1, 2).reshape(1, 256, 512)

    for device in ("a100", "h200"):
        found = op_profiler.predict(
            Attention(), torch.zeros(1, 256, 512), device=device, kernels="vendor", precision=precision
        )
        assert isinstance(found, NetworkPrediction)
        assert not found.unsupported and found.low_us < found.total_us < found.high_us


@needs("torch")
def test_a_norm_is_one_kernel_and_a_convolution_has_no_estimate() -> None:
    import torch

    class Small(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = torch.nn.Sequential(torch.nn.Conv1d(8, 8, 3, padding=1), torch.nn.LayerNorm(1024))
            self.last = torch.nn.Linear(1024, 1024)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.softmax(self.last(self.parts(x)), dim=-1)

    found = op_profiler.predict(Small(), torch.zeros(1024, 8, 1024), device="h100", kernels="vendor")
    assert isinstance(found, NetworkPrediction)
    tiers = dict(zip([operator.anchor for operator in found.network.operators], found.operators.tiers()))
    assert tiers["nn.softmax"] == tiers["variance"] == tiers["mean"] == "vendor"
    assert [name for name in found.unsupported if "conv" in name]
    assert np.isnan(found.total_us) and found.partial_us > 0


def test_the_command_names_the_other_source(tmp_path: Path) -> None:
    done = command_line.op_profiler("predict", "mlp", "--device", "h200", "--kernels", "vendor", folder=tmp_path)
    assert done.returncode == 1, done.stderr
    first, last = done.stdout.splitlines()[0], done.stdout.splitlines()[-1]
    assert (
        "NVIDIA's libraries" in first
        and "kernels of NVIDIA's libraries, not TVM's" in last
        and "op-profiler check" not in last
    )
    asked = ("predict", "mlp", "--device", "a100", "--kernels", "vendor", "--precision", "float16", "--format", "json")
    done = command_line.op_profiler(*asked, folder=tmp_path)
    found = json.loads(done.stdout)
    assert found["device"]["compiler"] == "vendor" and found["tiers"] == {"vendor": 1.0}


@pytest.mark.parametrize("option", [{"db": "some.db"}, {"target": "llvm"}, {"predictor": "roofline"}])
def test_options_of_other_predictors_are_refused(option: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="leave out"):
        op_profiler.predict("mlp", device="h200", kernels="vendor", **option)
