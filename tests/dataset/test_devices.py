"""Devices that a predictor can learn from, in databases and in files."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from op_profiler.dataset import Dataset, export_table
from op_profiler.prediction.latency.devices import devices_in


def test_devices_are_those_with_times_that_can_be_used(url: str, example: Any, tmp_path: Path) -> None:
    """Each kind of row is of a device of its own; a database and its export tell the same."""
    quiet = dataclasses.replace(example.measurement(), foreign_load=False)
    around = dataclasses.replace(example.operator(1), op_names=("strided_slice",))
    rows: dict[str, dict[str, Any]] = {
        "usable": {},
        "sampled": {"model_key": "batch"},
        "around a sampled one": {"model_key": "batch", "operator_key": around.key},
        "failed": {"measurement": example.failed},
        "beside others": {"measurement": example.measurement()},
        "unfinished": {"complete": False},
        "tuned": {"schedule": dataclasses.replace(example.schedule, origin="tuned")},
        "hot": {"settings": example.changed(cache="hot")},
        "swept": {"settings": example.changed(governor="performance")},
        "called by the virtual machine": {"settings": example.changed(executor="vm")},
        "in no model": {"model_key": ""},
    }
    with Dataset.open(url) as dataset:
        example.add_model(dataset)
        example.add_model(dataset, "batch", source="sample", name="draw0-0000")
        dataset.add_operators("batch", [(example.operator(0), (0,)), (around, (1,))])
        for name, changes in rows.items():
            device = dataclasses.replace(example.device, processor=name, host_fingerprint=name)
            dataset.record(example.row(**({"device": device, "measurement": quiet} | changes)))
        export_table(dataset, tmp_path / "all.parquet", format="parquet")
    places: list[dict[str, Any]] = [{"db": url}, {"file": tmp_path / "all.parquet"}]
    for place in places:
        assert {device.processor for device in devices_in(**place)} == {"usable", "sampled"}
