"""A real scheduler and real workers: what is measured through them, what they survive, and whom they refuse."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("distributed")

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.dataset import Dataset
from op_profiler.errors import MeasureError, UsageError
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.settings import AUTHORITY, KEY, NODE, TLS
from op_profiler.frontends.frontend import ModelRequest

_COMMAND = [sys.executable, "-c", "from op_profiler.cli import main; main()"]
_PATIENCE_SECONDS = 300


class Listening:
    """Progress that keeps what it is told, and calls `meanwhile` once when a worker says that it measures."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.told: list[str] = []
        self._meanwhile = meanwhile

    def start(self, models: int) -> None:
        self.told.append(f"start {models}")

    def stop(self) -> None:
        self.told.append("stop")

    def step(self, description: str, done_models: float) -> None:
        self.told.append(description)
        if self._meanwhile is not None and ": " in description:
            meanwhile, self._meanwhile = self._meanwhile, None
            threading.Thread(target=meanwhile).start()

    def note(self, text: str) -> None:
        self.told.append(text)

    def problem(self, text: str) -> None:
        self.told.append(text)


@contextlib.contextmanager
def running(*words: str, log: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command of op-profiler's, ended with its children."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*_COMMAND, *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        process.kill()
        process.wait()


def said(log: Path, pattern: str, times: int = 1) -> str:
    """Wait until a log says something; what its group matched."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < until:
        found = re.findall(pattern, log.read_text())
        if len(found) >= times:
            return str(found[-1])
        time.sleep(0.1)
    raise AssertionError(f"{pattern} is not in {log.read_text()}")


@contextlib.contextmanager
def scheduler(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    log = folder / f"scheduler{time.monotonic_ns()}.log"
    with running("scheduler", "--port", str(port), log=log) as process:
        yield said(log, r"scheduler at (\S+)"), process


@contextlib.contextmanager
def worker(folder: Path, address: str, **environment: str) -> Iterator[Path]:
    log = folder / f"worker{time.monotonic_ns()}.log"
    with running("worker", address, log=log, environment=environment):
        said(log, "(connected)")
        yield log


def request(db: str, model: str = "mlp") -> CollectRequest:
    build = BuildRequest(model=ModelRequest(source="local", name=model), threads=(1,), schedules="none")
    return CollectRequest(build=build, measuring=Measuring(rounds=3), db=db)


def dask_worker_of(log: Path, address: str) -> psutil.Process:
    """The process that carries requests out: the child of the command that connected to `address`."""
    (command,) = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"][-2:] == ["worker", address]]
    return next(p for p in command.children(recursive=True) if "spawn_main" in " ".join(p.cmdline()))


def test_a_worker_and_a_scheduler_that_die_cost_nothing_but_time(tmp_path: Path, sqlite_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, first = stack.enter_context(scheduler(tmp_path))
        log = stack.enter_context(worker(tmp_path, address))
        cluster = stack.enter_context(Cluster(address))
        (machine, _), *others = cluster.workers().values()
        assert not others and "llvm" in machine.measures

        def kill_worker() -> None:
            dask_worker_of(log, address).send_signal(signal.SIGKILL)

        # The worker runs in another folder than this process.
        relative = f"sqlite:///{os.path.relpath(sqlite_url.removeprefix('sqlite:///'))}"
        (report,) = cluster.collect([request(relative)], Listening(kill_worker))
        assert report.error is None and report.threads[1].measured == len(report.operators) > 0

        def restart_scheduler() -> None:
            first.kill()
            first.wait()
            stack.enter_context(scheduler(tmp_path, int(address.rsplit(":", 1)[1])))

        listening = Listening(restart_scheduler)
        asked = [request(sqlite_url), dataclasses.replace(request(sqlite_url), label="again")]
        reports = cluster.collect(asked, listening)
        assert [r.error for r in reports] == [None, None]
        assert [r.request.label for r in reports] == ["", "again"] and reports[0].threads[1].reused > 0
        said(log, "(connected)", times=2)
        with Dataset.open(sqlite_url, read_only=True) as dataset:
            assert len(dataset.models()) == 2
            assert dataset.counts()["measurements"] == 2 * len(report.operators)


def test_every_distinct_machine_measures_under_its_own_name(tmp_path: Path, postgres_url: str) -> None:
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        for host in ("rack1", "rack2"):
            stack.enter_context(worker(tmp_path, address, OP_PROFILER_HOST_ID=host, OP_PROFILER_LOCKS=str(tmp_path)))
        cluster = stack.enter_context(Cluster(address))
        with pytest.raises(UsageError, match="is a file of this machine"):
            cluster.collect([request(f"sqlite:///{tmp_path}/a.db")], Listening())
        reports = cluster.collect([request(postgres_url)], Listening(), each=True)
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
    done = subprocess.run([*_COMMAND, *words], capture_output=True, text=True, cwd=tmp_path, timeout=_PATIENCE_SECONDS)
    assert done.returncode in (2, 5) and sentence in done.stderr and "Traceback" not in done.stderr
