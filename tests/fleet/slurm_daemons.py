"""SLURM with this machine as its only node, as its user: the daemons that a site has, below a folder."""

from __future__ import annotations

import contextlib
import getpass
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "scontrol", "sinfo", "squeue")
PATIENCE_SECONDS = 60

_CONFIGURATION = """
ClusterName=laboratory
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmdPort={node_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
KillWait=5
ReturnToService=2
NodeName={node} NodeAddr=127.0.0.1 CPUs={cores} RealMemory=2000
PartitionName=compute Nodes=ALL Default=YES State=UP OverSubscribe=NO
"""


def missing() -> str:
    """Which of its programs are not here; empty where all are."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    return ", ".join(name for name in PROGRAMS if shutil.which(name, path=path) is None)


@contextlib.contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """SLURM that takes jobs, ended with them.

    Yields:
        Environment variables with which its commands find it.
    """
    node = platform.node()
    configuration = folder / "slurm.conf"
    configuration.write_text(
        _CONFIGURATION.format(
            node=node,
            folder=folder,
            user=getpass.getuser(),
            cores=os.cpu_count(),
            controller_port=_free_port(),
            node_port=_free_port(),
        )
    )
    (folder / "spool").mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    names = ("socket", "pid-file", "log-file", "seed-file")
    munge = [f"--{name}={folder}/munge.{name.removesuffix('-file')}" for name in names]
    environment = {"SLURM_CONF": str(configuration)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_daemon(folder, "munged", "--foreground", "--force", f"--key-file={key}", *munge))
        _until(lambda: (folder / "munge.socket").exists(), folder)
        stack.enter_context(_daemon(folder, "slurmctld", "-D", "-f", str(configuration)))
        stack.enter_context(_daemon(folder, "slurmd", "-D", "-N", node, "-f", str(configuration)))
        _until(lambda: command(environment, "sinfo", "--noheader", "--format=%T") == "idle", folder)
        try:
            yield environment
        finally:
            command(environment, "scancel", f"--user={getpass.getuser()}")
            _until(lambda: not jobs(environment), folder)


def jobs(environment: dict[str, str]) -> list[str]:
    """The states of those that have not ended."""
    return command(environment, "squeue", "--noheader", "--format=%T").split()


def command(environment: dict[str, str], *words: str) -> str:
    """What one of its commands prints; empty where the controller does not answer."""
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    return done.stdout.strip()


@contextlib.contextmanager
def _daemon(folder: Path, program: str, *words: str) -> Iterator[None]:
    environment = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    with (folder / f"{program}.log").open("wb") as log:
        process = subprocess.Popen([program, *words], stdout=log, stderr=log, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(holds: Callable[[], bool], folder: Path) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise OSError("\n".join(f"{log.name}: {log.read_text()[-1000:]}" for log in sorted(folder.glob("*.log"))))
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
