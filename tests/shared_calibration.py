"""A small real calibration under names that nothing shared may contain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.sampling import batch, run
from op_profiler.collection.supervisor import Collection
from op_profiler.dataset import Dataset
from op_profiler.dataset.formats.shared import shared_rows
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.operators.kinds.convolutions import Conv2d
from op_profiler.operators.kinds.norms import Softmax
from op_profiler.operators.kinds.point import Point
from op_profiler.operators.kinds.products import Dense
from op_profiler.report.collection import Screen

from .command_line import forked_workers, op_profiler

PRIVATE = {
    "HOME": "zacharias-home",
    "USER": "zacharias",
    "LOGNAME": "zacharias",
    "OP_PROFILER_HOST_ID": "melchior-host",
}
"""Variables of the environment; ``HOME`` is the name of a folder."""
MODEL, LABEL, FOLDER = "balthasar_model", "caspar-label", "ophir-folder"
_POINTS: tuple[Point, ...] = (
    Conv2d(1, 16, 8, 8, 16, 3, 1),
    Conv2d(1, 8, 8, 8, 32, 1, 1),
    Dense(1, 64, 32),
    Dense(4, 32, 48),
    Softmax(1, 4, 32),
)


def environment(folder: Path) -> dict[str, str]:
    """Variables under which a calibration is made."""
    home = folder / PRIVATE["HOME"]
    home.mkdir(exist_ok=True)
    return PRIVATE | {"HOME": str(home), "XDG_DATA_HOME": str(home / "data")}


def measured(folder: Path) -> str:
    """Measure a model with a private name and a few operators as `calibrate` does; returns the dataset's address."""
    place = folder / FOLDER
    place.mkdir()
    db = f"sqlite:///{place / 'times.db'}"
    _write_model(place / f"{MODEL}.onnx")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        line = ["--threads", "1", "--label", LABEL, "--db", db, "--schedules", "none"]
        done = op_profiler("collect", f"{MODEL}.onnx", *line, folder=place)
        assert done.returncode == 0, done.stderr
        build = BuildRequest(model=ModelRequest(source="sample", name=""), schedules="none", threads=(1,))
        request = CollectRequest(build=build, measuring=Measuring(rounds=3), db=db)
        batches = batch.batches_of_points(iter(_POINTS), "calibrate0", 0)
        with forked_workers(), Collection(db) as collection:
            report = run.measure_batches(
                batches, request, collection, Screen(quiet=True), count=None, budget_seconds=None
            )
    assert report.measured and not report.failed and not report.errors, report
    return db


def shared_of(db: str, folder: Path) -> list[dict[str, Any]]:
    """What would be shared of a dataset of `measured`."""
    with pytest.MonkeyPatch.context() as patch, Dataset.open(db, read_only=True) as dataset:
        patch.setenv("XDG_DATA_HOME", environment(folder)["XDG_DATA_HOME"])
        (device,) = {str(model.device_key) for model in dataset.models()}
        return shared_rows(dataset, device)


def _write_model(path: Path) -> None:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", "y"))
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name=f"{MODEL}_relu")], MODEL, [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
