"""Answers for language models: sums over steps that differ in the length of their past."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from op_profiler.compilers.relax import tvm_package
from op_profiler.errors import DatasetError
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.products import BatchMatmul
from op_profiler.operators.kinds.shapes import DenseLayer, operator_of
from op_profiler.operators.operator import Operator
from op_profiler.prediction.latency.answer import Chosen, choose
from op_profiler.prediction.latency.generation import Generation, predict_generation, weights_of
from op_profiler.prediction.latency.network import Network, predict_network
from op_profiler.prediction.latency.operator_predictor import OperatorPredictor
from op_profiler.prediction.latency.request import PredictRequest
from op_profiler.report import generation as texts

from ...command_line import op_profiler

LLAMA = PredictRequest.of_options(prefill=512, decode=128)
SIZES: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}


def dense(rows: int, inputs: int, outputs: int) -> Operator:
    return operator_of(DenseLayer(batch=rows, in_features=inputs, out_features=outputs, bias=True))


def step(past: int) -> Network:
    """One product is as long as the past, as attention is; the others are those of all steps."""
    calls = [dense(1, 256, 512), dense(4, past, 64), dense(1, 512, 256)] * 3
    return Network.of(f"step after {past}", calls)


def generation(request: PredictRequest) -> Generation:
    prompt = Network.of("prompt", [dense(request.prefill or 1, 256, 512), dense(1, 512, 256)])
    steps = {past: step(past) for past in request.pasts}
    return Generation("net", 1, request.prefill or 1, request.decode or 0, prompt, steps)


@pytest.fixture
def chosen(predictor: OperatorPredictor) -> Chosen:
    return Chosen(LLAMA, predictor, None, "a dataset", predictor.device.target, (1,))


@pytest.mark.parametrize(
    ("prefill", "decode", "pasts"),
    [
        (512, 128, (512, 551, 594, 639)),
        (1, 1000, (1, 10, 100, 1000)),
        (16, 1, (16,)),
        (7, 2, (7, 8)),
        (512, None, ()),
    ],
)
def test_steps_are_predicted_from_the_first_past_to_the_last(
    prefill: int, decode: int | None, pasts: tuple[int, ...]
) -> None:
    request = PredictRequest.of_options(prefill=prefill, decode=decode)
    assert request.pasts == pasts
    if decode:
        weights = np.array(weights_of(pasts, prefill, decode))
        assert weights.sum() == pytest.approx(decode)
        assert weights @ pasts == pytest.approx(sum(range(prefill, prefill + decode))), "what is linear is exact"


def test_the_sum_is_that_over_all_steps_and_the_interval_that_of_shared_errors(chosen: Chosen) -> None:
    found = predict_generation(chosen, generation(LLAMA), 1)
    every = [predict_network(chosen.predictor, step(past)).total_us for past in range(512, 640)]
    assert found.decoding is not None and found.tokens_per_second is not None
    assert found.decoding.total_us == pytest.approx(sum(every), rel=0.05)
    assert found.tokens_per_second[0] == pytest.approx(128e6 / found.decoding.total_us)
    assert found.tokens_per_second[1] < found.tokens_per_second[0] < found.tokens_per_second[2]
    assert found.total_us == pytest.approx(found.prompt.total_us + found.decoding.total_us)
    of_step = [math.log(one.high_us / one.total_us) for one in found.steps]
    width = math.log(found.decoding.high_us / found.decoding.total_us)
    assert min(of_step) * 0.999 <= width <= max(of_step) * 1.001, "many steps are no surer than one"
    whole = math.log(found.high_us / found.total_us)
    assert whole <= max(width, math.log(found.prompt.high_us / found.prompt.total_us)) * 1.001
    shown = found.operators
    assert sum(us for us, _ in shown.values()) == pytest.approx(found.prompt.total_us)
    assert sum(us for _, us in shown.values()) * 128 == pytest.approx(found.decoding.total_us)
    assert sum(found.tiers.values()) == pytest.approx(1.0)


def test_without_decode_there_is_a_first_token_only(chosen: Chosen) -> None:
    found = predict_generation(chosen, generation(PredictRequest.of_options(prefill=8)), 1)
    assert found.decoding is None and found.tokens_per_second is None and found.steps == ()
    assert found.total_us == found.prompt.total_us
    assert json.loads(json.dumps(found.to_json()))["steps"] == []


def test_an_operator_without_an_estimate_leaves_a_least_time(chosen: Chosen) -> None:
    """A predictor that has seen products only knows nothing of what else there is."""
    one = generation(LLAMA)
    odd = described(BatchMatmul(4, 8, 64, 8))
    steps = {past: Network.of(network.name, [*network.operators, odd]) for past, network in one.steps.items()}
    found = predict_generation(chosen, Generation("net", 1, 512, 128, one.prompt, steps), 1)
    assert found.without_estimate == (odd.name,)
    assert found.decoding is not None and math.isnan(found.decoding.total_us) and found.decoding.low_us > 0
    assert math.isfinite(found.prompt.total_us) and math.isnan(found.total_us)


def test_the_request_chooses_the_compiler_and_the_source() -> None:
    assert (LLAMA.compiler, LLAMA.model.source) == ("relax", "transformers")
    plain = PredictRequest.of_options()
    assert (plain.compiler, plain.model.source) == ("relay", "local")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["llama", "--prefill", "0"], ["--prefill"]),
        (["llama", "--decode", "8"], ["--decode", "--prefill"]),
        (
            ["llama", "--prefill", "8", "--compiler", "relay"],
            ["--prefill", "give --compiler relax"],
        ),
        (["gpt2", "--prefill", "8"], ["gpt2 has no steps", "llama, mistral, qwen2"]),
        (["llama", "--prefill", "8", "--sequence-length", "8"], ["--sequence-length"]),
        (["llama", "mistral", "--prefill", "8"], ["--prefill", "one model"]),
        (["llama", "--prefill", "8", "--below", "5ms"], ["--below", "--prefill"]),
        (["llama", "--prefill", "8", "--format", "runtime_lut"], ["runtime_lut", "--prefill"]),
    ],
)
def test_what_cannot_be_answered_is_refused(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = op_profiler("predict", *arguments, folder=tmp_path, environment={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize("decode", [128, None])
def test_all_forms_of_output_have_the_answer(
    chosen: Chosen, decode: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    request = PredictRequest.of_options(prefill=512, decode=decode)
    found = predict_generation(chosen, generation(request), 1)
    texts.show_generation(Console(width=100), found)
    shown = capsys.readouterr().out
    assert "first token: " in shown and "% interval" in shown
    assert ("tokens/s" in shown) == ("after 512 to " in shown) == (decode is not None)
    told = json.loads(texts.render([found], "json", chosen.predictor.device))
    assert told["device"]["key"] == chosen.predictor.device.key and told["first_token_seconds"] > 0
    assert (told["tokens_per_second"] is None) == (decode is None)
    rows = list(csv.DictReader(io.StringIO(texts.render([found, found], "csv", chosen.predictor.device))))
    assert len(rows) == 2 * (2 + 3 * len(request.pasts))
    assert texts.origin(found, chosen).startswith("estimate: mostly regressed")


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a small decoder, and a dataset of a few of its steps."""
    if tvm_package.version() is None:
        pytest.skip(f"there is no TVM with Relax: {tvm_package.INSTALL}")
    folder = tmp_path_factory.mktemp("decoder")
    (folder / "config.json").write_text(json.dumps(SIZES))
    address = f"sqlite:///{folder / 'steps.db'}"
    lengths = ("--prefill", "16,32", "--decode", "1", "--past", "8,32,64")
    line = ("collect", str(folder), "--compiler", "relax", *lengths, "--threads", "1", "--db", address, "--quiet")
    done = op_profiler(*line, folder=folder)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(folder / "steps.db")) as connection, connection:
        for table in ("measurements", "model_timings"):
            connection.execute(f"UPDATE {table} SET foreign_load = 0")
    return folder, address


@pytest.mark.slow
def test_a_decoder_is_answered_from_its_measured_steps(steps: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = steps
    line = ("predict", str(folder), "--compiler", "relax", "--prefill", "32", "--decode", "20", "--db", address)
    done = op_profiler(*line, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "first token: " in done.stdout and "tokens/s, 90 % interval" in done.stdout
    assert "op-profiler collect" in done.stdout.splitlines()[-1] and "--past 32,37,44,51" in done.stdout
    found = json.loads(op_profiler(*line, "--format", "json", folder=tmp_path).stdout)
    assert [one["past"] for one in found["steps"]] == [32, 37, 44, 51]
    assert found["steps"][0]["total_us"] <= found["steps"][-1]["total_us"] * 1.05
    low, high = found["tokens_per_second_interval"]
    assert low < found["tokens_per_second"] < high
    assert {"attention.prefill", "attention.decode"} <= {one["operator"] for one in found["operators"]}
    rows = list(csv.DictReader(io.StringIO(op_profiler(*line, "--format", "csv", folder=tmp_path).stdout)))
    assert {row["model"] for row in rows} >= {f"{folder} (prefill 32)", f"{folder} (decode 1 after 51)"}


def test_what_does_not_ship_is_measured_first() -> None:
    with pytest.raises(DatasetError, match="--compiler relax --prefill 512 --decode 1 --past 512,551,594,639 .*--db"):
        choose(LLAMA, lambda _: None)
