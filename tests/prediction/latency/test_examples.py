"""Rows of the flat table as examples: what times hold besides the kernel, in rows of every version."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sqlite3
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.dataset import read_parquet
from op_profiler.errors import DatasetError
from op_profiler.frontends.sample import bytes_written_before
from op_profiler.prediction.latency import devices as devices_module
from op_profiler.prediction.latency import examples as examples_module
from op_profiler.prediction.latency import open_predictor
from op_profiler.prediction.latency.devices import target_line
from op_profiler.prediction.latency.examples import COLUMNS, Examples, examples_of
from op_profiler.prediction.latency.scheduled import OperatorByRule
from op_profiler.prediction.latency.usable import SHARED, with_disturbed
from op_profiler.shipped import shipped_processors

from ...command_line import op_profiler


@pytest.fixture(scope="module")
def old_row() -> dict[str, Any]:
    """Of a version that timed calls from Python; the file has no column that says what was subtracted."""
    file = next(one for one in shipped_processors() if one.folder.name.startswith("amd-epyc-family-26")).operators
    assert file is not None
    row = next(r for r in read_parquet(file, COLUMNS) if r["complete"] and not r["foreign_load"])
    assert row["call_overhead_us"] is None and row["timing_details"]["call_overhead_us"] > 0.2
    return row | {"median_us": 2.0, "ci_low_us": 1.9, "ci_high_us": 2.1}


def test_the_call_is_taken_out_of_times_that_hold_it(old_row: dict[str, Any]) -> None:
    call_us = old_row["timing_details"]["call_overhead_us"]
    (found,) = examples_of([old_row]).latency_us
    assert found == pytest.approx(2.0 - call_us)


def test_nothing_is_taken_out_twice(old_row: dict[str, Any]) -> None:
    (found,) = examples_of([old_row | {"call_overhead_us": 0.01}]).latency_us
    assert found == 2.0


def test_what_is_shorter_than_its_call_is_left_out_and_counted(old_row: dict[str, Any]) -> None:
    found = examples_of([old_row, old_row | {"median_us": 0.25}])
    assert len(found) == 1 and found.left_out == {"shorter than its call": 1}


def test_sampled_operators_whose_inputs_were_one_tensor_are_left_out(old_row: dict[str, Any]) -> None:
    def sampled(name: str, *shapes: tuple[int, ...]) -> dict[str, Any]:
        inputs = [{"shape": list(shape), "dtype": "float32"} for shape in shapes]
        return old_row | {"model_source": "sample", "model_name": name, "model_key": name, "inputs": inputs}

    alike, others = ((2, 8), (2, 8)), ((2, 8), (1, 8))
    kept = [sampled("draw1-0000-apart-0123456789ab", *alike), sampled("draw1-0001-0123456789ab", *others)]
    found = examples_of([*kept, sampled("draw1-0002-0123456789ab", *alike)])
    assert len(found) == 2 and found.left_out == {SHARED: 1}
    assert len(examples_of([sampled("draw1-0002-0123456789ab", *alike) | {"model_source": "local"}])) == 1


def test_of_several_sets_of_cores_the_one_counts_that_most_models_have(old_row: dict[str, Any]) -> None:
    def of(model: str, *cores: int) -> dict[str, Any]:
        return old_row | {"model_key": model, "model_name": model, "core_set": list(cores)}

    found = examples_of([of("a", 1), of("a", 0), of("b", 0), of("b", 1), of("c", 1), of("d", 3), of("d", 2)])
    assert [found.models[place] for place in found.model] == ["a", "b", "c", "d"]
    assert found.left_out == {"on other cores": 3}


def test_runs_that_tell_how_far_the_cores_were_apart_take_the_place_of_others(old_row: dict[str, Any]) -> None:
    def run(model: str, label: str, median_us: float, **told: float) -> dict[str, Any]:
        details = old_row["timing_details"] | told
        named = {"model_key": f"{model} {label}", "model_name": model, "threads": 2}
        return old_row | named | {"median_us": median_us, "call_overhead_us": 0.1, "timing_details": details}

    told = run("a", "new", 3.0, exchange_us=14.0, exchange_near_us=14.0)
    found = examples_of([run("a", "old", 5.0), told, run("a", "older", 7.0), run("b", "old", 4.0)])
    assert found.latency_us.tolist() == [3.0, 4.0] and found.models == ["a", "b"]
    assert found.left_out == {examples_module.REMEASURED: 2}
    apart = run("b", "new", 9.0, exchange_us=55.0, exchange_near_us=14.0)
    assert examples_of([run("b", "old", 4.0), apart]).latency_us.tolist() == [4.0], "it replaces none"


def test_what_is_held_of_a_row_is_a_few_numbers(old_row: dict[str, Any]) -> None:
    def held(rows: int) -> int:
        tracemalloc.start()
        try:
            found = examples_of(dict(old_row) for _ in range(rows))
            assert len(found) == rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = held(1_000), held(6_000)
    assert many - few < 5_000 * 800, "a row is a dict of two kilobytes"


def test_of_too_many_rows_whole_models_are_drawn(old_row: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(models: int, source: str) -> list[dict[str, Any]]:
        of = [
            {"model_key": f"{source}{n}", "model_name": f"{source}{n}", "model_source": source} for n in range(models)
        ]
        called = [{"operator_key": f"{n:016x}", "median_us": float(n + 2)} for n in range(5)]
        own = [old_row | one | {"operator_key": one["model_key"].encode().hex().rjust(16, "0")} for one in of]
        return [*(old_row | one | each for each in called for one in of), *own]

    monkeypatch.setattr(examples_module, "MOST_ROWS", 50)
    networks, batches = rows(3, "local"), rows(40, "sample")
    found = examples_of([*batches, *networks])
    drawn = [name for name in found.models if name.startswith("sample")]
    assert 30 <= 6 * len(drawn) <= 50 and len(found) == 6 * len(drawn) + 18
    assert found.left_out == {examples_module.NOT_DRAWN: 240 - 6 * len(drawn)}
    counts = np.bincount(found.model)
    assert set(counts.tolist()) == {6} and len(counts) == len(found.models), "a model is whole, or not there"
    assert len(found.operators) == 5 + len(found.models), "nothing is held of what only others have"
    again = examples_of([*batches, *networks])
    assert again.models == found.models and again.latency_us.tolist() == found.latency_us.tolist()
    few = examples_of(row for row in batches if row["model_name"] in drawn)
    same = found.where(found.sampled[found.model])
    assert few.latency_us.tolist() == same.latency_us.tolist() and not few.left_out


def test_traffic_is_that_of_all_operators_also_of_those_whose_times_are_not_used(old_row: dict[str, Any]) -> None:
    moved = old_row["bytes_read"] + old_row["bytes_written"]
    used = old_row | {"occurrences": 3}
    failed = old_row | {"operator_key": "0123456789abcdef", "error": "it crashed", "median_us": None, "occurrences": 2}
    found = examples_of([failed, used, used | {"threads": 4}, used | {"origin": "tuned", "operator_key": "f" * 16}])
    assert found.traffic_bytes.tolist() == [5 * moved] * 2 and found.working_set_bytes.tolist() == [2 * moved] * 2


def test_the_traffic_of_a_batch_holds_what_writes_its_inputs(old_row: dict[str, Any]) -> None:
    inputs = [{"shape": [2, 8], "dtype": "float32"}, {"shape": [2, 8], "dtype": "float32"}]
    inputs += [{"shape": [100], "dtype": "int64"}]
    row = old_row | {"model_source": "sample", "inputs": inputs, "bytes_read": 1_000, "bytes_written": 64}
    row |= {"occurrences": 1, "model_name": "draw1-0000-apart-0123456789ab"}
    writer = row | {"operator_key": "0123456789abcdef", "op_names": ["broadcast_to"], "bytes_written": 64}
    found = examples_of([writer, row])
    assert found.traffic_bytes.tolist() == [1_064 + 2 * 64], "nothing writes places in tables"
    assert bytes_written_before(found.operators[0], "draw1-0000-0123456789ab") == 64, "one tensor in place of two"


def test_models_that_compute_with_denormal_numbers_teach_nothing(old_row: dict[str, Any]) -> None:
    slow = old_row | {"model_key": "slow", "timing_details": {"denormal": {"0123456789abcdef": 0.2}}}
    untold = slow | {"timing_details": {}, "model_key": "slow, of an earlier version"}
    usual = old_row | {"model_name": "another"} | {"timing_details": {"denormal": {}}}
    found = examples_of([slow, untold, usual])
    assert len(found) == 1 and list(found.left_out.values()) == [2]
    assert "denormal" in next(iter(found.left_out))


def test_runs_whose_cores_were_apart_teach_nothing(old_row: dict[str, Any]) -> None:
    far = old_row | {"model_key": "far", "timing_details": {"exchange_us": 55.0, "exchange_near_us": 15.0}}
    near = far | {"model_key": "near", "timing_details": {"exchange_us": 16.0, "exchange_near_us": 15.0}}
    found = examples_of([far, near, old_row | {"model_name": "another"}])
    assert len(found) == 2 and found.left_out == {"with cores further apart than usual": 1}


def test_rounds_that_lay_apart_teach_nothing_and_slow_cores_do(old_row: dict[str, Any]) -> None:
    reasons = ("unsteady", "cores slower than usual; unsteady", "cores slower than usual", None)
    found = examples_of([old_row | {"model_key": str(n), "disturbed_by": by} for n, by in enumerate(reasons)])
    assert len(found) == 2 and found.left_out == {"unsteady": 2}


def test_disturbed_times_are_used_on_request_and_counted(old_row: dict[str, Any]) -> None:
    marks: tuple[dict[str, Any], ...] = (
        {"disturbed_by": "unsteady"},
        {"foreign_load": True},
        {"foreign_load": True, "error": "crash"},
        {},
    )
    notes: list[str] = []
    found = examples_of(with_disturbed([old_row | mark for mark in marks], notes.append))
    assert len(found) == 3 and found.left_out == {"failed": 1}
    assert notes == ["2 of the times that are used were disturbed (background load or unsteady rounds)"]


def test_a_dataset_of_disturbed_times_is_used_on_request_only(tmp_path: Path) -> None:
    model = "squeezenet_v1.1"  # a predictor needs 25 times
    address = f"sqlite:///{tmp_path / 'noisy.db'}"
    done = op_profiler("collect", model, "--threads", "1", "--db", address, "--quiet", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "noisy.db")) as connection, connection:
        connection.execute("UPDATE measurements SET foreign_load = 1, disturbed_by = 'unsteady'")
    refused = op_profiler("predict", model, "--db", address, folder=tmp_path)
    assert refused.returncode == 5 and "predict --include-noisy uses them" in refused.stderr, refused.stderr
    done = op_profiler("predict", model, "--db", address, "--include-noisy", "--format", "json", folder=tmp_path)
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["tiers"]["measured"] == 1.0
    assert f"{len(found['operators'])} of the times that are used were disturbed" in done.stderr
    assert f"op-profiler check local:{model} --threads 1 --db {address} --include-noisy" in done.stderr
    alone = op_profiler("predict", model, "--include-noisy", folder=tmp_path)
    assert alone.returncode == 2 and "add it with --db" in alone.stderr


def test_devices_are_told_by_the_times_that_can_be_used(
    old_row: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def of(device: str, **other: Any) -> dict[str, Any]:
        return old_row | {"device_key": device} | other

    rows = [of("a"), of("b", error="it crashed"), of("c", origin="tuned"), of("d", model_key=None), of("a", threads=2)]
    monkeypatch.setattr("op_profiler.dataset.formats.parquet.parquet_rows", lambda *_: iter(rows))
    assert [device.key for device in devices_module.devices_in(file=Path("x"))] == ["a"]


def test_rows_of_both_kinds_of_schedules_are_two_operators_of_two_models(old_row: dict[str, Any]) -> None:
    own = old_row | {"median_us": 4.0, "call_overhead_us": 0.0}
    found = examples_of([own, own | {"origin": "rule", "model_key": "e" * 16, "median_us": 2.0}])
    assert [type(operator) is OperatorByRule for operator in found.operators] == [False, True]
    assert found.latency_us.tolist() == [4.0, 2.0] and found.operator.tolist() == [0, 1]
    assert found.workload.tolist() == [0, 0] and found.by_rule.tolist() == [False, True]


def test_each_compiler_answers_with_its_own_rows(known: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    relax = dataclasses.replace(known.devices[0], key="0" * 16, compiler="relax")
    both = dataclasses.replace(
        known,
        devices=[known.devices[0], relax],
        device=(known.model % 2).astype(np.intp),
        latency_us=np.where(known.model % 2, 2.0, 1.0) * known.latency_us,
    )
    monkeypatch.setattr(open_predictor, "devices_in", lambda **_: both.devices)
    monkeypatch.setattr(open_predictor, "load_examples", lambda **_: both)
    for number, compiler in enumerate(("relay", "relax")):
        found = open_predictor.examples_for(db="sqlite:///x.db", device=None, compiler=compiler)
        assert set(found.model % 2) == {number}
    monkeypatch.setattr(open_predictor, "devices_in", lambda **_: known.devices)
    with pytest.raises(DatasetError, match="no times of --compiler relax in the data included"):
        open_predictor.open_predictor(compiler="relax")


def test_a_target_of_todays_tvm_is_written_as_a_line() -> None:
    assert target_line('{"kind":"llvm","tag":"","keys":["cpu"],"mcpu":"znver5"}') == "llvm -mcpu=znver5"
    assert target_line("llvm -keys=cpu -mcpu=znver5") == "llvm -keys=cpu -mcpu=znver5"


def test_where_no_time_can_be_learned_from_the_reasons_are_told(
    old_row: dict[str, Any], known: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    hot = examples_of([old_row | {"cache": "hot"}])
    assert len(hot) == 0
    monkeypatch.setattr(open_predictor, "load_examples", lambda **_: hot)
    for there in (known.devices, []):
        monkeypatch.setattr(open_predictor, "devices_in", lambda there=there, **_: there)
        with pytest.raises(DatasetError, match=r"no usable time in .*//me@h/x \(1 not in a model\).* Collect while"):
            open_predictor.examples_for(db="postgresql://me:secret@h/x", device=None)
