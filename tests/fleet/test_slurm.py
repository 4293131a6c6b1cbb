"""Jobs of SLURM. There is none here: stand-ins for sbatch and scancel start and end the job as a process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from processes import Listening, request

from op_profiler.errors import UsageError
from op_profiler.fleet import runs
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.settings import TLS

from ..installed import needs

pytestmark = needs("distributed", "dask_jobqueue")

_SBATCH = """#!/bin/sh
cp "$1" "$JOBS/script"
setsid sh "$JOBS/script" > "$JOBS/log" 2>&1 &
echo $! > "$JOBS/pid"
echo "Submitted batch job 7"
"""
_SCANCEL = """#!/bin/sh
echo "$@" > "$JOBS/cancelled"
kill -9 "-$(cat "$JOBS/pid")"
"""


def test_a_job_measures_and_is_cancelled(tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("sbatch", _SBATCH), ("scancel", _SCANCEL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(TLS, str(tmp_path / "tls"))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("JOBS", str(tmp_path))
    lines = [
        "queue: compute",
        "cores: 16",
        "memory: 64GB",
        "walltime: 02:00:00",
        "scheduler_options: {host: 127.0.0.1}",
    ]
    (tmp_path / "slurm.yaml").write_text("\n".join([*lines, "job_extra_directives: [--exclusive]"]))
    interrupt = signal.getsignal(signal.SIGINT)
    with Cluster(f"slurm:{tmp_path}/slurm.yaml") as cluster:
        assert signal.getsignal(signal.SIGINT) is interrupt, "Ctrl-C is dask-jobqueue's"
        (report,) = runs.collect(cluster, [request(sqlite_url)], Listening())
        assert report.error is None and report.threads[1].measured > 0
    script = (tmp_path / "script").read_text()
    for line in ("-p compute", "--cpus-per-task=16", "-t 02:00:00", "--exclusive", "--mem="):
        assert f"#SBATCH {line}" in script
    assert "-m op_profiler.fleet.slurm tls://127.0.0.1:" in script
    assert (tmp_path / "cancelled").read_text().strip() == "7"
    job = int((tmp_path / "pid").read_text())
    _, alive = psutil.wait_procs([one for one in psutil.process_iter(["status"]) if _is_of(job, one)], timeout=30)
    assert not alive


def _is_of(job: int, process: psutil.Process) -> bool:
    try:
        return os.getpgid(process.pid) == job and process.info["status"] != psutil.STATUS_ZOMBIE
    except ProcessLookupError:
        return False


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read"),
        ("- 1", "no YAML of names and values"),
        ("jobs: none", "1 or more"),
        ("walltime: 12:00:00", "write it in quotes"),
        ("processes: 4", "is set by op_profiler"),
        ("cores: 4\nmemory: 1GB\nchairs: 3", "dask-jobqueue refuses it"),
        ("queue: compute", "dask-jobqueue refuses it"),
    ],
)
def test_a_file_that_cannot_be_used(
    text: str | None, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(TLS, str(tmp_path / "tls"))
    if text is not None:
        (tmp_path / "slurm.yaml").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        Cluster(f"slurm:{tmp_path}/slurm.yaml")


def test_jobs_need_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TLS, raising=False)
    (tmp_path / "slurm.yaml").write_text("cores: 4\nmemory: 1GB")
    with pytest.raises(UsageError, match="op-profiler certificates"):
        Cluster(f"slurm:{tmp_path}/slurm.yaml")
