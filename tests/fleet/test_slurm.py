"""Jobs of a real SLURM, where its daemons are installed."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_daemons
from processes import COMMAND, PATIENCE_SECONDS, Listening, request
from slurm_daemons import command, jobs

from op_profiler.dataset import Dataset
from op_profiler.errors import UsageError
from op_profiler.fleet import runs
from op_profiler.fleet.certificates import make
from op_profiler.fleet.cluster import Cluster
from op_profiler.fleet.settings import TLS

from ..installed import needs

pytestmark = needs("distributed", "dask_jobqueue")


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    """Environment variables of who uses a SLURM that is gone at the end."""
    if missing := slurm_daemons.missing():
        pytest.skip(f"not installed: {missing} (on Debian: slurmctld slurmd slurm-client munge)")
    folder = Path(tempfile.mkdtemp(prefix="op-slurm-", dir="/tmp"))
    try:
        with slurm_daemons.running(folder) as environment:
            make(folder / "tls", ["localhost"])
            yield {**environment, TLS: str(folder / "tls")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def cluster_file(folder: Path, *lines: str) -> Path:
    """What `--cluster slurm:FILE` reads, with some lines."""
    file = folder / "slurm.yaml"
    usual = ["cores: 1", "memory: 1GB", "scheduler_options: {host: 127.0.0.1}", f"log_directory: {folder}"]
    file.write_text("\n".join([*usual, *lines]))
    return file


def collection(folder: Path, *lines: str) -> list[str]:
    """The command that measures with jobs of a cluster, whose file has some lines."""
    words = ["collect", "--modelsource", "local", "--modelname", "mlp", "--threads", "1"]
    return [*COMMAND, *words, "--db", f"sqlite:///{folder}/a.db", "--cluster", f"slurm:{cluster_file(folder, *lines)}"]


def test_a_job_measures_and_is_cancelled(tmp_path: Path, slurm: dict[str, str]) -> None:
    lines = ["queue: compute", "walltime: '02:00:00'", "job_name: rack", "job_extra_directives: [--exclusive]"]
    process = subprocess.Popen(
        collection(tmp_path, *lines), env={**os.environ, **slurm}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    told = ""
    while process.poll() is None and not told:
        told = command(slurm, "scontrol", "show", "job", "--oneliner")
        told = told if "JobName=rack" in told else ""
        time.sleep(0.1)
    _, err = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, err
    with Dataset.open(f"sqlite:///{tmp_path}/a.db", read_only=True) as dataset:
        assert len(dataset.models()) == 1
    for part in ("Partition=compute", "TimeLimit=02:00:00", "OverSubscribe=NO", "MinMemoryNode=954M"):
        assert part in told
    assert not jobs(slurm)
    assert "JobState=CANCELLED" in command(slurm, "scontrol", "show", "job", "--oneliner")


def test_a_job_ends_after_the_command_that_submitted_it(tmp_path: Path, slurm: dict[str, str]) -> None:
    process = subprocess.Popen(collection(tmp_path, "death_timeout: 1"), env={**os.environ, **slurm})
    until = time.monotonic() + PATIENCE_SECONDS
    while not (log := "".join(file.read_text() for file in tmp_path.glob("*.out"))).count("connected"):
        assert time.monotonic() < until and process.poll() is None, log
        time.sleep(0.1)
    process.kill()
    process.wait()
    while jobs(slurm):
        assert time.monotonic() < until
        time.sleep(0.1)
    (errors,) = tmp_path.glob("*.err")
    assert "error: no scheduler at tls://" in errors.read_text()


@pytest.mark.slow  # SLURM counts minutes, and looks twice a minute
def test_a_job_whose_time_is_over_did_not_die_of_what_it_measured(
    tmp_path: Path, slurm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next job begins when the last is gone: each asks for the whole machine."""
    for name, value in slurm.items():
        monkeypatch.setenv(name, value)
    file = cluster_file(tmp_path, "jobs: 8", "walltime: '00:01:00'", "job_extra_directives: [--exclusive]")
    listening = Listening()
    with Cluster(f"slurm:{file}") as cluster:
        one = request(f"sqlite:///{tmp_path}/a.db")
        found = runs.reports(cluster, [dataclasses.replace(one, label=f"run{n}") for n in range(200)], listening)
        for _, report in found:
            assert report.error is None
            if any("was stopped while it had mlp" in text for text in listening.told):
                break

    assert any("was stopped while it had mlp" in text for text in listening.told)
    assert not any("workers down" in text for text in listening.told)


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
    interrupt = signal.getsignal(signal.SIGINT)
    make(tmp_path / "tls", ["localhost"])
    monkeypatch.setenv(TLS, str(tmp_path / "tls"))
    if text is not None:
        (tmp_path / "slurm.yaml").write_text(text)
    with pytest.raises(UsageError, match=sentence):
        Cluster(f"slurm:{tmp_path}/slurm.yaml")
    assert signal.getsignal(signal.SIGINT) is interrupt, "Ctrl-C is dask-jobqueue's"


def test_jobs_need_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TLS, raising=False)
    (tmp_path / "slurm.yaml").write_text("cores: 4\nmemory: 1GB")
    with pytest.raises(UsageError, match="op-profiler certificates"):
        Cluster(f"slurm:{tmp_path}/slurm.yaml")
