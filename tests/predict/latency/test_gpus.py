"""The predictor of a GPU that ships: whose it is, and what a network takes beyond its kernels."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from op_profiler.errors import DatasetError
from op_profiler.predict.latency import predictor_files
from op_profiler.predict.latency.devices import devices_in
from op_profiler.predict.latency.examples import Examples, load_examples
from op_profiler.predict.latency.launching import Launching
from op_profiler.predict.latency.loops import loops_of
from op_profiler.predict.latency.network import Network, predict_network
from op_profiler.predict.latency.open_predictor import open_predictor, shipped_processor
from op_profiler.shipped import ShippedProcessor, shipped_gpus, shipped_processors
from op_profiler.targets.cuda import tvm_build

lacking = tvm_build.missing()
GPUS = shipped_gpus()


@pytest.fixture(scope="module", params=GPUS, ids=lambda ships: ships.folder.name)
def ships(request: pytest.FixtureRequest) -> ShippedProcessor:
    found: ShippedProcessor = request.param
    return found


@pytest.fixture(scope="module")
def shipped(ships: ShippedProcessor) -> Examples:
    assert ships.operators is not None
    return load_examples(file=ships.operators)


def launched(known: Examples, launch_us: float, kernels: int) -> Examples:
    """As if each operator launched so many kernels, and the whole took these by the law."""
    runs = np.stack([known.model, known.threads])
    _, run = np.unique(runs, axis=1, return_inverse=True)
    sums = np.bincount(run.ravel(), known.latency_us * known.occurrences)
    counts = np.bincount(run.ravel(), known.occurrences) * kernels
    whole = np.maximum(sums + 1.0 * counts, launch_us * counts) + 5.0
    one = known.where(known.threads == 1)
    return dataclasses.replace(
        one,
        launches=np.full(len(known.operators), kernels),
        whole_model_us=whole[run.ravel()][known.threads == 1],
    )


class TestLaunching:
    def test_a_network_takes_its_kernels_and_turns_or_all_its_launches(self, known: Examples) -> None:
        law = Launching(1.0, 4.0, 5.0, {known.operators[0].key: 10}, {known.operators[1].anchor: 2.0})
        calls = np.array([1, 3])
        assert law.total_us(1000.0, known.operators[:2], calls) == pytest.approx(1000 + 16 + 5)
        assert law.total_us(10.0, known.operators[:2], calls) == pytest.approx(16 * 4 + 5)

    @pytest.mark.parametrize("launch_us", [3.0, 300.0])
    def test_it_is_fitted_to_what_was_timed_as_a_whole(self, known: Examples, launch_us: float) -> None:
        examples = launched(known, launch_us, kernels=2)
        law = Launching.of(examples)
        assert law is not None and set(law.several.values()) == {2}
        model = int(np.flatnonzero(~examples.sampled)[0])
        mine = np.flatnonzero(examples.model == model)
        operators = [examples.operators[at] for at in examples.operator[mine]]
        total_us = law.total_us(float(examples.latency_us[mine].sum()), operators, examples.occurrences[mine])
        assert total_us == pytest.approx(examples.whole_model_us[mine[0]], rel=0.02)

    def test_what_is_held_out_tells_no_launches(self, known: Examples) -> None:
        examples = launched(known, 3.0, kernels=2)
        left = Launching.of(examples.where(examples.operator > 0))
        assert left is not None and set(left.several) == {one.key for one in examples.operators[1:]}

    def test_processors_launch_nothing(self, known: Examples) -> None:
        assert Launching.of(known) is None


class TestWhatShips:
    def test_its_machines_are_one_device(self, ships: ShippedProcessor, shipped: Examples) -> None:
        """Four GPUs in several hosts: the time of a kernel holds nothing of the host."""
        assert len(devices_in(file=ships.operators)) == 1 and len(shipped.devices) == 1
        assert (shipped.launches[shipped.operator] >= 1).mean() > 0.95 and set(shipped.threads) == {0}

    def test_it_does_not_stand_in_for_a_processor(self, ships: ShippedProcessor) -> None:
        assert ships not in shipped_processors() and shipped_processor() in shipped_processors()
        assert shipped_processor(on_gpu=True) in GPUS
        assert shipped_processor(ships.folder.name) == ships
        with pytest.raises(DatasetError, match="NVIDIA H100.*") as error:
            shipped_processor("no such device")
        assert "AMD EPYC" in str(error.value)

    def test_what_was_measured_adds_up(self, ships: ShippedProcessor, shipped: Examples) -> None:
        predictor = open_predictor(device=ships.folder.name)
        model = shipped.models.index("resnet-50")
        mine = np.flatnonzero(shipped.model == model)
        operators = [shipped.operators[at] for at in shipped.operator[mine]]
        network = Network.of_calls("resnet-50", operators, shipped.occurrences[mine].tolist())
        found = predict_network(predictor, network, threads=0)
        assert found.tiers == {"measured": pytest.approx(1.0)}
        assert found.total_us == pytest.approx(shipped.whole_model_us[mine[0]], rel=0.03)
        assert 0 < found.beyond_us < 0.1 * found.total_us
        assert found.to_json()["beyond_us"] == found.beyond_us

    def test_it_stays_what_it_is_in_a_file(self, ships: ShippedProcessor, tmp_path: Path) -> None:
        predictor = open_predictor(device=ships.folder.name)
        predictor_files.save(predictor, tmp_path / "predictor.zip")
        assert predictor_files.load(tmp_path / "predictor.zip").launching == predictor.launching

    def test_of_loops_nothing_is_told(self, shipped: Examples) -> None:
        assert np.isnan(loops_of(shipped.operators[:3], shipped.devices[0].target)).all()


@pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")
def test_a_model_is_lowered_for_the_gpu_that_ships() -> None:
    program = "from op_profiler.cli import main; main()"
    words = ["predict", "resnet-18", "--target", "cuda"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("times of NVIDIA H100") and "100.0% measured" in done.stdout
    assert " threads" not in done.stdout and "waiting for launches" in done.stdout


@pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")
def test_a_page_of_predictions_tells_whose_times_they_are_as_the_command_does(tmp_path: Path) -> None:
    device = open_predictor("default", on_gpu=True).device
    page = tmp_path / "page.html"
    program = (  # in a process of its own, which takes the build of TVM for CUDA
        "from op_profiler.cli import main\n"
        "from op_profiler.targets.target import kind_of\n"
        f"type(kind_of('cuda')).processor_name = lambda _: {device.processor!r}  # this machine's GPU\n"
        "main()"
    )
    words = ["predict", "mlp", "--target", "cuda", "--report", str(page)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"times of {device.processor}")
    assert f"times of {device.processor}" in page.read_text() and "NOT of" not in page.read_text()
