"""What is told of a collection with studies while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Studies, TuneRequest
from op_profiler.collection.summary import ModelReport, ThreadReport
from op_profiler.collection.supervisor import Collection
from op_profiler.collection.worker_process import WorkerOutcome
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.report.collection import Screen


@pytest.mark.parametrize(
    ("studies", "steps"),
    [
        (Studies(tune=TuneRequest(), compare=True, vendor=True), 5),
        (Studies(compare=True), 3),
        (Studies(vendor=True), 3),
    ],
)
def test_each_step_goes_on_where_the_one_before_ends(
    studies: Studies, steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spans: list[tuple[float, float]] = []

    def one(self: Collection, frontend: Any, request: Any, progress: Any, index: int, span: Any) -> ModelReport:
        spans.append(span)
        return ModelReport(request, threads={1: ThreadReport(None, None, {}, 0, 0)})

    def study(self: Collection, task: Any, progress: Any, index: int, span: Any) -> WorkerOutcome:
        spans.append(span)
        return WorkerOutcome(error="nothing was found")

    monkeypatch.setattr(Collection, "_one", one)
    monkeypatch.setattr(Collection, "_study", study)
    build = BuildRequest(model=ModelRequest(source="local", name="mlp"))
    with Collection(f"sqlite:///{tmp_path}/x.db") as collection:
        collection.run(FRONTENDS.get("local"), [CollectRequest(build=build, studies=studies)], Screen(quiet=True))
    assert len(spans) == steps and (spans[0][0], spans[-1][1]) == (0.0, 1.0)
    assert [begin for begin, _ in spans[1:]] == [end for _, end in spans[:-1]]
    assert all(end > begin for begin, end in spans)
