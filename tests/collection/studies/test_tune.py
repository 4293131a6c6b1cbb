"""Tuning as a user does it: from the command line to records, rows and a compared model; with kills on the way."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from op_profiler.collection.request import CollectRequest
from op_profiler.collection.summary import ModelReport
from op_profiler.run import Run

from .. import collector
from ..collector import killed, rows, stored

MLP = ["--modelsource", "local", "--modelname", "mlp", "--threads", "1", "--coverage", "1"]
TUNE = [*MLP, "--iftune", "true", "--trials", "10"]


def changes(folder: Path) -> dict[str, str]:
    """To the environment."""
    return {"OP_PROFILER_SCHEDULES": str(folder / "schedules"), "NO_COLOR": "1"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return collector.run(folder, *arguments, "--summary-json", "summary.json", **changes(folder))


def summary(folder: Path) -> dict[str, Any]:
    return collector.summary(folder)[0]


TRIALS = "SELECT count(*) FROM measurements m JOIN schedules s ON s.key = m.schedule_key WHERE s.origin = 'trial'"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str], dict[str, Any]]:
    folder = tmp_path_factory.mktemp("tuned")
    done = run(folder, *TUNE, "--ifcompare", "true", "--ifpartial", "true")
    return folder, done, summary(folder)


def test_a_tuning_run_reports_what_it_found(tuned: Any) -> None:
    _, done, entry = tuned
    assert done.returncode == 0, done.stderr
    assert len(entry["tuning"]) == 3 and all(t["new"] == t["trials"] == 11 for t in entry["tuning"])
    assert all(0 < t["best_in_model_us"] <= t["default_in_model_us"] for t in entry["tuning"])
    (compared,) = entry["comparison"]
    assert entry["stage_seconds"]["tuning"] > 1, "also where the model itself was not measured again"
    assert compared["agree"] and compared["difference"] < 1e-3 and compared["rounds"] >= 11
    assert compared["speedup_low"] <= compared["speedup"] <= compared["speedup_high"]
    assert len(compared["operators"]) == 4
    assert "default/tuned" in done.stdout and "agree within" in done.stdout and "95 % interval" in done.stdout


def test_every_trial_is_a_row_with_its_factors(tuned: Any) -> None:
    folder, _, entry = tuned
    query = (
        "SELECT s.template, s.knobs, s.factor_tile, s.factor_reorder, s.factor_parallel, m.samples_us, m.error, "
        "t.threads_effective, t.executor, t.cache FROM measurements m JOIN schedules s ON s.key = m.schedule_key "
        "JOIN settings t ON t.key = m.settings_key WHERE s.origin = 'trial'"
    )
    found = rows(folder, query)
    assert len(found) == sum(t["trials"] for t in entry["tuning"])
    for template, knobs, tile, reorder, parallel, samples, error, threads, executor, cache in found:
        assert json.loads(knobs)
        assert json.loads(tile) or template == "dense_pack.op_profiler"  # one block of outputs has nothing to tile
        assert error is not None or json.loads(samples)
        assert (threads, executor) == (1, "kernel") and cache in ("hot", "cold")  # whichever is nearer to the model
        if template.endswith(".op_profiler"):
            assert "|" in json.loads(reorder) and json.loads(parallel)


def test_the_best_are_records_that_later_collections_use(tuned: Any) -> None:
    folder, _, entry = tuned
    (file,) = (folder / "schedules" / "llvm").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 3 and {line["input"][1] for line in lines} <= {"dense_pack.op_profiler", "dense_pack.x86"}
    assert all(line["conditions"] == {"threads": 1, "cache": "model"} for line in lines)
    origins = (
        "SELECT DISTINCT s.origin FROM model_operators o JOIN schedules s ON s.key = o.schedule_key "
        "JOIN operators p ON p.key = o.operator_key WHERE p.anchor = 'nn.contrib_dense_pack' AND o.model_key = '{}'"
    )
    models = [key for (key,) in rows(folder, "SELECT key FROM models ORDER BY added_at")]
    base, found = ({origin for (origin,) in rows(folder, origins.format(key))} for key in models)
    ours = any(line["input"][1].endswith(".op_profiler") for line in lines)  # what surely was faster in the model
    assert base == {"default"} and ("tuned" in found) == ours
    done = run(folder, "--modelsource", "local", "--modelname", "mlp", "--threads", "1")
    assert done.returncode == 0 and summary(folder)["reused"] == 4
    assert any("compiled with schedule records: 3 of" in note for note in summary(folder)["notes"])
    done = run(folder, "--modelsource", "local", "--modelname", "mlp", "--threads", "1", "--schedules", "none")
    assert done.returncode == 0 and summary(folder)["reused"] == 4
    assert not any("schedule records" in note for note in summary(folder)["notes"])
    assert len(rows(folder, "SELECT key FROM models")) == 2


def test_pandas_has_both_builds_of_a_run_told_apart(tuned: Any) -> None:
    folder, *_ = tuned
    pytest.importorskip("pandas")
    base, best = (key for (key,) in rows(folder, "SELECT key FROM models ORDER BY added_at"))
    request = CollectRequest(db=f"sqlite:///{folder}/results/op_profiler.db")
    run = Run(request, model_key=best, base=ModelReport(request, model_key=base))
    table = run.to_pandas()
    assert dict(zip(table.model_build, table.model_key)) == {"default": base, "tuned": best} and len(table) == 8


@pytest.mark.slow  # what is known is not tried again in tests/tuning/test_tuning.py
def test_a_second_run_tries_nothing_again(tuned: Any) -> None:
    folder, *_ = tuned
    before = rows(folder, TRIALS)
    done = run(folder, *TUNE)
    assert done.returncode == 0, done.stderr
    assert [t["new"] for t in summary(folder)["tuning"]] == [0, 0, 0]
    assert rows(folder, TRIALS) == before


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    arguments = [*TUNE[:-1], "60", "--tuner", "random"]

    def a_part() -> bool:
        return any(count >= 30 for (count,) in stored(tmp_path, TRIALS))

    killed(tmp_path, *arguments, when=a_part, changes=changes(tmp_path))
    ((count,),) = rows(tmp_path, TRIALS)
    done = run(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    entry = summary(tmp_path)
    made = sum(t["trials"] for t in entry["tuning"])
    assert sum(t["new"] for t in entry["tuning"]) == made - count < made


def test_the_vendors_kernels_stand_beside(tuned: Any) -> None:
    pytest.importorskip("torch")
    folder, *_ = tuned
    done = run(folder, *MLP, "--vendor", "true")
    assert done.returncode == 0, done.stderr
    vendor = summary(folder)["vendor"]
    assert len(vendor) == 3
    assert all(v["vendor_us"] > 0 and v["default_us"] > 0 and v["tuned_us"] > 0 for v in vendor)
    stored = rows(
        folder,
        "SELECT s.template, m.median_us FROM measurements m JOIN schedules s ON s.key = m.schedule_key "
        "WHERE s.origin = 'vendor'",
    )
    assert len(stored) == 3 and all(name.startswith("torch") for name, _ in stored)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--iftune", "true", "--trials", "9"], ["--trials 9", "10 to 3000"]),
        (["--iftune", "true", "--trials", "3001"], ["10 to 3000"]),
        (["--tuner", "xgboost"], ["xgboost", "xgb"]),
        (["--iftune", "true", "--schedules", "none"], ["--schedules none"]),
        (["--ifcompare", "maybe"], ["--ifcompare", "true or false"]),
        (["--ifpartial", "true"], ["--ifpartial", "--iftune true"]),
        (["--iftune", "true", "--dry-run"], ["--dry-run", "--iftune"]),
        (["--vendor", "true", "--executor", "vm"], ["--vendor"]),
        (["--vendor", "true", "--target", "pynq", "--host", "127.0.0.1", "--port", "9"], ["--vendor", "board"]),
        (["--vendor", "true", "--target", "cuda", "--host", "127.0.0.1", "--port", "9"], ["--vendor"]),
    ],
)
def test_what_cannot_be_tuned_is_refused(arguments: list[str], words: list[str], tmp_path: Path) -> None:
    done = run(tmp_path, "--modelname", "mlp", *arguments)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "results").exists()


def test_comparing_without_records_says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "--modelsource", "local", "--modelname", "mlp", "--threads", "1", "--ifcompare", "true")
    assert done.returncode == 1
    assert "no schedule records" in summary(tmp_path)["problems"][0]
    assert "--iftune true" in done.stdout


def test_outputs_that_differ_are_told_apart() -> None:
    from op_profiler.collection.studies.compare import difference

    one = np.array([1.0, 2.0, -4.0])
    assert difference(one, one) == 0.0
    assert difference(one, one + [0, 0.4, 0]) == pytest.approx(0.1)
    assert difference(one, np.array([1.0, np.nan, -4.0])) == float("inf")
    assert difference(np.array([np.nan, 1.0]), np.array([np.nan, 2.0])) == pytest.approx(1.0)
    assert difference(np.array([np.nan]), np.array([np.nan])) == 0.0


@pytest.mark.parametrize(
    ("precision", "off", "agrees"),
    [("float32", 7.2e-3, False), ("float16", 7.2e-3, True), ("float16", 0.1, False), ("int8", 8e-3, True)],
)
def test_how_far_outputs_may_differ_is_told_by_what_they_are_computed_in(
    precision: str, off: float, agrees: bool
) -> None:
    """The last output is float32 in each: it shows what was rounded off before it."""
    from op_profiler.collection.studies.compare import ModelComparison

    class Loaded:
        labels = ("f",)

        def __init__(self, last: float) -> None:
            self.last = last

        def run_model(self) -> None: ...

        def output_arrays(self) -> list[np.ndarray]:
            return [np.array([1.0, self.last], "float32")]

        def kernel_outputs(self) -> list[np.ndarray]:
            return [np.ones(2, precision)]

    builds: Any = Loaded(0.5), Loaded(0.5 + off)
    study: Any = SimpleNamespace(
        machine=SimpleNamespace(threads=SimpleNamespace(use=lambda count: None)), build=SimpleNamespace(threads=(1,))
    )
    found, allowed = ModelComparison._difference(study, *builds)
    assert found == pytest.approx(off, rel=1e-3) and (found <= allowed) == agrees


def test_the_vendors_kernels_of_a_gpu_need_a_torch_with_cuda(tmp_path: Path) -> None:
    """Told before anything is lowered or built."""
    if importlib.import_module("torch.version").cuda is not None:
        pytest.skip("torch was built with CUDA here")
    done = run(tmp_path, "--modelname", "mlp", "--target", "cuda", "--vendor", "true")
    assert done.returncode == 3
    assert "built with CUDA" in done.stderr and "pip install" in done.stderr
    assert not (tmp_path / "results").exists()
