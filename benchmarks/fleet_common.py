"""What the benchmarks of a fleet share: a scheduler with workers, a PostgreSQL server, and requests."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from common import ROOT

sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "fleet")]

SHARE = float(os.environ.get("BENCHMARK_SHARE", "1"))
"""Of a benchmark that is run, as of the number of its requests: less than all tries it out, and nothing is stored."""

_STORED = """
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import Frontend, ModelRequest


class Stored(Frontend):
    def names(self):
        return ["<number>"]

    def default_names(self):
        return []

    def _check(self, request):
        int(request.name)

    def fingerprint(self, request):
        return FRONTENDS.get("local").fingerprint(ModelRequest(source="local", name="mlp"))

    def load(self, request):
        raise AssertionError("what is asked for is in the dataset")


FRONTEND = Stored()
"""


class Asked:
    """A cluster of processes of this machine, and how to ask and harm it."""

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        from processes import scheduler

        from op_profiler.fleet.cluster import Cluster

        self._folder, self._stack = folder, stack
        self.address, self._scheduler = stack.enter_context(scheduler(folder))
        self.cluster = stack.enter_context(Cluster(self.address))

    def worker(self, *words: str, **environment: str) -> None:
        """One more."""
        from processes import worker

        self._stack.enter_context(worker(self._folder, self.address, *words, **environment))

    def reports(self, requests: Sequence[Any], *, each: bool = False) -> Generator[Any, None, None]:
        """As they come."""
        from op_profiler.fleet import runs
        from op_profiler.report.collection import Screen

        for _, report in runs.reports(self.cluster, requests, Screen(quiet=True), each=each):
            yield report

    def ended(self, requests: Sequence[Any], *, each: bool = False) -> Iterator[Any]:
        """As `Dispatch` tells them: with the machine that did each."""
        from op_profiler.fleet.dispatch import Dispatch
        from op_profiler.fleet.tasks import CollectTask
        from op_profiler.report.collection import Screen

        return Dispatch(self.cluster, Screen(quiet=True), each=each).run(map(CollectTask, requests))

    def run(self, requests: Sequence[Any], *, each: bool = False) -> list[Any]:
        """All reports."""
        return list(self.reports(requests, each=each))

    def dask_workers(self) -> list[Any]:
        """The processes that carry requests out."""
        from processes import dask_workers_of

        return dask_workers_of(self.address)

    def restart_scheduler(self) -> None:
        """Kill it, and start another one at its place."""
        from processes import scheduler

        self._scheduler.kill()
        self._scheduler.wait()
        port = int(self.address.rsplit(":", 1)[1])
        _, self._scheduler = self._stack.enter_context(scheduler(self._folder, port))


@contextlib.contextmanager
def cluster_of(folder: Path, workers: int, *words: str, other_machines: bool = False) -> Iterator[Asked]:
    """A scheduler and workers.

    Args:
        words: of the command line of each worker.
        other_machines: each worker says that it is on a machine of its own.
    """
    source = folder / "source"
    (source / "stored_models-0.dist-info").mkdir(parents=True)
    (source / "stored_models.py").write_text(_STORED)
    (source / "stored_models-0.dist-info" / "METADATA").write_text("Name: stored-models\nVersion: 0\n")
    points = "[op_profiler.frontends]\nstored = stored_models:FRONTEND\n"
    (source / "stored_models-0.dist-info" / "entry_points.txt").write_text(points)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "python"), str(source)])
    sys.path.insert(0, str(source))
    with contextlib.ExitStack() as stack:
        asked = Asked(folder, stack)
        for number in range(workers):
            claim = {"OP_PROFILER_HOST_ID": f"machine{number}", "OP_PROFILER_LOCKS": str(folder)}
            asked.worker(*words, **(claim if other_machines else {}))
        yield asked


@contextlib.contextmanager
def postgresql_server(*settings: str) -> Iterator[Any]:
    """See `tests/postgresql.py`."""
    from postgresql import running

    with running(*settings) as server:
        yield server


def small_requests(db: str, count: int) -> list[Any]:
    """A small model, really measured, under a label each."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.collection.request import CollectRequest, Measuring
    from op_profiler.frontends.frontend import ModelRequest

    build = BuildRequest(model=ModelRequest(source="local", name="mlp"), threads=(1,), schedules="none")
    one = CollectRequest(build=build, measuring=Measuring(rounds=3), db=db)
    return [dataclasses.replace(one, label=f"request{number}") for number in range(count)]


def on_board(request: Any, port: int) -> Any:
    """The same on an emulated board behind a tracker."""
    from op_profiler.targets.machine import Place

    return request.of(target="pynq", place=Place(host="127.0.0.1", port=port, key="pynq"))


def stored_requests(folder: Path, count: int) -> list[Any]:
    """Requests that are in the dataset already."""
    from op_profiler.collection.supervisor import Collection
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.collection import Screen

    (one,) = small_requests(f"sqlite:///{folder}/stored.db", 1)
    one = dataclasses.replace(one, label="")
    with Collection(one.db) as collection:
        (report,) = collection.run(FRONTENDS.get("local"), [one], Screen(quiet=True))
        assert report.error is None, report.error
    return [one.of(model=ModelRequest(source="stored", name=str(number))) for number in range(count)]


def main() -> None:
    """Collect small models, plainly or over a cluster: ADDRESS COUNT [CLUSTER]."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.collection.request import CollectRequest, Measuring
    from op_profiler.collection.supervisor import Collection
    from op_profiler.fleet import runs
    from op_profiler.fleet.cluster import Cluster
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.report.collection import Screen

    db, count = sys.argv[1], int(sys.argv[2])
    models = [ModelRequest(source="simple", name="dense", input_shapes=((1, 64 + n),)) for n in range(count)]
    builds = [BuildRequest(model=model, threads=(1,), schedules="none") for model in models]
    requests = [CollectRequest(build=build, measuring=Measuring(), db=db) for build in builds]
    if len(sys.argv) > 3:
        with Cluster(sys.argv[3]) as cluster:
            reports = runs.collect(cluster, requests, Screen(quiet=True))
    else:
        with Collection(db) as collection:
            reports = collection.run(FRONTENDS.get("simple"), requests, Screen(quiet=True))
    assert all(report.error is None for report in reports), {report.error for report in reports}


if __name__ == "__main__":
    main()
