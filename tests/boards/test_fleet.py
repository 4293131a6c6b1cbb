"""Boards that a worker of a cluster announces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))

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
    with scheduler(tmp_path) as (address, _), running("worker", "--boards", boards, address, log=log):
        said(log, "measures llvm.*, (pynq)")
        said(log, "(connected)")
        with Cluster(address) as cluster:
            asked = request(sqlite_url).of(target="pynq", threads=())
            assert asked.build.place is None
            (report,) = runs.collect(cluster, [asked], Listening())
    assert report.error is None and report.request.build.place is not None and report.request.build.place.key == "pynq"
    with Dataset.open(sqlite_url, read_only=True) as dataset:
        (device,) = contents(dataset).devices
    assert device["kind"] == "pynq" and device["rows"] == len(report.operators) * len(report.threads) > 0
