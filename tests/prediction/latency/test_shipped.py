"""What ships: of each processor a dataset, and the predictor that was fitted to it; and which of them answers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from op_profiler.errors import DatasetError, UsageError
from op_profiler.prediction.latency import predictor_files
from op_profiler.prediction.latency.calibration import device_sentence
from op_profiler.prediction.latency.devices import DeviceName, is_here
from op_profiler.prediction.latency.examples import COLUMNS, Examples, examples_of, load_examples
from op_profiler.prediction.latency.features import kind_of
from op_profiler.prediction.latency.fit import measured_of
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.open_predictor import open_predictor, shipped_processor
from op_profiler.prediction.latency.operator_predictor import MEASURED, OperatorPredictor, query_of
from op_profiler.prediction.latency.steady_times import at_reference_state
from op_profiler.prediction.latency.usable import reason_against
from op_profiler.schedules.records import slug
from op_profiler.shipped import ShippedProcessor, nearest_processor, shipped_processors
from op_profiler.targets.llvm.identity import processor_name


@pytest.fixture(scope="module", params=shipped_processors(), ids=lambda ships: ships.folder.name)
def ships(request: pytest.FixtureRequest) -> ShippedProcessor:
    found: ShippedProcessor = request.param
    return found


@pytest.fixture(scope="module")
def examples(ships: ShippedProcessor) -> Examples:
    assert ships.operators is not None
    return at_reference_state(load_examples(file=ships.operators))


@pytest.fixture(scope="module")
def predictor(ships: ShippedProcessor) -> OperatorPredictor:
    """What cannot be read is fitted anew by who asks, which would hide it."""
    assert ships.predictor is not None
    return predictor_files.load(ships.predictor)


def test_the_dataset_is_as_large_as_its_card_says(examples: Examples) -> None:
    assert len(examples.operators) >= 2000
    assert (~examples.sampled).sum() >= 10
    assert set(np.unique(examples.threads)) == {1, 2}
    wanted = {"conv2d", "depthwise", "dense", "batch_matmul", "pool", "softmax", "reduce", "elementwise", "layout"}
    assert wanted <= {kind_of(operator) for operator in examples.operators}


def test_powers_are_told_apart_by_their_exponents(examples: Examples) -> None:
    edges = {edge for one in examples.operators for edge in one.structure.split(";") if edge.startswith("power(")}
    scalars = {edge for edge in edges if "const:float32[]" in edge}
    if not scalars:
        pytest.skip("no operator of this processor computes a power")
    exponents = {float(edge.partition("=")[2].rstrip(")")) for edge in scalars}
    assert len(exponents) <= len(scalars) and all(map(math.isfinite, exponents))


def test_all_is_of_the_processor_that_its_folder_names(ships: ShippedProcessor, examples: Examples) -> None:
    (device,) = examples.devices
    assert slug(device.processor) == ships.folder.name
    assert is_here(device) == (ships.folder.name == slug(processor_name()))


def test_the_predictor_was_fitted_to_that_dataset(examples: Examples, predictor: OperatorPredictor) -> None:
    """Times at the usual state come from least squares, whose last digits each processor has of its own."""
    measured = measured_of(examples, query_of(examples))
    assert (predictor.measured.keys == measured.keys).all()
    np.testing.assert_allclose(predictor.measured.latency_us, measured.latency_us, rtol=1e-6)
    assert predictor.device == examples.devices[0]
    found = predictor.predict(query_of(examples))
    assert (found.tier == MEASURED).all()


def test_a_network_of_the_dataset_adds_up(examples: Examples, predictor: OperatorPredictor) -> None:
    model = examples.models.index("resnet-18")
    rows = np.flatnonzero((examples.model == model) & (examples.threads == 1))
    operators = [examples.operators[i] for i in examples.operator[rows]]
    network = Network.of_calls("resnet-18", operators, examples.occurrences[rows].tolist())
    found = predict_network(predictor, network, threads=1)
    assert found.total_us == pytest.approx(examples.whole_model_us[rows[0]], rel=0.05)
    assert found.low_us < examples.whole_model_us[rows[0]] < found.high_us


def test_what_is_asked_for_answers(ships: ShippedProcessor, predictor: OperatorPredictor) -> None:
    for name in (predictor.device.key, predictor.device.processor, ships.folder.name):
        assert shipped_processor(name) == ships
    assert open_predictor(device=predictor.device.key).fingerprint == predictor.fingerprint


def test_what_does_not_ship_is_refused_with_what_does() -> None:
    with pytest.raises(DatasetError, match=r"no device fits 'a toaster'; choose one with --device: .*AMD EPYC"):
        open_predictor(device="a toaster")


def test_of_several_that_fit_this_machine_s_own_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("op_profiler.targets.llvm.identity.processor_name", lambda: "ARMv8")
        with pytest.raises(UsageError, match=r"2 devices fit; choose one with --device: ") as refused:
            shipped_processor("EPYC")
    assert "Xeon" not in str(refused.value) and "H100" not in str(refused.value)
    own = "AMD EPYC family 25 model 17"
    monkeypatch.setattr("op_profiler.targets.llvm.identity.processor_name", lambda: own)
    assert shipped_processor("EPYC").folder.name == "amd-epyc-family-25-model-17"
    assert shipped_processor("emeraldrapids").folder.name == "intel-r-xeon-r-processor-family-6-model-207"


@pytest.fixture
def three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of three processors that ship, without contents."""
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    for name in ("amd-epyc-family-26-model-2", "intel-xeon-family-6-model-207", "intel-xeon-family-6-model-20"):
        (tmp_path / "results" / name).mkdir(parents=True)
        (tmp_path / "results" / name / "predictor.zip").touch()
    (tmp_path / "results" / "intel-xeon-family-6-model-207" / "operators.parquet").write_bytes(b"most")
    (tmp_path / "results" / "README.md").touch()
    return tmp_path / "results"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("intel-xeon-family-6-model-207", "intel-xeon-family-6-model-207"),
        ("intel-xeon-family-6-model-20", "intel-xeon-family-6-model-20"),
        ("amd-ryzen-family-25-model-33", "amd-epyc-family-26-model-2"),
        ("intel-core-family-6-model-158", "intel-xeon-family-6-model-207"),
        ("aarch64-cpu-implementer-0x41-cpu-part-0xd0c", "intel-xeon-family-6-model-207"),
    ],
)
def test_the_nearest_answers_where_a_processor_does_not_ship(three: Path, name: str, nearest: str) -> None:
    assert nearest_processor(name) == ShippedProcessor(three / nearest)


def test_where_nothing_ships_that_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path)
    assert nearest_processor("amd-epyc") is None
    with pytest.raises(DatasetError, match="give one with --db"):
        open_predictor()


def test_a_processor_is_of_this_machine_by_family_and_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("op_profiler.targets.llvm.identity.processor_name", lambda: "AMD EPYC family 26 model 20")

    def of(processor: str, target: str = "llvm -mcpu=znver5") -> bool:
        return is_here(DeviceName("0" * 16, "llvm", processor, 2, target))

    assert of("AMD EPYC family 26 model 20") and of("AMD EPYC")
    assert not of("AMD EPYC family 26 model 2") and not of("AMD EPYC family 25 model 17")
    assert not of("AMD EPYC family 26 model 20", "cuda")
    device = DeviceName("0" * 16, "llvm", "AMD EPYC", 2, "llvm")
    assert "NOT" not in device_sentence(device, None, "llvm -mcpu=znver5")
    of_gpu = device_sentence(device, None, "cuda")
    assert "NOT of this machine's GPU;" in of_gpu and of_gpu.endswith("calibrate --target cuda")
    monkeypatch.setattr("op_profiler.targets.cuda.tvm_build.device_name", lambda: "NVIDIA H100")
    assert "NOT" not in device_sentence(DeviceName("0" * 16, "cuda", "NVIDIA H100", 132, "cuda"), None, "cuda")
    assert "NOT" not in device_sentence(device, "a calibration", "cuda")


def test_sweeps_count_once() -> None:
    from op_profiler.dataset import read_parquet

    file = shipped_processors()[0].operators
    assert file is not None
    of_mlp = [row for row in read_parquet(file, COLUMNS) if row["model_name"] == "mlp"]
    rows = [row for row in of_mlp if reason_against(row) is None]
    once = examples_of(rows)
    assert len(once) > 0
    other_cores = [row | {"core_set": [core + 7 for core in row["core_set"]]} for row in rows]
    governed = [row | {"governor": "powersave"} for row in rows]
    swept = examples_of([*other_cores, *rows, *governed])
    assert len(swept) == len(once)
    assert swept.latency_us.tolist() == once.latency_us.tolist()
    assert swept.traffic_bytes.tolist() == once.traffic_bytes.tolist()
    assert swept.left_out["on other cores"] == len(once)
    assert swept.left_out["of a sweep"] == len(once)
