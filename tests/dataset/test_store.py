"""What every kind of database must do alike."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from op_profiler.dataset import Dataset, flat_rows
from op_profiler.dataset.explanations import explanations_of, record_explanations
from op_profiler.errors import DatasetError
from op_profiler.measure.measurement import Measurement, ModelTiming, Settings
from op_profiler.schedules.schedule import Schedule


def test_operators_come_back_as_they_went_in(filled: Dataset, example: Any) -> None:
    assert filled.model_operators("m") == [(example.operator(0), (0, 2)), (example.operator(1), (1,))]


def test_a_device_comes_back_as_it_went_in(filled: Dataset, example: Any) -> None:
    assert filled.find_device(example.device.key) == example.device
    assert filled.find_device("unknown") is None


def test_a_measurement_comes_back_as_it_went_in(filled: Dataset, example: Any) -> None:
    found = filled.measurements_of("m", threads=2, cache="model")
    assert set(found) == {example.operator(0).key, example.operator(1).key}
    timed, failed = found[example.operator(0).key], found[example.operator(1).key]
    assert timed.measurement == example.measurement()
    assert (timed.settings, timed.schedule) == (example.settings, example.schedule)
    assert (timed.device_key, timed.model_key, timed.complete) == (example.device.key, "m", True)
    assert timed.measured_at.endswith("+00:00")
    assert failed.measurement == example.failed


def test_a_model_timing_comes_back_as_it_went_in(filled: Dataset, example: Any) -> None:
    found = filled.find_model_timing("m", threads=2, cache="model")
    assert found is not None
    assert found.timing == example.timing()
    assert (found.settings, found.device_key, found.complete) == (example.settings, example.device.key, True)
    assert filled.find_model_timing("m", threads=1, cache="model") is None
    assert filled.find_model_timing("m", threads=2, cache="hot") is None


def test_a_whole_model_that_failed_is_kept_with_its_reason(filled: Dataset, example: Any) -> None:
    timing = ModelTiming(whole_model=example.failed, before_us=None, after_us=None, sum_of_operators_us=None)
    filled.record_model_timing("m", example.changed(threads=1), example.device, timing)
    found = filled.find_model_timing("m", threads=1, cache="model")
    assert found is not None
    assert found.timing == timing


def test_a_model_comes_back_as_it_went_in(filled: Dataset, example: Any) -> None:
    found = filled.find_model("m")
    assert found is not None
    assert (found.name, found.source, found.batch_size, found.target) == ("resnet-18", "local", 1, "llvm")
    assert (found.precision, found.executor) == ("float32", "default")
    assert found.notes == ("first", "second")
    assert found.device_key == example.device.key
    assert filled.models() == [found]
    assert filled.find_model("unknown") is None


def test_a_model_is_extracted_once_its_operators_are_stored(dataset: Dataset, example: Any) -> None:
    fields: dict[str, Any] = {"name": "x", "source": "local", "batch_size": 1, "precision": "float32", "target": "llvm"}
    dataset.add_model(key="m", executor="default", **fields)
    assert not dataset.find_model("m").extracted  # type: ignore[union-attr]
    dataset.add_operators("m", [(example.operator(), (0,))])
    dataset.add_model(key="m", executor="default", notes=["renewed"], **fields)
    found = dataset.find_model("m")
    assert found is not None
    assert found.extracted
    assert found.notes == ("renewed",)


def test_operators_of_a_model_are_replaced_and_keep_their_name_in_each_model(dataset: Dataset, example: Any) -> None:
    example.add_model(dataset, "a")
    example.add_model(dataset, "b")
    renamed = dataclasses.replace(example.operator(0), name="fused_nn_conv2d_clip_7", flops=5)
    dataset.add_operators("b", [(renamed, (4,))])
    assert dataset.model_operators("b") == [(renamed, (4,))]
    assert [o.name for o, _ in dataset.model_operators("a")] == ["fused_nn_conv2d_clip"] * 2
    assert dataset.counts()["operators"] == 2


def test_the_layers_of_each_call_are_there_where_they_are_known(filled: Dataset, example: Any) -> None:
    assert filled.layers_of("m") == {example.operator(0).key: [["stem.conv", "stem.norm"], []]}
    assert filled.layers_of("unknown") == {}
    rows = {row["operator_key"]: row for row in flat_rows(filled)}
    assert rows[example.operator(0).key]["fx_nodes"] == [["conv2d", "batch_norm"], []]
    assert rows[example.operator(0).key]["source_lines"] == [["net.py:3"], []]
    assert rows[example.operator(1).key]["fx_nodes"] is rows[example.operator(1).key]["source_lines"] is None


def test_what_explains_an_operator_is_the_newest_and_outlives_another_collection(filled: Dataset, example: Any) -> None:
    first, second = (example.operator(i).key for i in range(2))
    record_explanations(filled, "m", {first: {"us": 1.0}, second: {"us": 2.0}})
    record_explanations(filled, "m", {first: {"us": 3.0}})
    filled.add_operators("m", [(example.operator(i), (i,)) for i in range(2)])
    found = explanations_of(filled, "m")
    assert {key: one for key, (_, one) in found.items()} == {first: {"us": 3.0}, second: {"us": 2.0}}
    assert all(at.endswith("+00:00") for at, _ in found.values()) and explanations_of(filled, "n") == {}


def test_only_what_was_asked_for_decides_whether_something_was_measured(filled: Dataset, example: Any) -> None:
    other_cores = example.changed(threads_effective=1, core_set_effective=(1,), cache_mechanism="other")
    what = {"schedule": example.schedule, "device_key": example.device.key, "model_key": "m"}
    key = example.operator().key
    assert filled.find_measurement(key, settings=other_cores, **what) is not None
    filled.record(example.row(settings=other_cores))
    assert filled.counts()["measurements"] == 2
    assert filled.find_measurement(key, settings=example.settings, **what).settings == other_cores  # type: ignore


@pytest.mark.parametrize(
    "changes",
    [
        {"threads": 1},
        {"core_set": (1, 0)},
        {"cache": "hot"},
        {"parallel_type": "stream"},
        {"streams": 2},
        {"precision": "int8"},
        {"executor": "vm"},
        {"governor": "powersave"},
        {"cache_ways": 4},
        {"numa_node": 0},
        {"sm_share_percent": 50},
        {"gpu_clock_mhz": 1200},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_every_setting_asked_for_tells_measurements_apart(
    filled: Dataset, example: Any, changes: dict[str, Any]
) -> None:
    what = {"schedule": example.schedule, "device_key": example.device.key, "model_key": "m"}
    other: Settings = example.changed(**changes)
    assert filled.find_measurement(example.operator().key, settings=other, **what) is None
    filled.record(example.row(settings=other))
    assert filled.counts()["measurements"] == 3
    assert filled.find_measurement(example.operator().key, settings=other, **what).settings == other  # type: ignore


def test_a_check_point_grows_and_never_replaces_what_is_complete(dataset: Dataset, example: Any) -> None:
    def rounds_after(rounds: int, complete: bool) -> tuple[int, bool]:
        dataset.record(example.row(measurement=example.measurement(rounds), complete=complete))
        timing = example.timing(rounds)
        dataset.record_model_timing("m", example.settings, example.device, timing, complete=complete)
        found = dataset.measurements_of("m", threads=2, cache="model")[example.operator().key]
        whole = dataset.find_model_timing("m", threads=2, cache="model")
        assert whole is not None
        assert (whole.timing.details["rounds"], whole.complete) == (
            len(found.measurement.samples_us),
            found.complete,
        )
        return len(found.measurement.samples_us), found.complete

    example.add_model(dataset)
    assert rounds_after(2, False) == (2, False)
    assert rounds_after(5, False) == (5, False)
    assert rounds_after(3, False) == (5, False)
    assert rounds_after(4, True) == (4, True)
    assert rounds_after(9, False) == (4, True)
    assert rounds_after(3, True) == (3, True)
    assert dataset.counts() | {"measurements": 1, "model_timings": 1, "complete": 1} == dataset.counts()


def test_a_later_success_replaces_a_failure(filled: Dataset, example: Any) -> None:
    filled.record(example.row(1))
    found = filled.measurements_of("m", threads=2, cache="model")[example.operator(1).key]
    assert found.measurement == example.measurement()


def test_model_state_counts_inside_its_model_only_and_hot_everywhere(filled: Dataset, example: Any) -> None:
    example.add_model(filled, "other")
    hot = example.changed(cache="hot")
    filled.record(example.row(settings=hot, model_key=""))
    assert filled.measurements_of("other", threads=2, cache="model") == {}
    assert list(filled.measurements_of("other", threads=2, cache="hot")) == [example.operator().key]
    assert list(filled.measurements_of("m", threads=2, cache="hot")) == [example.operator().key]
    assert filled.measurements_of("m", threads=2, cache="hot")[example.operator().key].model_key == ""
    assert filled.measurements_of("m", threads=1, cache="hot") == {}


def test_hot_times_of_another_device_precision_or_executor_do_not_count(filled: Dataset, example: Any) -> None:
    elsewhere = dataclasses.replace(example.device, processor="another")
    hot = {"cache": "hot"}
    filled.record(example.row(settings=example.changed(**hot), model_key="", device=elsewhere))
    filled.record(example.row(settings=example.changed(precision="int8", **hot), model_key=""))
    filled.record(example.row(settings=example.changed(executor="vm", **hot), model_key=""))
    assert filled.measurements_of("m", threads=2, cache="hot") == {}


def test_schedules_are_told_apart_by_origin_and_the_newest_counts(filled: Dataset, example: Any) -> None:
    trial = Schedule(example.schedule.template, {"tile_ic": [-1, 16]}, "trial")
    filled.record(example.row(schedule=trial, measurement=example.measurement(7)))
    found = filled.measurements_of("m", threads=2, cache="model")[example.operator().key]
    assert found.schedule == example.schedule
    tried = filled.measurements_of("m", threads=2, cache="model", origin="trial")
    assert {key: row.schedule for key, row in tried.items()} == {example.operator().key: trial}
    newer = Schedule("another.x86")
    filled.record(example.row(schedule=newer))
    assert filled.measurements_of("m", threads=2, cache="model")[example.operator().key].schedule == newer


def test_side_by_side_runs_are_not_taken_for_single_ones(filled: Dataset, example: Any) -> None:
    settings = example.changed(parallel_type="full", threads=1)
    filled.record(example.row(settings=settings))
    filled.record_model_timing("m", settings, example.device, example.timing())
    assert filled.measurements_of("m", threads=1, cache="model") == {}
    assert filled.find_model_timing("m", threads=1, cache="model") is None


def test_what_ran_with_a_resource_that_was_asked_for_is_found_by_it(filled: Dataset, example: Any) -> None:
    asked = {"governor": "powersave", "core_set": (1, 0)}
    settings = example.changed(governor_effective="powersave", **asked)
    filled.record(example.row(settings=settings, measurement=example.measurement(7)))
    filled.record_model_timing("m", settings, example.device, example.timing(7))

    def rounds(**resources: Any) -> list[int]:
        found = filled.measurements_of("m", threads=2, cache="model", resources=resources)
        timing = filled.find_model_timing("m", threads=2, cache="model", resources=resources)
        times = [len(m.measurement.samples_us) for m in found.values() if m.measurement.error is None]
        return times + ([] if timing is None else [timing.timing.details["rounds"]])

    assert rounds() == rounds(core_set=(0, 1)) == [3, 3]
    assert rounds(**asked) == rounds(governor="powersave") == [7, 7]
    assert rounds(core_set=(1, 0)) == rounds(governor="performance") == rounds(**asked, cache_ways=2) == []


def test_a_transaction_holds_together(filled: Dataset, example: Any) -> None:
    before = filled.counts()
    with pytest.raises(RuntimeError), filled.transaction():
        filled.record(example.row(settings=example.changed(threads=1)))
        assert filled.counts()["measurements"] == 3
        raise RuntimeError
    assert filled.counts() == before
    filled.record(example.row(settings=example.changed(threads=1)))
    assert filled.counts()["measurements"] == 3


def test_one_bad_row_keeps_the_whole_batch_out(filled: Dataset, example: Any) -> None:
    before = filled.counts()
    with pytest.raises(DatasetError, match="refused"):
        filled.record_all([example.row(settings=example.changed(threads=1)), example.row(operator_key="never stored")])
    assert filled.counts() == before


@pytest.mark.parametrize(
    "measurement",
    [
        Measurement(),
        Measurement(error="no", median_us=1.0),
        Measurement(error="no", samples_us=((1.0,),)),
        Measurement(samples_us=((-1.0,),), min_us=-1.0, median_us=-1.0),
    ],
    ids=["neither time nor error", "both", "error with samples", "negative"],
)
def test_a_stand_in_for_a_time_is_refused(filled: Dataset, example: Any, measurement: Measurement) -> None:
    with pytest.raises(DatasetError, match="refused"):
        filled.record(example.row(measurement=measurement))
    timing = dataclasses.replace(example.timing(), whole_model=measurement)
    with pytest.raises(DatasetError, match="refused"):
        filled.record_model_timing("m", example.settings, example.device, timing)


def test_a_check_point_may_have_no_times_yet(filled: Dataset, example: Any) -> None:
    settings = example.changed(threads=1)
    filled.record(example.row(settings=settings, measurement=Measurement(), complete=False))
    found = filled.measurements_of("m", threads=1, cache="model")[example.operator().key]
    assert found.measurement == Measurement()
    assert filled.counts()["complete"] == 2


def test_an_error_with_characters_that_no_database_takes(filled: Dataset, example: Any) -> None:
    filled.record(example.row(1, measurement=Measurement(error="half \ud800 and nul \0 and µ")))
    found = filled.measurements_of("m", threads=2, cache="model")[example.operator(1).key]
    assert found.measurement.error == "half ? and nul  and µ"


def test_counts(filled: Dataset) -> None:
    assert filled.counts() == {
        "devices": 1,
        "models": 1,
        "operators": 2,
        "schedules": 1,
        "model_timings": 1,
        "measurements": 2,
        "complete": 2,
        "failed": 1,
    }


def test_nothing_to_record(dataset: Dataset) -> None:
    dataset.record_all([])
    assert dataset.measurements_of("m", threads=2, cache="model") == {}


def test_a_device_is_renewed_where_it_may_change(filled: Dataset, example: Any) -> None:
    faster = dataclasses.replace(example.device, clock_mhz=4000.0, properties={"governor": "performance"})
    filled.add_device(faster)
    filled.record(example.row())
    assert filled.find_device(example.device.key) == faster
