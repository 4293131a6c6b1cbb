"""A real scheduler and real workers: what is measured through them, and whom they refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from processes import COMMAND, PATIENCE_SECONDS, Listening, other_cache, request, scheduler, worker
from sqlalchemy import select

from op_profiler.collection.request import Studies, TuneRequest
from op_profiler.collection.sampling.batch import Batch
from op_profiler.collection.sampling.draw import Draw
from op_profiler.dataset import Dataset, schema
from op_profiler.errors import DatasetError, MeasureError, UsageError
from op_profiler.fleet import runs, workforce
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.machine import this_machine
from op_profiler.fleet.needs import parse_needs
from op_profiler.fleet.nodes import run_worker
from op_profiler.fleet.settings import AUTHORITY, KEY, NODE, TLS
from op_profiler.fleet.state import state_of
from op_profiler.fleet.tasks import batch_of
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.parallel.corun.child import CorunAnswer
from op_profiler.parallel.corun.request import CorunRequest
from op_profiler.report.page.report import write_model_report

from ..command_line import ROOT, op_profiler
from ..hurry import hurried_path
from ..installed import needs
from ..nursery import STAND_INS

pytestmark = needs("distributed")


def test_every_distinct_machine_measures_under_its_own_name(tmp_path: Path, postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        cluster = stack.enter_context(Cluster(address))
        locks = {"OP_PROFILER_LOCKS": str(tmp_path)}
        stack.enter_context(worker(tmp_path, address, OP_PROFILER_HOST_ID="rack1", **locks))
        labelled = [dataclasses.replace(request(postgres_url), label=f"run{number}") for number in range(2)]
        runs.collect(cluster, labelled, Listening())
        stack.enter_context(worker(tmp_path, address, OP_PROFILER_HOST_ID="rack2", **locks))
        again = runs.collect(cluster, labelled, Listening())
        assert [(r.threads[1].measured, r.threads[1].reused > 0) for r in again] == [(0, True)] * 2  # by rack1
        with pytest.raises(UsageError, match="is a file of this machine"):
            runs.collect(cluster, [request(f"sqlite:///{tmp_path}/a.db")], Listening())
        reports = runs.collect(cluster, [request(postgres_url)], Listening(), each=True)
        assert [r.error for r in reports] == [None, None]
        with Dataset.open(postgres_url, read_only=True) as dataset:
            assert len({model.device_key for model in dataset.models()}) == 2
            page = write_model_report(tmp_path / "page.html", dataset, ["mlp"])
            assert len({model.device.key for model in page.models}) == len(page.models) == 2
            assert {(model.label, model.compiler) for model in page.models} == {("", "relay")}
            (content,) = {model.content for model in page.models}
            assert content


def test_certificates_close_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tls"
    make(folder, ["localhost", "127.0.0.1"])
    assert {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()} == dict.fromkeys(
        (AUTHORITY, NODE, KEY), 0o600
    )
    with pytest.raises(UsageError, match="certificates already"):
        make(folder, ["localhost"])
    monkeypatch.setenv(TLS, str(folder))
    with scheduler(tmp_path) as (address, _):
        assert address.startswith("tls://")
        with Cluster(address) as cluster:
            assert cluster.workers() == {}
        with pytest.raises(MeasureError, match="no scheduler answers"):
            Cluster(address.replace("tls://", "tcp://"))
        stranger = tmp_path / "stranger"
        make(stranger, ["localhost"])
        monkeypatch.setenv(TLS, str(stranger))
        with pytest.raises(MeasureError, match="no scheduler answers"):
            Cluster(address)
        monkeypatch.delenv(TLS)
        with pytest.raises(UsageError, match="op-profiler certificates"):
            Cluster(address)
    with scheduler(tmp_path) as (plain, _):
        done = op_profiler("fleet", plain.replace("tcp://", "tls://"), environment={TLS: str(folder)})
        assert done.returncode == 5 and "does not use TLS" in done.stderr


def test_a_folder_without_certificates_is_told(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "none", "which is no folder"), (tmp_path, "which has no ")):
        done = op_profiler("fleet", "tls://127.0.0.1:9", environment={TLS: str(folder)})
        assert done.returncode == 2 and f"{TLS} names {folder}, {words}" in done.stderr


def test_nobody_is_waited_for_who_cannot_join(tmp_path: Path) -> None:
    words = ("collect", "--modelname", "mlp", "--cluster", "local:1", "--needs", "9999GiB", "--db", "sqlite:///a.db")
    done = op_profiler(*words, folder=tmp_path, libraries=("distributed",))
    assert done.returncode == 2 and "has 9999 GiB of memory, and no other machine can join" in done.stderr


@pytest.mark.parametrize(
    "address", ["foo", "foo:8786", "tcp://127.0.0.1", "tcp://:8786", "tls://host:many", "tcp://h:0"]
)
def test_a_worker_does_not_wait_for_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError, match=r"is no address of a scheduler; write it like tcp://127\.0\.0\.1:8786"):
        run_worker(address, print)


_COLLECT = ("collect", "--modelname", "mlp", "--cluster", "tcp://127.0.0.1:9")
_SWEEP = ("corun", "--cluster", "tcp://127.0.0.1:9")
_BOARD = ("--target", "pynq", "--host", "127.0.0.1", "--port", "9", "--device-key", "pynq")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("scheduler", "--host", "0.0.0.0"), "lets whoever reaches it run code"),
        (("fleet", "tcp://127.0.0.1:9"), "no scheduler answers"),
        (("collect", "--modelname", "mlp", "--cluster", "rack1"), "is no cluster"),
        (("sample", "--count", "1", "--cluster", "tcp://127.0.0.1:9"), "no scheduler answers"),
        (("calibrate", "--cluster", "tcp://127.0.0.1:9"), "no scheduler answers"),
        (("worker", "tcp://rack1:8786"), "give tls:// in place of tcp://"),
        (("worker", "tcp://127.0.0.1:9", "--only-builds"), "--only-builds was removed"),
        (("worker", "tcp://127.0.0.1:9", "--targets", "llvm,pynq"), "pynq is not measured here; give some of llvm"),
        (("worker", "tcp://127.0.0.1:9", "--targets", "fpga"), "unknown target 'fpga'"),
        (("worker", "tcp://127.0.0.1:9", "--builds", "0"), "--builds was removed"),
        (("worker", "tcp://127.0.0.1:9", "--boards", "pynq"), "their tracker, as pynq@"),
        (("worker", "tcp://127.0.0.1:9", "--boards", "pynq@rack1:99999"), "their tracker, as pynq@"),
        (("worker", "tcp://127.0.0.1:9", "--boards", "llvm@rack1:9190"), "which reports it"),
        (("collect", "--modelname", "mlp", "--each"), "add --cluster"),
        (("collect", "--modelname", "mlp", "--cluster", "local:1", "--each", *_BOARD), "leave it out beside --host"),
        (("sample", "--count", "1", "--needs", "avx2"), "add --cluster"),
        (("calibrate", "--cluster", "tcp://127.0.0.1:9", "--needs", "64GB"), "avx512f,EPYC,60GiB"),
        (("corun", "mlp", "--cluster", "tcp://127.0.0.1:9", "--save-plan", "plan.json"), "is for one machine"),
        ((*_COLLECT, "--precision", "float8"), "unknown precision 'float8'"),
        ((*_COLLECT, "--label", "a b"), "'a b' is no name"),
        ((*_COLLECT, "--coverage", "2"), "--coverage 2.0 is out of range"),
        ((*_COLLECT, "--iftune", "true", "--dry-run"), "--dry-run measures nothing"),
        ((*_COLLECT, "--schedules", "/not/here"), "no scheduler answers"),  # a worker may have it
        (("collect", "--module", "a.so", "--entry", "f", "--cluster", "tcp://127.0.0.1:9"), "leave out --cluster"),
        (("sample", "--count", "1", "--remeasure", "old", "--cluster", "tcp://127.0.0.1:9"), "unknown --remeasure"),
        (("calibrate", "--remeasure", "old", "--cluster", "tcp://127.0.0.1:9"), "unknown --remeasure"),
        ((*_SWEEP, "mlp", "--policy", "greedy,best"), "unknown policy 'best'"),
        ((*_SWEEP, "no-such-model"), "unknown local model 'no-such-model'"),
        ((*_SWEEP, "mlp", "--rounds", "0"), "--rounds 0 is out of range"),
        ((*_SWEEP, "mlp", "--costs", "guessed"), "unknown costs 'guessed'"),
        ((*_SWEEP, "mlp", "--policy", "collaborate", "--costs", "predicted"), "leave --costs at measured"),
        ((*_SWEEP, "mlp", "--streams", "2"), "--streams is for --target cuda"),
        ((*_SWEEP, "mlp", "--needs", "64GB"), "avx512f,EPYC,60GiB"),
        ((*_SWEEP, "mlp"), "no scheduler answers"),
        ((*_SWEEP, "file:/no/such.onnx"), "no scheduler answers"),  # a worker may have it
    ],
)
def test_what_cannot_work_is_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = op_profiler(*words, folder=tmp_path)
    assert done.returncode in (2, 5) and sentence in done.stderr and "Traceback" not in done.stderr


def test_a_cluster_of_this_machine_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else comes in: another user of the machine reaches its ports, but has no certificate of it."""
    monkeypatch.delenv(STAND_INS)
    before = _listening(psutil.Process())
    with Cluster("local:2") as cluster:
        found = cluster.workers()
        assert [machine for machine, _ in found.values()] == [this_machine()] * 2
        assert cluster.dashboard is None
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            assert {address for address, _ in _listening(process) - before} <= {"127.0.0.1"}
        assert {urllib.parse.urlsplit(address).scheme for address in (cluster.address, *found)} == {"tls"}
        make(tmp_path / "stranger", ["localhost"])
        monkeypatch.setenv(TLS, str(tmp_path / "stranger"))
        with pytest.raises(MeasureError, match="no scheduler answers"):
            Cluster(cluster.address)


def test_a_cluster_that_cannot_be_reached_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(cluster: Cluster) -> None:
        raise MeasureError("a cable is out")

    monkeypatch.delenv(STAND_INS)
    before = psutil.Process().children(recursive=True)
    monkeypatch.setattr(Cluster, "_connect", unreachable)
    with pytest.raises(MeasureError, match="cable"):
        Cluster("local:1")
    _, left = psutil.wait_procs([one for one in psutil.Process().children(recursive=True) if one not in before], 30)
    assert not [one for one in left if "spawn_main" in " ".join(one.cmdline())]


def _listening(process: psutil.Process) -> set[tuple[str, int]]:
    connections = process.net_connections("tcp")
    return {(at.laddr.ip, at.laddr.port) for at in connections if at.status == psutil.CONN_LISTEN}


def test_nothing_is_reached_from_elsewhere_and_metrics_are_told(shared: str) -> None:
    pytest.importorskip("prometheus_client")
    with Cluster(shared) as cluster:
        client = cluster.client
        of_worker, of_nanny = client.run(os.getpid), client.run(os.getpid, nanny=True)
        for pid in (*of_worker.values(), *of_nanny.values(), client.run_on_scheduler(os.getpid)):
            assert {address for address, _ in _listening(psutil.Process(pid))} == {"127.0.0.1"}
    (worker,) = state_of(shared)["workers"]
    with urllib.request.urlopen(worker["metrics"]) as page:
        assert b"dask_worker_tasks" in page.read()
    with Cluster(shared) as cluster:
        port = cluster.client.scheduler_info(n_workers=0)["services"]["dashboard"]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
        assert b"dask_scheduler_workers" in page.read()


def test_models_are_sampled_over_a_cluster(tmp_path: Path, sqlite_url: str, shared: str) -> None:
    draw = Draw(label="models", models=(ModelRequest(source="local", name="mlp"),))
    asked = request(sqlite_url)
    with Cluster(shared) as cluster:
        done = runs.sample(cluster, draw, asked, Listening(), count=None, budget_seconds=None)
        state = state_of(shared)
    assert (done.batches, done.errors, done.ended, done.failed) == (1, [], "exhausted", 0)
    assert done.measured >= done.operators > 0
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        assert [model.source for model in dataset.models()] == ["sample"]
    (told,) = state["workers"]
    assert told["finished"] > 0 and told["tasks"] == [] and state["per_minute"] > 0 and state["runs"] == []


def test_commands_measure_over_a_cluster_of_this_machine(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they write is of what the workers stored, and the dataset is of this machine's: each finds the other's."""
    monkeypatch.delenv(STAND_INS)
    hurried = {"PYTHONPATH": hurried_path(ROOT / "python")}
    words = ("--threads", "1", "--cluster", "local:1", "--db", sqlite_url, "--report", "page.html")
    collected = op_profiler(
        *("collect", "--modelname", "mlp", "--schedules", "none", "--summary-json", "summary.json", *words),
        folder=tmp_path,
        environment=hurried,
    )
    assert collected.returncode == 0, collected.stderr
    (summary,) = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["model"], summary["error"], summary["reused"]) == ("mlp", None, 0)
    assert summary["measured"] == summary["operators"] > 0 and summary["whole_model_us"] > 0
    assert "mlp" in (tmp_path / "page.html").read_text() and "whole model" in collected.stdout
    page = (tmp_path / "page.html").stat().st_mtime_ns
    sampled = op_profiler(
        *("sample", "--models", "local:mlp", "--rounds", "3", "--json", *words), folder=tmp_path, environment=hurried
    )
    assert sampled.returncode == 0, sampled.stderr
    report = json.loads(sampled.stdout)
    assert (report["batches"], report["errors"], report["ended"]) == (1, [], "exhausted")
    assert report["measured"] >= report["operators"] > 0
    assert (tmp_path / "page.html").stat().st_mtime_ns > page
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        assert [model.source for model in dataset.models()] == ["local", "sample"]


ONCE_FULL = """
CREATE SEQUENCE writes;
CREATE FUNCTION full_at_first() RETURNS trigger AS $$ BEGIN
    IF nextval('writes') = 1 THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER full_at_first BEFORE INSERT ON model_timings FOR EACH ROW EXECUTE FUNCTION full_at_first();
"""


def test_a_batch_that_the_dataset_did_not_take_is_measured_again(postgres_url: str, shared: str) -> None:
    with Dataset.open(postgres_url) as dataset, dataset.transaction(), dataset.read() as connection:
        connection.exec_driver_sql(ONCE_FULL)
    draw = Draw(label="models", models=(ModelRequest(source="local", name="mlp"),))
    listening = Listening()
    with Cluster(shared) as cluster:
        done = runs.sample(cluster, draw, request(postgres_url), listening, count=None, budget_seconds=None)
    assert (done.batches, done.errors, done.error_code, done.failed) == (1, [], 0, 0)
    assert any("No space left on device" in text for text in listening.told)
    with Dataset.open(postgres_url, read_only=True) as dataset:
        assert dataset.counts()["measurements"] == done.measured + done.reused > 0
        assert dataset.counts()["model_timings"] == 1


def test_a_worker_draws_each_batch_once(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = Draw(label="some", seed=3, kinds=("dense",))
    other = Draw(label="all", models=(ModelRequest(source="local", name="mlp"),))
    drawn: list[str] = []

    def counted(self: Draw) -> Iterator[Batch]:
        for batch in batches(self):
            drawn.append(batch.label)
            yield batch

    batches = Draw.batches
    expected = [(batch.label, batch.identity) for batch in itertools.islice(draw.batches(), 9)]
    monkeypatch.setattr(Draw, "batches", counted)

    def taken(number: int) -> tuple[str, object]:
        (batch,) = batch_of(draw, number)
        return batch.label, batch.identity

    assert [taken(number) for number in (0, 1, 4, 8)] == [expected[number] for number in (0, 1, 4, 8)]
    assert drawn == [label for label, _ in expected]
    assert [len(list(batch_of(other, number))) for number in (0, 1, 2, 0)] == [1, 0, 0, 1]
    assert taken(4) == taken(4) == expected[4]  # it is asked for again where it failed


def test_work_goes_only_where_what_it_needs_is_there(
    sqlite_url: str, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = this_machine()
    words = [*here.features[:1], here.processor.split()[-1], "1GiB"]
    with Cluster(shared) as cluster:
        needs = parse_needs("--needs", ",".join(words))
        (report,) = runs.collect(cluster, [request(sqlite_url)], Listening(), needs=needs)
        assert report.error is None and report.threads[1].measured > 0
        monkeypatch.setattr(workforce, "_WAIT_SECONDS", 0)
        monkeypatch.setattr(workforce, "_AGAIN_SECONDS", 0)
        for word, sentence in (("999999GiB", "has 999999 GiB of memory"), ("avx9999", "has avx9999")):
            listening = Listening()
            with pytest.raises(MeasureError, match=f"no worker that measures llvm and .*{sentence}.* came to {shared}"):
                runs.collect(cluster, [request(sqlite_url)], listening, needs=parse_needs("--needs", word))
            assert any(sentence in text and f"{here.host} does not" in text for text in listening.told)


@pytest.mark.slow
def test_a_worker_tunes_and_keeps_the_records(tmp_path: Path, sqlite_url: str, shared: str) -> None:
    asked = request(sqlite_url).of(
        model=ModelRequest(source="simple", name="dense", input_shapes=((1, 64),)), schedules=str(tmp_path / "records")
    )
    asked = dataclasses.replace(asked, studies=Studies(tune=TuneRequest(tuner="random", trials=10)))
    with Cluster(shared) as cluster:
        (report,) = runs.collect(cluster, [asked], Listening())
    assert report.error is None and report.studies is not None
    assert report.studies.tuned and not report.studies.problems
    (records,) = (path for path in (tmp_path / "records").rglob("*.jsonl"))
    assert "dense" in records.read_text()
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        origins = {row["origin"] for row in dataset.rows(select(schema.schedules.c.origin))}
    assert "trial" in origins


def test_policies_are_swept_over_a_cluster(tmp_path: Path, sqlite_url: str, shared: str) -> None:
    words = ["corun", "mlp", "--policy", "greedy,threads", "--threads", "1", "--rounds", "3", "--json", "sweep.json"]
    done = op_profiler(*words, "--cluster", shared, "--each", "--db", sqlite_url, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(this_machine().host) == 2
    found = json.loads((tmp_path / "sweep.json").read_text())
    assert [row["policy"] for row in found] == ["greedy", "threads"]
    for row in found:
        assert row["error"] is None and row["plan_us"] > 0 and row["outputs_equal"] and row["stages"]
    done = op_profiler("corun", "file:/no/such.onnx", "--cluster", shared, folder=tmp_path)
    assert done.returncode == 4 and "such.onnx" in done.stderr


def test_a_sweep_that_cannot_be_stored_is_not_measured_again(tmp_path: Path, shared: str) -> None:
    (tmp_path / "a.db").mkdir()
    models = (ModelRequest(source="local", name="mlp"),)
    asked = CorunRequest(models=models, policy="threads", threads=1, rounds=1, db=f"sqlite:///{tmp_path}/a.db")
    with Cluster(shared) as cluster:
        (ended,) = runs.corun(cluster, [asked], Listening())
    assert isinstance(ended.answer, CorunAnswer) and ended.answer.error_code == DatasetError.exit_code
    assert "a.db" in str(ended.answer.error)


@pytest.mark.slow
def test_every_machine_of_a_cluster_is_calibrated(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        there = {"OP_PROFILER_CACHE": other_cache(tmp_path / "cache"), "OP_PROFILER_LOCKS": str(tmp_path)}
        stack.enter_context(worker(tmp_path, address, XDG_DATA_HOME=str(tmp_path / "data"), **there))
        words = ["calibrate", "--cluster", address, "--budget", "1s", "--rounds", "3", "--threads", "1", "--json"]
        command = [*COMMAND, *words, "--quiet", "--db", f"sqlite:///{tmp_path}/c.db"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        if "left out: under background load" in done.stderr:  # whatever else runs on this machine
            assert done.returncode == MeasureError.exit_code and "--remeasure noisy" in done.stderr
        else:
            (found,) = json.loads(done.stdout)
            assert done.returncode == int(bool(found["errors"] or found["failed"])), done.stderr
            assert found["operators"] >= 20 and Path(found["note"]).is_relative_to(tmp_path / "data")
