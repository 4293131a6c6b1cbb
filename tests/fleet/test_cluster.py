"""A real scheduler and real workers: what is measured through them, and whom they refuse."""

from __future__ import annotations

import contextlib
import json
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from processes import COMMAND, PATIENCE_SECONDS, Listening, request, scheduler, worker

from op_profiler.collection.sampling.draw import Draw
from op_profiler.dataset import Dataset
from op_profiler.errors import MeasureError, UsageError
from op_profiler.fleet import runs
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.settings import AUTHORITY, KEY, NODE, TLS
from op_profiler.fleet.state import state_of
from op_profiler.frontends.frontend import ModelRequest

from ..command_line import op_profiler


def test_every_distinct_machine_measures_under_its_own_name(tmp_path: Path, postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        for host in ("rack1", "rack2"):
            stack.enter_context(worker(tmp_path, address, OP_PROFILER_HOST_ID=host, OP_PROFILER_LOCKS=str(tmp_path)))
        cluster = stack.enter_context(Cluster(address))
        with pytest.raises(UsageError, match="is a file of this machine"):
            runs.collect(cluster, [request(f"sqlite:///{tmp_path}/a.db")], Listening())
        reports = runs.collect(cluster, [request(postgres_url)], Listening(), each=True)
        assert [r.error for r in reports] == [None, None]
        with Dataset.open(postgres_url, read_only=True) as dataset:
            assert len({model.device_key for model in dataset.models()}) == 2


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


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("scheduler", "--host", "0.0.0.0"), "lets whoever reaches it run code"),
        (("fleet", "tcp://127.0.0.1:9"), "no scheduler answers"),
        (("collect", "--modelname", "mlp", "--cluster", "rack1"), "is no cluster"),
        (("collect", "--modelname", "mlp", "--each"), "add --cluster"),
    ],
)
def test_what_cannot_work_is_refused(words: tuple[str, ...], sentence: str, tmp_path: Path) -> None:
    done = op_profiler(*words, folder=tmp_path)
    assert done.returncode in (2, 5) and sentence in done.stderr and "Traceback" not in done.stderr


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


@pytest.mark.slow
def test_every_machine_of_a_cluster_is_calibrated(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        stack.enter_context(worker(tmp_path, address, XDG_DATA_HOME=str(tmp_path / "data")))
        words = ["calibrate", "--cluster", address, "--budget", "1s", "--rounds", "3", "--threads", "1", "--json"]
        command = [*COMMAND, *words, "--quiet", "--db", f"sqlite:///{tmp_path}/c.db"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert done.returncode == 0, done.stderr
        (found,) = json.loads(done.stdout)
        assert found["operators"] >= 20 and Path(found["note"]).is_relative_to(tmp_path / "data")
