"""What a supervisor hands to its worker gets there whole."""

from __future__ import annotations

import msgspec

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring, Studies, TuneRequest
from op_profiler.collection.worker_task import WorkerTask
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.targets.machine import Place


def test_a_worker_reads_the_task_that_was_written() -> None:
    model = ModelRequest(source="local", name="mlp", input_names=("data",), input_shapes=((1, 64), (1, 8)))
    request = CollectRequest(
        build=BuildRequest(model=model, place=Place(host="here", port=9190, key="pynq"), threads=(1, 2), cache="cold"),
        measuring=Measuring(resources={"core_set": (0, 1), "numa_node": 1, "governor": "performance"}, rounds=3),
        studies=Studies(tune=TuneRequest(trials=20), vendor=True),
    )
    task = WorkerTask(request, work="tune", operators=frozenset("ab"), excluded={"a": "it crashed"})
    assert msgspec.json.decode(msgspec.json.encode(task), type=WorkerTask) == task
