"""The predictor of a GPU that ships: whose it is, and what a network takes beyond its kernels."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from op_profiler.compilers.loop_nest import WORK, Kernel, LaunchedWork
from op_profiler.errors import DatasetError
from op_profiler.prediction.latency import predictor_files
from op_profiler.prediction.latency.adapt import adapted
from op_profiler.prediction.latency.devices import devices_in
from op_profiler.prediction.latency.examples import Examples, load_examples
from op_profiler.prediction.latency.features import KINDS
from op_profiler.prediction.latency.launch_model import LaunchModel
from op_profiler.prediction.latency.launched import NAMES as LAUNCHED
from op_profiler.prediction.latency.launched import amounts_of, launch_features
from op_profiler.prediction.latency.launching import Launching
from op_profiler.prediction.latency.loops import loops_of
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.open_predictor import examples_for, open_predictor, shipped_processor
from op_profiler.prediction.latency.operator_predictor import BOUND, OperatorPredictor, query_of
from op_profiler.prediction.latency.query import Query
from op_profiler.shipped import ShippedProcessor, shipped_gpus, shipped_processors
from op_profiler.targets.cuda import tvm_build

lacking = tvm_build.missing()
needs_build = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")
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

    def test_what_was_measured_to_launch_once_counts_once(self, known: Examples) -> None:
        """Others of its anchor launch three kernels."""
        examples = launched(known, 3.0, kernels=3)
        anchor = examples.operators[0].anchor
        assert [one.anchor for one in examples.operators].count(anchor) > 2
        examples.launches[0] = 1
        law = Launching.of(examples)
        assert law is not None and law.several[examples.operators[0].key] == 1 and law.usual[anchor] == 3.0

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

    def test_of_all_kernels_it_is_told_what_they_launch(self, shipped: Examples) -> None:
        """No TVM is asked: it ships."""
        loops = loops_of(shipped.operators, shipped.devices[0].target, note=pytest.fail)
        assert np.isfinite(loops).all() and loops.shape == (len(shipped.operators), len(LAUNCHED))
        told = shipped.launches > 0
        np.testing.assert_allclose(amounts_of(loops[told])["launches"], shipped.launches[told], rtol=1e-3)

    @needs_build
    def test_its_kernels_are_those_of_today(self, ships: ShippedProcessor) -> None:
        """A default schedule that has changed since makes another kernel: its times have to go."""
        done = subprocess.run([sys.executable, "-c", LAUNCHES, str(ships.operators)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        asked, differ = json.loads(done.stdout)
        assert asked > 50 and differ == []


@pytest.fixture(scope="module")
def query(known: Examples) -> Query:
    """Operators whose kernels launch something at random."""
    rng = np.random.default_rng(3)
    kernels = [kernel(rng, blocks=int(2 ** rng.uniform(0, 14))) for _ in known.operators]
    return Query.of(known.operators, threads=0, loops=np.stack([launch_features(one) for one in kernels]))


def _few(examples: Examples) -> Examples:
    """Of 30 operators, at equal distances."""
    return examples.where(np.isin(examples.operator, np.linspace(0, len(examples.operators) - 1, 30).astype(int)))


class TestAnotherGpu:
    """Of which a few operators were measured."""

    @pytest.fixture
    def slower(self, ships: ShippedProcessor) -> Examples:
        found = examples_for(db=None, device=ships.folder.name)
        (device,) = found.devices
        other = dataclasses.replace(device, key="fedcba9876543210", processor="half a GPU", cores=66)
        return dataclasses.replace(found, latency_us=found.latency_us * 1.6, devices=[other])

    def test_its_times_follow_from_those_of_the_one_that_ships(
        self, ships: ShippedProcessor, slower: Examples, tmp_path: Path
    ) -> None:
        found = adapted(open_predictor(device=ships.folder.name), _few(slower))
        assert found.base.correction is not None and found.base.correction.looped is not None
        predictor_files.save(found, tmp_path / "predictor.zip")
        asked = query_of(slower)
        said = predictor_files.load(tmp_path / "predictor.zip").predict(asked)
        ratio = (said.latency_us / slower.latency_us)[said.tier != BOUND]
        assert len(ratio) > 0.99 * len(slower), "only products of a few int8 and float16 layers are rare"
        assert np.median(np.abs(np.log(ratio))) < 0.15 and 0.9 < np.median(ratio) < 1.1

    def test_a_processor_s_predictor_is_told_no_loops_of_it(
        self, slower: Examples, predictor: OperatorPredictor
    ) -> None:
        at_one = dataclasses.replace(slower, threads=np.ones_like(slower.threads))
        found = adapted(predictor, _few(at_one))
        assert found.base.correction is not None and found.base.correction.looped is None


class TestTheModelOfLaunches:
    """Of kernels whose times follow from what they launch."""

    def test_it_is_fitted_to_times(self, query: Query) -> None:
        truth = LaunchModel(np.array(100), np.log([2.0, 0.01, 0.02, 0.2] + [0.001] * 5 + [1e-5, 1e-6]), np.empty(0))
        times_us = times_of_all(truth, query)
        found = LaunchModel.fit(query, times_us, np.ones(len(query)), 100)
        assert np.abs(np.log(found.times_us(query)[:, 0] / times_us)).max() < 0.02
        shares = found.shares(query)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
        assert np.isfinite(found.regression_columns(query)).all()

    def test_blocks_beyond_what_runs_at_once_wait(self, known: Examples) -> None:
        """2,048 threads to a multiprocessor: eight blocks of 256."""
        law = LaunchModel(np.array(10), np.log([1e-15, 1.0, *[1e-15] * 9]), np.empty(0))
        for blocks, rounds in ((1, 1), (80, 1), (81, 2), (800, 10), (1_280_000, 16_000)):
            one = Kernel((), None, (LaunchedWork(blocks, 256, 0, {**dict.fromkeys(WORK, 0.0), "arithmetic": 7.0}),))
            query = Query.of(known.operators[:1], threads=0, loops=launch_features(one)[None])
            assert times_of_all(law, query)[0] == pytest.approx(7.0 * rounds, rel=1e-4)

    def test_networks_of_which_one_is_told_are_asked_together(self, known: Examples, query: Query) -> None:
        plain = Query.of(known.operators[:1], threads=0)
        both = Query.joined([plain, query])
        assert both.has_loops.tolist() == [False, *[True] * len(query)]
        assert not Query.joined([plain, query.without_loops()]).has_loops.any(), "also where no compiler told any"


def kernel(rng: np.random.Generator, blocks: int) -> Kernel:
    work = {name: float(np.exp(rng.uniform(0, 6))) for name in WORK}
    return Kernel((), None, (LaunchedWork(blocks, int(rng.integers(1, 1024)), int(rng.integers(0, 9999)), work),))


def times_of_all(law: LaunchModel, query: Query) -> np.ndarray:
    """By the costs of all kinds."""
    of_kinds = np.tile(law.log_costs, (len(KINDS), 1))
    return np.asarray(dataclasses.replace(law, log_costs_of_kinds=of_kinds).times_us(query)[:, 0])


LAUNCHES = """
import json
import math
import sys

from op_profiler.targets.target import use_build_for
use_build_for("cuda")
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset.formats.flat_table import operator_of_row
from op_profiler.dataset.formats.parquet import read_parquet
from op_profiler.errors import ModelError
from op_profiler.targets.target import resolve_target

rows = [row for row in read_parquet(sys.argv[1]) if row["launches"] and row["precision"] == "float32"]
heavy = {row["operator_key"]: row for row in rows if row["anchor"].startswith("nn.")}
asked, differ = 0, []
for row in list(heavy.values())[::5]:
    try:
        found = compiler_in_use().read_kernel(operator_of_row(row), resolve_target(row["target"])).launches
    except ModelError:
        continue
    asked += 1
    was = [[math.prod(one[name]) for name in ("grid", "block")] for one in row["launches"]]
    if was != [[one.blocks, one.threads] for one in found]:
        differ.append(row["operator_name"])
print(json.dumps([asked, differ]))
"""


@needs_build
def test_a_model_is_lowered_for_the_gpu_that_ships() -> None:
    program = "from op_profiler.cli import main; main()"
    words = ["predict", "resnet-18", "--target", "cuda"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("times of NVIDIA H100") and "100.0% measured" in done.stdout
    assert " threads" not in done.stdout and "waits for launches" in done.stdout


@needs_build
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
