"""Dask's settings for a cluster that measures, chosen so that Dask disturbs kernels as little as possible."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from op_profiler.errors import UsageError, needing

if TYPE_CHECKING:
    from distributed.security import Security

TLS = "OP_PROFILER_TLS"
"""Environment variable with the folder of a cluster's certificates (`certificates.make`)."""

BOARDS = "OP_PROFILER_BOARDS"
"""Environment variable for a worker's processes: boards in the form of ``worker --boards``, separated by commas."""

TARGETS = "OP_PROFILER_TARGETS"
"""Environment variable for a worker's processes: kinds of targets to measure, separated by commas; unset for all."""

AUTHORITY, NODE, KEY = "authority.pem", "node.pem", "node.key"

WAIT_SECONDS = 300
"""Seconds for which a task waits for a suitable worker; longer than a machine takes to boot."""

MACHINE = "machine"
"""Dask resource of which a worker has one and a task needs one, so that a worker carries out one task at a time."""

_DASK = {
    # Its profiler stops the interpreter every 10 ms, and its monitor asks the system twice a second.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.scheduler.work-stealing": True,
    # The client hears of every death of a worker, and knows which of the worker's requests had begun.
    "distributed.scheduler.allowed-failures": 0,
    # What nobody is left for becomes an error. Dask would wait for ever.
    "distributed.scheduler.no-workers-timeout": f"{WAIT_SECONDS}s",
    "distributed.comm.timeouts.connect": "10s",
    "distributed.worker.daemon": False,
}


def configure() -> None:
    """Configure Dask for measuring, in this process and its child processes.

    Raises:
        MissingPackageError: Dask is not installed.
    """
    with needing("distributed", "a cluster", extra="fleet"):
        import dask

        # Dask reads it when it is imported. What goes wrong in its own threads comes to us as an error all the same.
        dask.config.set({"logging": {"distributed": "error", "distributed.client": "critical"}})
        import distributed  # noqa: F401 - reads its own configuration, which would otherwise come on top
    dask.config.set(_DASK)


def measures(kind: str) -> str:
    """Return the name of the Dask resource of workers that measure a kind of targets."""
    return f"measures {kind}"


def on_host(host_id: str) -> str:
    """Return the name of the Dask resource of the workers on a machine."""
    return f"is on the machine {host_id}"


def has_certificates() -> bool:
    """Return whether the environment variable `TLS` is set, which names the folder of certificates."""
    return bool(os.environ.get(TLS))


def has_dashboard() -> bool:
    """Return whether the packages for Dask's dashboard are installed."""
    return importlib.util.find_spec("bokeh") is not None


def check_address(address: str) -> None:
    """Check the form of a scheduler's address: with an invalid address, Dask would wait without a time limit.

    Raises:
        UsageError: the address is neither ``tcp://HOST:PORT`` nor ``tls://HOST:PORT``.
    """
    with contextlib.suppress(ValueError):  # a port that is no number
        parts = urlsplit(address)
        if parts.scheme in ("tcp", "tls") and parts.hostname and parts.port:
            return
    raise UsageError(
        f"{address!r} is no address of a scheduler; write it like tcp://127.0.0.1:8786, or tls://HOST:PORT"
    )


def security(address: str) -> Security | None:
    """Return the certificates for an address that starts with ``tls://``; None for other addresses.

    Raises:
        UsageError: this machine has no certificates; the message contains the command that creates them.
    """
    if not address.startswith("tls://"):
        return None
    made = "'op-profiler certificates FOLDER' makes them, once for all machines"
    if not has_certificates():
        raise UsageError(f"tls:// needs the folder of the cluster's certificates in the variable {TLS}; {made}")
    folder = Path(os.environ[TLS])
    if missing := [name for name in (AUTHORITY, NODE, KEY) if not (folder / name).is_file()]:
        problem = f"which has no {', '.join(missing)}" if folder.is_dir() else "which is no folder"
        raise UsageError(f"tls:// needs the cluster's certificates; {TLS} names {folder}, {problem}. {made}")
    from distributed.security import Security

    files: dict[str, Any] = {"tls_ca_file": str(folder / AUTHORITY)}
    for role in ("client", "worker", "scheduler"):
        files |= {f"tls_{role}_cert": str(folder / NODE), f"tls_{role}_key": str(folder / KEY)}
    return Security(require_encryption=True, **files)
