"""Starts workers as jobs of a SLURM cluster, for the duration of a command; dask-jobqueue submits the jobs.

Each job runs the following command, which dask-jobqueue writes:

python -m op_profiler.fleet.slurm SCHEDULER --name NAME ...
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.errors import OpProfilerError, UsageError, needing
from op_profiler.fleet import settings
from op_profiler.fleet.cluster_files import read, take_count
from op_profiler.fleet.nodes import run_worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.deploy.cluster import Cluster as DaskCluster

_OURS = ("processes", "security", "protocol", "worker_command", "nanny", "n_workers")


def slurm_cluster(path: Path) -> DaskCluster:
    """Start a scheduler in this process, and jobs with one worker each; the jobs end with the scheduler.

    Args:
        path: YAML file with ``jobs`` (the number of jobs) and any other argument of dask-jobqueue's ``SLURMCluster``
            (``queue``, ``account``, ``walltime``, ``cores``, ``memory``, ``job_extra_directives``, ...).

    Raises:
        UsageError: the file cannot be used, or this machine has no certificates, which jobs need because they connect
            over a network.
        MissingPackageError: dask-jobqueue is not installed.
    """
    options = _read(path)
    jobs = take_count(options, "jobs", path)
    scheduler = {"dashboard": False, "dashboard_address": "127.0.0.1:0"} | options.pop("scheduler_options", {})
    try:
        return _jobs_of_dask()(
            n_workers=jobs,
            processes=1,
            security=settings.security("tls://"),
            worker_command=__spec__.name,
            scheduler_options=scheduler,
            **options,
        )
    except (TypeError, ValueError, OSError, RuntimeError) as error:
        raise UsageError(f"{path}: dask-jobqueue refuses it: {error}") from error


def _jobs_of_dask() -> Callable[..., DaskCluster]:
    """Return dask-jobqueue's class for SLURM, and restore the handler of Ctrl-C, which its import replaces."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        with needing("dask-jobqueue", "--cluster slurm:FILE", extra="fleet"):
            from dask_jobqueue.slurm import SLURMCluster
    finally:
        signal.signal(signal.SIGINT, interrupt)
    return SLURMCluster


def _read(path: Path) -> dict[str, Any]:
    found = read("slurm", path, "jobs: 4")
    if ours := [name for name in _OURS if name in found]:
        raise UsageError(f"{path}: {', '.join(ours)} is set by op_profiler; leave it out")
    if isinstance(found.get("walltime"), int):
        raise UsageError(f"{path}: YAML reads walltime as the number {found['walltime']}; write it in quotes")
    return found


def main() -> None:
    """Run a worker in a job; entry point of the job.

    The worker ends soon after its scheduler, which ends with the command that submitted the job.
    """
    from dask.utils import parse_timedelta

    parser = argparse.ArgumentParser()
    parser.add_argument("scheduler")
    parser.add_argument("--name")
    parser.add_argument("--tls-ca-file", type=Path)
    parser.add_argument("--death-timeout", type=parse_timedelta)
    given, _ = parser.parse_known_args()  # the others are of Dask's own worker
    if given.tls_ca_file is not None:
        os.environ.setdefault(settings.TLS, str(given.tls_ca_file.parent))
    try:
        run_worker(
            given.scheduler,
            lambda text: print(text, flush=True),
            name=given.name,
            patience_seconds=given.death_timeout,
        )
    except OpProfilerError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
