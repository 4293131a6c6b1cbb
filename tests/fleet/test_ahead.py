"""Models that one worker builds and another one measures."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

pytest.importorskip("distributed")

from processes import PATIENCE_SECONDS, Listening, end, other_cache, request, scheduler, worker

from op_profiler import cache
from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest
from op_profiler.collection.sampling.draw import Draw
from op_profiler.collection.summary import ModelReport
from op_profiler.dataset import Dataset
from op_profiler.fleet import dispatch, runs, settings, work, workforce
from op_profiler.fleet.ahead import maker, taker
from op_profiler.fleet.ahead.delivery import NAME, ORDER, Promise
from op_profiler.fleet.ahead.order import order_for
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.events import Announcing
from op_profiler.fleet.state import state_of
from op_profiler.fleet.tasks import CollectTask, SampleTask
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.turns import PROCESSOR, WAITING, measuring
from op_profiler.parallel.corun.child import CorunAnswer
from op_profiler.parallel.corun.request import CorunRequest

MLP = ModelRequest(source="local", name="mlp")
HEAD_ID, RACK_ID = (hashlib.sha256(f"op_profiler {name}".encode()).hexdigest()[:16] for name in ("head", "rack"))
RACK = {settings.on_host(RACK_ID): 1.0}


def kept(folder: Path) -> dict[str, Any]:
    """What a cache tells of its one build."""
    (about,) = folder.glob(f"built/*/*/{cache.ABOUT}")
    seconds: float = json.loads((about.parent / "build.json").read_text())["build_seconds"]
    return {"place": about.parent.name, "files": json.loads(about.read_text())["files"], "seconds": seconds}


def after_another(asked: CollectRequest) -> list[CollectRequest]:
    """A request behind one that ends at once: who measures it has something to do when it is handed out."""
    return [dataclasses.replace(asked, label="-"), asked]


def test_a_machine_that_has_nothing_to_measure_builds_for_one_that_has(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers as users start them; one of them has not what is needed."""
    head, rack = tmp_path / "head", tmp_path / "rack"
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(settings.TLS, str(tmp_path / "tls"))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_two_machines(tmp_path, head, rack))
        assert cluster.address.startswith("tls://")
        turn = stack.enter_context(contextlib.ExitStack())
        turn.enter_context(_measuring_on(rack))
        received: list[list[Path]] = []  # while something is measured

        class Waiting(Listening):
            def step(self, description: str, done_models: float) -> None:
                super().step(description, done_models)
                if "waiting: " in description and not received:
                    received.append(list(rack.glob("built/*/*")))
                    turn.close()

        listening = Waiting()
        _, report = runs.collect(cluster, after_another(request(postgres_url)), listening, needs=RACK)
        assert report.error is None and report.threads[1].measured > 0 and received == [[]]
        assert kept(rack) == kept(head) and not any("built where it is measured" in text for text in listening.told)
        with Dataset.open(postgres_url, read_only=True) as dataset:
            timing = dataset.find_model_timing(report.model_key, threads=1, cache="model", resources=_asked())
        assert timing is not None
        assert timing.timing.details["build_seconds"] == pytest.approx(kept(head)["seconds"], abs=1e-3)
        told = state_of(cluster.address)["workers"]
        assert sorted((one["finished"], one["failed"]) for one in told) == [(0, 0), (1, 1)]
        assert all(
            "measures llvm" in one["does"] and f"else builds {one['builds']} at once" in one["does"] for one in told
        )

        one = CorunRequest(models=(MLP,), policy="threads", threads=1, rounds=1)
        sweep = [dataclasses.replace(one, rounds=0), one]
        shutil.rmtree(rack / "built")
        _, ended = runs.corun(cluster, sweep, listening, needs=RACK)
        assert isinstance(ended.answer, CorunAnswer) and ended.answer.error is None
        assert kept(rack) == kept(head) and not any("built where it is measured" in text for text in listening.told)


def test_batches_of_samples_travel_with_what_is_built_of_them(tmp_path: Path, sqlite_url: str) -> None:
    head, rack = tmp_path / "head", tmp_path / "rack"
    with _two_machines(tmp_path, head, rack, "--only-builds") as cluster:
        listening = Listening()
        draw = Draw(label="models", models=(ModelRequest(source="simple", name="dense", input_shapes=((1, 16),)), MLP))
        done = runs.sample(cluster, draw, request(sqlite_url), listening, count=None, budget_seconds=None)
    assert (done.batches, done.errors, done.ended, done.failed) == (2, [], "exhausted", 0) and done.measured > 0
    assert not any("built where it is measured" in text for text in listening.told)
    (name,) = (path.name for path in (head / "samples").iterdir() if "of-mlp" in path.name)
    assert (rack / "samples" / name).read_bytes() == (head / "samples" / name).read_bytes()
    there = {about.parent.parent.name for about in rack.glob(f"built/*/*/{cache.ABOUT}")}
    assert kept_builds(head) <= there and len(there) == 2
    seconds = {path.read_text() for path in (*head.glob("built/*/*/build.json"), *rack.glob("built/*/*/build.json"))}
    assert len(seconds) == 2  # nothing was built twice


def kept_builds(folder: Path) -> set[str]:
    return {about.parent.parent.name for about in folder.glob(f"built/*/*/{cache.ABOUT}")}


def test_whatever_goes_wrong_with_a_build_it_is_built_where_it_is_measured(tmp_path: Path, sqlite_url: str) -> None:
    head, rack = tmp_path / "head", tmp_path / "rack"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_two_machines(tmp_path, head, rack, "--only-builds", "--builds", "2"))
        ordering = Ordering(cluster)
        assert [(m.builds, m.does) for m in ordering.machines if m.only_builds] == [(2, "builds 2 at once")]
        with _measuring_on(head):
            ordering.order(request(sqlite_url))
            assert ordering.over() and not ordering.made()  # somebody measures there
            finished = ordering.measured(request(sqlite_url))
        assert [text for text in finished.messages if "built" in text] == [] and _is_measured(finished)

        ordering.order(request(sqlite_url))
        assert (
            ordering.made()[0].place == "" and ordering.made()[0].reason == ""
        )  # every machine has measured it before
        ordering.order(request(sqlite_url).of(threads=(1, 2)))
        assert ordering.made()[0].place  # but not all of it
        again = dataclasses.replace(request(sqlite_url), label="again")
        ordering.order(again)
        assert ordering.made()[0].place.endswith(f"/{kept(head)['place']}") and ordering.made()[0].reason == ""
        shutil.rmtree(rack / "built")
        (graph,) = head.glob("built/*/*/graph.json")
        graph.write_text(f"{graph.read_text()} ")
        finished = ordering.measured(again)
        (sentence,) = (text for text in finished.messages if "refused" in text)
        assert "a file in it is not as it was written; it is built where it is measured" in sentence
        assert _is_measured(finished)
        assert kept(rack)["place"] == kept(head)["place"] and kept(rack)["seconds"] != kept(head)["seconds"]

        crashed = ordering.killed_while_it_builds(dataclasses.replace(request(sqlite_url), label="crashed"))
        assert crashed.place == "" and "the process died (SIGKILL)" in crashed.reason
        told, sentence, *_ = ordering.measured(again).messages
        assert "the worker's log: " in told and "the process died (SIGKILL)" in sentence

        ordering.order(request(sqlite_url, "nothing-of-this-name"))
        assert ordering.made()[0].place == "" and "unknown" in ordering.made()[0].reason
        ordering.order(request(sqlite_url).of(input_data=str(tmp_path / "only-there.npz")))
        assert "only-there.npz" in ordering.made()[0].reason
        ordering.building = ordering.building.rpartition(":")[0] + ":9"  # nobody is there
        (sentence,) = (text for text in ordering.measured(again).messages if "refused" in text)
        assert "built where it is measured" in sentence

        taken: list[int] = []

        def samples() -> Iterator[SampleTask]:
            """Each ends at once: there is no such kind."""
            for number in itertools.count():
                taken.append(number)
                yield SampleTask(request(sqlite_url), Draw(label="none", kinds=("no such kind",)), number)

        assert next(dispatch.Dispatch(cluster, Listening()).run(samples())).answer is None
        # Two for each worker that measures, two more, and as many as are built meanwhile: how many tells the clock.
        assert 4 <= len(taken) <= 16


def test_a_worker_that_leaves_while_it_builds_keeps_nobody_waiting(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One build is lost while it is made, and one is asked for of a worker that is not there any more."""
    head, rack = tmp_path / "head", tmp_path / "rack"
    monkeypatch.setattr(workforce, "_KNOWN_SECONDS", 1e9)  # it is not noticed in time
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(_two_machines(tmp_path, head, rack, "--only-builds"))
        _hurry(cluster)
        ordering = Ordering(cluster)

        def tasks() -> Iterator[CollectTask]:
            first, second = after_another(dataclasses.replace(request(sqlite_url), label="begun"))
            yield CollectTask(first)
            yield CollectTask(second)
            ordering.child().suspend()
            _end(cluster, ordering.building)
            relative = f"sqlite:///{os.path.relpath(sqlite_url.removeprefix('sqlite:///'), tmp_path)}"
            yield CollectTask(dataclasses.replace(request(relative), label="late"))

        listening = Listening()
        _, *ended = sorted(dispatch.Dispatch(cluster, listening).run(tasks()), key=lambda one: one.index)
        assert [one.task.request.label for one in ended if isinstance(one.task, CollectTask)] == ["begun", "late"]
        assert {one.task.request.db for one in ended} == {sqlite_url}  # workers are in other folders
        for one in ended:
            assert isinstance(one.answer, ModelReport) and one.answer.error is None
        assert len([text for text in listening.told if "is refused" in text and "built where" in text]) == 2
        assert kept(rack)["files"] and not list(head.glob("built/*/*"))
        (last,) = cluster.workers()
        (nobody,) = dispatch.Dispatch(cluster, listening).run(_without(cluster, last, sqlite_url))
        assert "no worker that measures llvm" in nobody.error and nobody.machine is None


def test_a_worker_that_builds_still_has_time_for_a_request(tmp_path: Path, postgres_url: str) -> None:
    head, rack = tmp_path / "head", tmp_path / "rack"
    with _two_machines(tmp_path, head, rack) as cluster:
        there: dict[str, float] = {settings.on_host(HEAD_ID): 1}
        (first,) = runs.collect(cluster, [request(postgres_url)], Listening(), needs=there)
        ordering = Ordering(cluster)
        ordering.order(dataclasses.replace(request(postgres_url), label="again"), wait=False)
        child = ordering.child()
        child.suspend()
        (again,) = runs.collect(cluster, [request(postgres_url)], Listening(), needs=there)
        child.kill()
        assert first.threads[1].measured == again.threads[1].reused > 0 and again.threads[1].measured == 0


def test_a_build_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.new_event_loop()

    def work() -> None:
        # All in this thread: where tests of pages ran before, the main thread has a loop of Playwright's.
        loop.run_forever()
        loop.run_until_complete(asyncio.sleep(0))  # what was cancelled ends
        loop.close()

    thread = threading.Thread(target=work)
    asked: list[dict[str, object]] = []

    async def never(**what: object) -> bytes:
        asked.append(what)
        await asyncio.sleep(3600)
        return b""

    here = SimpleNamespace(
        loop=SimpleNamespace(asyncio_loop=loop),
        rpc=lambda _address: SimpleNamespace(**{NAME: never}),
        get_current_task=lambda: "mlp",
        log_event=lambda _topic, _event: None,
    )
    monkeypatch.setattr("distributed.get_worker", lambda: here)
    monkeypatch.setattr(taker, "_PATIENCE_SECONDS", 0.1)
    thread.start()
    try:
        progress = Announcing("rack")
        arrivals = taker.Arrivals(msgspec.msgpack.encode(Promise("head", "tcp://head:9", "key", 2)), "mlp", progress)
        arrivals.take_all()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    assert len(asked) <= 1  # the second is not asked for any more
    assert progress.messages == [
        "the build of mlp from head is refused: it did not come in time; it is built where it is measured"
    ]


def test_a_wait_is_told_however_soon_it_comes_after_another_step(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, str]] = []
    here = SimpleNamespace(get_current_task=lambda: "mlp", log_event=lambda _topic, event: told.append(event))
    monkeypatch.setattr("distributed.get_worker", lambda: here)
    progress = Announcing("rack")
    for text in ("mlp: waiting for its build", "mlp: 1 of 60 rounds", f"mlp: {WAITING}another process works"):
        progress.step(text, 0.0)
    assert [one["text"].startswith(f"mlp: {WAITING}") for one in told] == [False, True]


class Ordering:
    """Orders of the worker that is on the machine ``head``, one after the other."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.machines = [machine for machine, _ in cluster.workers().values()]
        (self.building,) = (at for at, (machine, _) in cluster.workers().items() if machine.host_id == HEAD_ID)
        self._orders: list[Any] = []

    def order(self, asked: CollectRequest, *, wait: bool = True) -> None:
        order = order_for(CollectTask(asked), [machine for machine in self.machines if machine.host_id != HEAD_ID])
        assert order is not None and "-mcpu=" in order.models[0].target
        encoded, key = msgspec.msgpack.encode(order), f"{ORDER}{len(self._orders)}"
        self._orders.append(self.cluster.client.submit(maker.carry_out, encoded, key=key, workers=[self.building]))
        if wait:
            self._orders[-1].result()

    def _found(self) -> maker._Work:
        key = self._orders[-1].key

        def look() -> Any:
            from op_profiler.fleet.ahead import maker

            return maker._desk.find(key)

        (found,) = self.cluster.client.run(look, workers=[self.building]).values()
        assert isinstance(found, maker._Work)
        return found

    def made(self) -> dict[int, maker._Made]:
        return self._found().made

    def over(self) -> bool:
        return self._found().over

    def measured(self, asked: CollectRequest) -> work.Finished:
        """With the last order, on the other machine, where that alone measures."""
        measures = {settings.MACHINE: 1}
        promise = msgspec.msgpack.encode(Promise("head", self.building, self._orders[-1].key, 1))
        task = msgspec.msgpack.encode(CollectTask(asked))
        done = self.cluster.client.submit(work.carry_out, task, promise, resources=measures, pure=False)
        return msgspec.msgpack.decode(done.result(), type=work.Finished)

    def child(self) -> psutil.Process:
        """The process that builds, once it is there."""
        (pid,) = self.cluster.client.run(os.getpid, workers=[self.building]).values()
        until = time.monotonic() + PATIENCE_SECONDS
        while not (children := psutil.Process(pid).children()):
            assert time.monotonic() < until, "nothing is built"
            time.sleep(0.02)
        return children[0]

    def killed_while_it_builds(self, asked: CollectRequest) -> maker._Made:
        self.order(asked, wait=False)
        self.child().kill()
        self._orders[-1].result()
        return self.made()[0]


def _is_measured(finished: work.Finished) -> bool:
    assert finished.answer is not None
    answer = msgspec.msgpack.decode(finished.answer, type=ModelReport)
    return answer.error is None and answer.threads[1].measured > 0


def _hurry(cluster: Cluster) -> None:
    """Let it wait for nobody."""

    def set_timeout(dask_scheduler: Any) -> None:
        dask_scheduler.no_workers_timeout = 0.1

    cluster.client.run_on_scheduler(set_timeout)


@contextlib.contextmanager
def _two_machines(folder: Path, head: Path, rack: Path, *of_head: str) -> Iterator[Cluster]:
    """Two workers with caches and locks of their own; a worker that measures claims another machine where both do."""
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(folder))
        for place, words in ((head, of_head), (rack, ())):
            there = {"OP_PROFILER_CACHE": other_cache(place), "OP_PROFILER_LOCKS": str(place)}
            claim = {"OP_PROFILER_HOST_ID": place.name} if place == head or not of_head else {}
            stack.enter_context(worker(folder, address, *words, **claim, **there))
        yield stack.enter_context(Cluster(address))


@contextlib.contextmanager
def _measuring_on(folder: Path) -> Iterator[None]:
    """Have the turn of those whose locks lie in a folder."""
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as turn:
        patch.setenv("OP_PROFILER_LOCKS", str(folder))
        turn.enter_context(measuring([PROCESSOR]))
        patch.undo()
        yield


def _end(cluster: Cluster, address: str) -> None:
    """Kill the command of a worker with all that it started."""
    (pid,) = cluster.client.run(os.getpid, workers=[address], nanny=True).values()
    end(pid)
    until = time.monotonic() + PATIENCE_SECONDS
    while address in cluster.workers():
        assert time.monotonic() < until, "its scheduler did not notice"
        time.sleep(0.1)


def _without(cluster: Cluster, last: str, db: str) -> Iterator[CollectTask]:
    """A task that is asked for while the only worker leaves."""
    _end(cluster, last)
    yield CollectTask(request(db))


def _asked() -> dict[str, Any]:
    return CollectRequest(build=BuildRequest(model=MLP)).asked(1)
