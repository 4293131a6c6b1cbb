"""What ships: the dataset, and the predictor that was fitted to it."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler import Predictor
from op_profiler.predict.latency import predictor_files
from op_profiler.predict.latency.examples import COLUMNS, Examples, examples_of, load_examples
from op_profiler.predict.latency.features import kind_of
from op_profiler.predict.latency.fit import fingerprint
from op_profiler.predict.latency.network import Network
from op_profiler.predict.latency.predictor import MEASURED, query_of
from op_profiler.predict.latency.steady_times import steady
from op_profiler.shipped import shipped_operators, shipped_predictor


@pytest.fixture(scope="module")
def examples() -> Examples:
    file = shipped_operators()
    if file is None:
        pytest.skip("results/ is not beside the package")
    return steady(load_examples(file=file))


def test_the_dataset_is_as_large_as_its_card_says(examples: Examples) -> None:
    assert len(examples.operators) >= 3000
    assert (~examples.sampled).sum() >= 10
    assert set(np.unique(examples.threads)) == {1, 2}
    wanted = {"conv2d", "depthwise", "dense", "batch_matmul", "pool", "softmax", "reduce", "elementwise", "layout"}
    assert wanted <= {kind_of(operator) for operator in examples.operators}


def test_the_predictor_was_fitted_to_that_dataset(examples: Examples) -> None:
    file = shipped_predictor()
    assert file is not None
    predictor = predictor_files.load(file)  # what cannot be read is fitted anew, which would hide it
    assert predictor.fingerprint == fingerprint(examples)
    found = predictor.predict(query_of(examples))
    assert (found.tier == MEASURED).all()


def test_a_network_of_the_dataset_adds_up(examples: Examples) -> None:
    predictor = Predictor.from_dataset()
    model = examples.models.index("resnet-18")
    rows = np.flatnonzero((examples.model == model) & (examples.threads == 1))
    operators = [examples.operators[i] for i in examples.operator[rows]]
    network = Network.of_calls("resnet-18", operators, examples.occurrences[rows].tolist())
    found = predictor.predict_model(network, threads=1)
    assert found.total_us == pytest.approx(examples.whole_model_us[rows[0]], rel=0.05)
    assert found.low_us < examples.whole_model_us[rows[0]] < found.high_us


def test_sweeps_count_once(examples: Examples) -> None:
    from op_profiler.dataset import read_parquet

    file = shipped_operators()
    assert file is not None
    rows = [row for row in read_parquet(file, COLUMNS) if row["model_name"] == "mlp"]
    once = examples_of(rows)
    other_cores = [row | {"core_set": [core + 7 for core in row["core_set"]]} for row in rows]
    governed = [row | {"governor": "powersave"} for row in rows]
    swept = examples_of([*other_cores, *rows, *governed])
    assert len(swept) == len(once)
    assert swept.latency_us.tolist() == once.latency_us.tolist()
    assert swept.traffic_bytes.tolist() == once.traffic_bytes.tolist()
    assert swept.left_out["on other cores"] == len(once)
    assert swept.left_out["of a sweep"] == len(once) + sum(once.left_out.values())
