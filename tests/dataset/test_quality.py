"""What takes the place of what, and failures beside both; on every kind of database."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from op_profiler.dataset import Dataset
from op_profiler.measure.failures import cause_of
from op_profiler.measure.measurement import Measurement, ModelTiming

THREADS = "asked for 2 threads, TVM's pool answers 1; TVM_NUM_THREADS was 1 when TVM was imported"
OF_THE_MACHINE, OF_THE_OPERATOR = Measurement(error=THREADS), Measurement(error="it computes something else")


@pytest.fixture
def qualities(example: Any) -> list[tuple[Measurement, bool]]:
    """Measurements, each better than those before it, and whether they are complete."""
    time = dataclasses.replace(example.measurement(), foreign_load=False)
    return [
        (OF_THE_MACHINE, True),
        (time, False),
        (OF_THE_OPERATOR, True),
        (Measurement(median_us=1.0), True),
        (dataclasses.replace(time, foreign_load=True), True),
        (time, True),
    ]


def stored(dataset: Dataset, example: Any) -> tuple[Measurement, bool]:
    row = dataset.measurements_of("m", threads=2, cache="model")[example.operator().key]
    return row.measurement, row.complete


def test_only_what_is_as_good_or_better_takes_the_place_of_a_measurement(
    dataset: Dataset, example: Any, qualities: list[tuple[Measurement, bool]]
) -> None:
    example.add_model(dataset)
    for better, (measurement, complete) in enumerate(qualities):
        dataset.record(example.row(measurement=measurement, complete=complete))
        assert stored(dataset, example) == (measurement, complete)
        for worse, done in qualities[:better]:
            dataset.record(example.row(measurement=worse, complete=done))
            assert stored(dataset, example) == (measurement, complete)
    unsettled = dataclasses.replace(qualities[-1][0], settled=False)
    dataset.record(example.row(measurement=unsettled))
    assert stored(dataset, example) == qualities[-1]


def test_the_same_measurement_twice_in_one_batch(dataset: Dataset, example: Any) -> None:
    """As imported files may hold it."""
    example.add_model(dataset)
    failed = example.row(measurement=OF_THE_OPERATOR)
    dataset.record_all([failed, example.row(), failed, example.row()])
    assert stored(dataset, example) == (example.measurement(), True)
    assert len(dataset.failures()) == 1


def test_of_two_that_are_alike_the_newer_one_stays(dataset: Dataset, example: Any) -> None:
    example.add_model(dataset)
    for median_us in (3.0, 5.0, 4.0):
        measurement = dataclasses.replace(example.measurement(), median_us=median_us)
        dataset.record(example.row(measurement=measurement))
        assert stored(dataset, example) == (measurement, True)


def test_what_was_measured_just_now_is_newer_whatever_clock_wrote_the_time_that_is_there(
    dataset: Dataset, example: Any
) -> None:
    example.add_model(dataset)
    ahead = {"measured_at": "2099-01-01T00:00:00.000000+00:00", "run_id": "a clock ahead"}
    now = dataclasses.replace(example.measurement(), median_us=5.0)
    dataset.record(example.row(**ahead))
    dataset.record(example.row(measurement=now, run_id="this"))
    assert stored(dataset, example) == (now, True)
    dataset.record(example.row(1, measurement=OF_THE_MACHINE, **ahead))
    dataset.record(example.row(1, measurement=OF_THE_MACHINE, run_id="this"))
    (failed,) = dataset.failures()
    found = dataset.measurements_of("m", threads=2, cache="model").values()
    assert {row.run_id for row in found} == {failed.run_id} == {"this"}
    dataset.record(example.row(measured_at="2026-01-01T00:00:00.000000+00:00"))  # as out of a file
    assert stored(dataset, example) == (now, True)


def test_what_was_asked_for_again_replaces_a_better_time_but_a_failure_never_does(
    dataset: Dataset, example: Any, qualities: list[tuple[Measurement, bool]]
) -> None:
    example.add_model(dataset)
    *worse, noisy, best = qualities
    dataset.record(example.row(measurement=best[0]))
    for measurement, complete in worse:
        dataset.record_all([example.row(measurement=measurement, complete=complete)], replace=True)
        assert stored(dataset, example) == best
    dataset.record_all([example.row(measurement=noisy[0])], replace=True)
    assert stored(dataset, example) == noisy


def test_failures_are_kept_beside_a_time_with_when_and_on_which_machine(dataset: Dataset, example: Any) -> None:
    example.fill(dataset)
    state = {"tvm_num_threads": "1", "load_average": [0.5, 0.25, 0.0]}
    dataset.record(example.row(measurement=OF_THE_MACHINE, machine_state=state))
    failed_whole = ModelTiming(whole_model=OF_THE_OPERATOR, before_us=None, after_us=None, sum_of_operators_us=None)
    assert not dataset.record_model_timing("m", example.settings, example.device, failed_whole, machine_state=state)
    assert stored(dataset, example) == (example.measurement(), True)
    whole, operator, first = dataset.failures("m")
    assert (whole.error, whole.cause, whole.operator_name) == (OF_THE_OPERATOR.error, "operator", None)
    assert (operator.error, operator.cause, operator.machine_state) == (THREADS, "machine", state)
    assert operator.operator_name == example.operator().name and operator.settings == example.settings
    for kept in (whole, operator):
        assert kept.timed_at is not None and kept.timed_at < kept.failed_at
    assert first.timed_at is None and first.error == example.failed.error
    assert dataset.failures("other") == []


def test_the_same_failure_again_renews_its_time(dataset: Dataset, example: Any) -> None:
    example.add_model(dataset)
    dataset.record(example.row(measurement=OF_THE_MACHINE))
    (before,) = dataset.failures()
    dataset.record(example.row(measurement=OF_THE_MACHINE, machine_state={"usable_cores": 2}))
    (after,) = dataset.failures()
    assert after.failed_at > before.failed_at and after.machine_state == {"usable_cores": 2}


def test_candidates_that_failed_because_of_the_machine_are_tried_again(dataset: Dataset, example: Any) -> None:
    example.add_model(dataset)
    what = {"template": "t", "device_key": example.device.key, "threads": 2, "cache": "hot"}
    settings = example.changed(cache="hot")
    for knob, error in enumerate(("memory: out of memory while building", "build: no schedule")):
        schedule = dataclasses.replace(example.schedule, template="t", origin="trial", knobs={"k": knob})
        measurement = Measurement(error=error)
        dataset.record(example.row(schedule=schedule, settings=settings, model_key="", measurement=measurement))
    (kept,) = dataset.trials_of(example.operator().key, **what)
    assert kept.measurement.error == "build: no schedule"


@pytest.mark.parametrize(
    "error, cause",
    [
        (THREADS, "machine"),
        ("asked for 2 threads, the pool of 10.0.0.2:9090 answers 1; start its RPC server with ...", "machine"),
        ("the process died (SIGKILL) while checking", "machine"),
        ("TVMError: Check failed: (ret == 0) is false: out of memory", "machine"),
        ("[Errno 28] No space left on device", "machine"),
        ("no answer after 60 s while running the model", "machine"),
        ("twice: no answer after 60 s while running the model", "operator"),
        ("lost: 10.0.0.2:9090: it went away", "machine"),
        ("timeout: no end after 10 s while running; killed", "operator"),
        ("the process died (SIGSEGV) while checking", "operator"),
        ("it computes something else: 0.3 instead of 0.1", "operator"),
        ("TVMError: AssertionError: groups == 1", "operator"),
    ],
)
def test_what_a_failure_comes_from(error: str, cause: str) -> None:
    assert cause_of(error) == cause
