"""How batches of sampled operators are handed out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import pytest

pytest.importorskip("distributed")

from processes import Listening, request

from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.sampling.run import SampleReport
from op_profiler.errors import OpProfilerError
from op_profiler.fleet import runs
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.jobs import EndedTask
from op_profiler.fleet.tasks import SampleTask


class TwoMachines:
    """Each measures half of the operators of a batch: the others came twice."""

    done = 0.0
    runs = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def run(self, tasks: Iterable[SampleTask]) -> Iterator[EndedTask]:
        self.runs += 1
        assert self.runs < 10, "nothing is handed out any more"
        for task in tasks:
            for _ in range(2):
                measured = SampleReport(batches=1, operators=task.draw.points_of(task.number) // 2)
                yield EndedTask(task.number, task, answer=measured)


class NothingIsLowered(TwoMachines):
    def run(self, tasks: Iterable[SampleTask]) -> Iterator[EndedTask]:
        for task in tasks:
            failed = SampleReport(batches=1, errors=[f"{task.name}: TVM cannot lower it"])
            yield EndedTask(task.number, task, answer=failed)


def test_a_run_of_which_nothing_comes_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "Dispatch", NothingIsLowered)
    asked = request("sqlite:///a.db")
    with pytest.raises(OpProfilerError, match="none came of 10 batches .* some-9: TVM cannot lower it"):
        runs.sample(
            cast("Cluster", None), Draw(label="some"), asked, Listening(), count=2000, budget_seconds=None, each=True
        )


def test_every_device_gets_batches_until_enough_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "Dispatch", TwoMachines)
    done = runs.sample(
        cast("Cluster", None),
        Draw(label="some"),
        request("sqlite:///a.db"),
        Listening(),
        count=40,
        budget_seconds=None,
        each=True,
    )
    assert (done.ended, done.batches, done.operators) == ("count", 6, 62)
