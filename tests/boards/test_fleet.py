"""Boards that a worker of a cluster announces."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))

from lab import BoardProcess
from processes import Listening, request, running, said, scheduler

from op_profiler.dataset import Dataset
from op_profiler.dataset.maintain import contents
from op_profiler.fleet import runs
from op_profiler.fleet.cluster import Cluster

from ..installed import needs

pytestmark = needs("distributed")


def test_a_request_goes_to_the_worker_that_reaches_such_a_board(lab: Any, tmp_path: Path, sqlite_url: str) -> None:
    lab.board()
    boards, log = f"pynq@127.0.0.1:{lab.port}", tmp_path / "worker.log"
    words = ("--boards", boards, "--targets", "pynq")
    with scheduler(tmp_path) as (address, _), running("worker", *words, address, log=log):
        said(log, "measures (pynq)")
        said(log, "(connected)")
        with Cluster(address) as cluster:
            ((machine, about),) = cluster.workers().values()
            assert machine.measures == {"pynq": boards} and "measures llvm" not in about["resources"]
            asked = request(sqlite_url).of(target="pynq", threads=())
            assert asked.build.place is None
            (report,) = runs.collect(cluster, [asked], Listening())
    assert report.error is None and report.request.build.place is not None and report.request.build.place.key == "pynq"
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        (device,) = contents(dataset).devices
    assert device["kind"] == "pynq" and device["rows"] == len(report.operators) * len(report.threads) > 0


def test_each_board_of_given_speed_measures_by_its_own_server(
    board_build: Path, tmp_path: Path, sqlite_url: str
) -> None:
    """Without a tracker, so that they are told apart; their kernels wait, each for as long as its board says."""
    seconds = (0.02, 0.05)
    with contextlib.ExitStack() as stack:
        address, _ = stack.enter_context(scheduler(tmp_path))
        for number, wait in enumerate(seconds):
            (folder := tmp_path / f"board{number}").mkdir()
            board = BoardProcess(board_build, folder, 0, kernel_seconds=wait)
            stack.callback(board.stop)
            log = tmp_path / f"worker{number}.log"
            words = ("--boards", f"pynq@{board.address}", "--targets", "pynq")
            stack.enter_context(running("worker", *words, address, log=log))
            said(log, "(connected)")
        cluster = stack.enter_context(Cluster(address))
        reports = runs.collect(cluster, [request(sqlite_url).of(target="pynq")], Listening(), each=True)
    found = sorted(
        min(measured.median_us for measured in report.threads[1].measurements.values() if measured.median_us)
        for report in reports
    )
    assert [1e6 * wait <= median_us for wait, median_us in zip(seconds, found, strict=True)] == [True, True]
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        assert len(contents(dataset).devices) == 2
