"""Workers as jobs of a SLURM cluster, for as long as a command runs; dask-jobqueue submits them.

python -m op_profiler.fleet.slurm SCHEDULER --name NAME ...     (what a job runs; dask-jobqueue writes the line)
"""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.errors import MissingPackageError, UsageError
from op_profiler.fleet import settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from distributed.deploy.cluster import Cluster as DaskCluster

_JOBS = "jobs"
_OURS = ("processes", "security", "protocol", "worker_command", "nanny", "n_workers")


def slurm_cluster(path: Path) -> DaskCluster:
    """A scheduler of this process, and jobs with a worker each, which end with it.

    Args:
        path: YAML: ``jobs``, and any other argument of dask-jobqueue's ``SLURMCluster`` (``queue``, ``account``,
            ``walltime``, ``cores``, ``memory``, ``job_extra_directives``, ...).

    Raises:
        UsageError: the file cannot be used, or there are no certificates: jobs come over a network.
        MissingPackageError: no dask-jobqueue.
    """
    options = _read(path)
    jobs = options.pop(_JOBS, 1)
    if not isinstance(jobs, int) or jobs < 1:
        raise UsageError(f"{path}: jobs is {jobs!r}; give how many there shall be, 1 or more")
    scheduler = {"dashboard": False, "dashboard_address": ":0"} | options.pop("scheduler_options", {})
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
    """dask-jobqueue's cluster of SLURM's jobs. Importing it takes Ctrl-C for itself, so that it is given back."""
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        from dask_jobqueue.slurm import SLURMCluster
    except ImportError:
        raise MissingPackageError("dask-jobqueue", "--cluster slurm:FILE", extra="fleet") from None
    finally:
        signal.signal(signal.SIGINT, interrupt)
    return SLURMCluster


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"--cluster slurm:{path} cannot be read: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise UsageError(f"{path} is no YAML of names and values, such as: jobs: 4")
    if ours := [name for name in _OURS if name in found]:
        raise UsageError(f"{path}: {', '.join(ours)} is set by op_profiler; leave it out")
    if isinstance(found.get("walltime"), int):
        raise UsageError(f"{path}: YAML reads walltime as the number {found['walltime']}; write it in quotes")
    return found


def main() -> None:
    """Run a worker in a job."""
    from op_profiler.fleet.nodes import run_worker

    parser = argparse.ArgumentParser()
    parser.add_argument("scheduler")
    parser.add_argument("--name")
    parser.add_argument("--tls-ca-file", type=Path)
    given, _ = parser.parse_known_args()  # the others are of Dask's own worker
    if given.tls_ca_file is not None:
        os.environ.setdefault(settings.TLS, str(given.tls_ca_file.parent))
    run_worker(given.scheduler, lambda text: print(text, flush=True), name=given.name)


if __name__ == "__main__":
    main()
