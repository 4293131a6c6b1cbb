"""The two tables that describe a dataset."""

from __future__ import annotations

import dataclasses
from typing import Any

from op_profiler.dataset import Dataset, hardware_table, operator_table


def test_operators_with_their_data_and_schedules(filled: Dataset, example: Any) -> None:
    example.add_model(filled, "other", operators=3, name="vgg-11")
    table = operator_table(filled)
    assert table.headers == ("main op", "models", "input data", "parameter data", "schedule configuration")
    data = "float32[1x3x224x224], int64[-1]"
    knobs = "conv2d_NCHWc.x86 (default): tile_ic=[-1, 8], unroll_kw=True"
    expected = {
        ("nn.conv2d", "resnet-18 x2, vgg-11 x2", data, "float32[64x3x7x7]", knobs),
        ("nn.conv2d", "resnet-18 x1, vgg-11 x1", data, "float32[65x3x7x7]", knobs),
        ("nn.conv2d", "vgg-11 x1", data, "float32[66x3x7x7]", "not measured"),
    }
    assert set(table.rows) == expected
    assert len(operator_table(filled, model_key="m").rows) == 2
    assert operator_table(filled, model_key="unknown").rows == ()


def test_hardware_settings_with_their_range_and_use(filled: Dataset, example: Any) -> None:
    one = example.changed(threads=1, threads_effective=1, core_set=(0,), core_set_effective=(0,))
    filled.record(example.row(settings=one))
    table = hardware_table(filled, model_key="m")
    assert table.headers == ("hardware setting", "range", "resource usage")
    rows = {name: (range_, usage) for name, range_, usage in table.rows}
    assert rows["processor"] == ("AMD EPYC 9R14 µ", "2 cores, 3703 MHz")
    assert rows["caches L1, L2, L3"][0] == "32 KiB, 1 MiB, 32 MiB"
    assert rows["memory"] == ("128 GiB", "up to 8.003 GiB read and written by one operator")
    assert rows["threads"] == ("1, 2", "1, 2 running")
    assert rows["core set"] == ("[0], [0, 1]", "[0], [0, 1]")
    assert rows["cache"] == ("model", "in-graph")
    assert "governor" not in rows
    filled.record(example.row(settings=example.changed(governor="powersave", governor_effective="performance")))
    assert ("governor", "powersave", "performance") in hardware_table(filled, model_key="m").rows
    assert rows["load of others"] == ("0 to 1", "0.00 to 0.02")
    assert rows["energy per call"] == ("", "1.500 mJ")
    louder = dataclasses.replace(example.measurement(), load_before=0.5, load_after=0.25)
    filled.record(example.row(settings=example.changed(threads=4), measurement=louder))
    assert ("load of others", "0 to 1", "0.00 to 0.50") in hardware_table(filled, model_key="m").rows


def test_an_empty_dataset_is_described_too(dataset: Dataset) -> None:
    assert operator_table(dataset).rows == ()
    assert all(len(row) == 3 for row in hardware_table(dataset).rows)
