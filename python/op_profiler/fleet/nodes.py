"""Runs the processes of a cluster: the scheduler, and a worker on every machine that measures."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
import time
import warnings
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

import op_profiler
from op_profiler.errors import MeasureError, OpProfilerError, UsageError
from op_profiler.fleet import settings
from op_profiler.fleet.machine import DESCRIPTION, FleetMachine, compilers_here, this_machine
from op_profiler.fleet.needs import Needs, offers

if TYPE_CHECKING:
    from distributed import Nanny

_AGAIN_SECONDS = 2.0
_GREETING_SECONDS = 10  # in which a scheduler that is busy says something
_PAGES = 8787  # Dask's usual port
_SIZE_BYTES, _LONGEST_GREETING = 8, 1 << 16

Say = Callable[[str], None]


def run_scheduler(host: str, port: int, say: Say) -> None:
    """Run a scheduler, which assigns tasks to workers, until this process is asked to end.

    Args:
        host: IPv4 address or name to listen at. Without certificates it must be a loopback address: anyone who reaches
            a scheduler can run code on every machine of the cluster.
        port: port to listen at; 0 for any free port.
        say: called with the addresses at which the scheduler and its pages listen.

    Raises:
        UsageError: the address is IPv6; or it is not a loopback address, and this machine has no certificates.
        MeasureError: another program listens at this address, or the address does not belong to this machine.
        MissingPackageError: Dask is not installed.
    """
    if ":" in host:
        raise UsageError(f"--host {host}: Dask's pages cannot be at an address of IPv6; give one of IPv4, or a name")
    protocol = "tls" if settings.has_certificates() else "tcp"
    if protocol == "tcp" and not _is_loopback(host):
        raise UsageError(
            f"--host {host} lets whoever reaches it run code on every machine of the cluster. Make certificates with "
            f"'op-profiler certificates FOLDER' and name the folder in {settings.TLS}; or leave out --host: commands "
            "of other machines then come through a port that ssh forwards, but workers of other machines cannot"
        )
    settings.configure()
    try:
        asyncio.run(_schedule(protocol, host, port, say))
    except (OSError, RuntimeError) as error:
        cause = error.__cause__ if isinstance(error, RuntimeError) else error  # Dask says nothing but that it failed
        if not isinstance(cause, OSError):
            raise
        raise MeasureError(
            f"no scheduler can listen at {host}:{port}: {cause.strerror}; give another --port, or --port 0 for any"
        ) from None


def _is_loopback(host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


async def _schedule(protocol: str, host: str, port: int, say: Say) -> None:
    from distributed import Scheduler

    security = settings.security(f"{protocol}://")
    pages = settings.has_dashboard()
    # where the pages came to lie, if not at the usual port, is said below
    warnings.filterwarnings("ignore", message="Port .* is already in use", category=UserWarning)
    async with Scheduler(
        host=host,
        port=port,
        protocol=protocol,
        security=security,
        dashboard=pages,
        dashboard_address=f"{host}:{_PAGES}",
    ) as scheduler:
        say(f"scheduler at {scheduler.address}")
        http = f"http://{host}:{scheduler.http_server.port}"
        say(f"metrics at {http}/metrics" + (f", dashboard at {http}/status" if pages else ""))
        await _until_end_is_requested(scheduler.finished())


def run_worker(address: str, say: Say, name: str | None = None, *, patience_seconds: float | None = None) -> None:
    """Run a worker, which carries out a scheduler's tasks on this machine, until this process is asked to end.

    If the scheduler is not running, or stops, the worker waits for it.

    Args:
        address: address of the scheduler.
        say: called with messages about the machine and the connection.
        name: Dask's name of the worker; None for a name that Dask chooses.
        patience_seconds: time to wait for a scheduler; None for no limit.

    Raises:
        UsageError: the address is invalid, ``tls://`` without certificates, or ``tcp://`` of another machine.
        MeasureError: no scheduler answered within `patience_seconds`.
        MissingPackageError: Dask is not installed.
    """
    settings.check_address(address)
    settings.configure()
    machine = msgspec.structs.replace(this_machine(), compilers=compilers_here(say))
    asyncio.run(_work(address, say, name, machine, patience_seconds))


async def _work(
    address: str, say: Say, name: str | None, machine: FleetMachine, patience_seconds: float | None
) -> None:
    from distributed import Nanny

    security = settings.security(address)
    say(f"{machine.processor} on {machine.host}, {machine.does}")
    say(f"compiles with {', '.join(one.tvm for one in machine.compilers.values()) or 'nothing: there is no TVM'}")
    ended = asyncio.ensure_future(_until_end_is_requested(asyncio.Event().wait()))
    noted, alone_since = False, time.monotonic()

    async def serve(nanny: Nanny) -> None:
        """Connect to the scheduler, and run the worker until the scheduler stops."""
        nonlocal noted, alone_since
        if address.startswith("tcp://"):
            await asyncio.to_thread(check_scheduler, address, _GREETING_SECONDS)
        async with nanny:
            say(f"connected to {address}")
            noted = False
            try:
                await nanny.finished()
            finally:
                alone_since = time.monotonic()

    while not ended.done():
        nanny = Nanny(address, security=security, name=name, **_listens(address), **worker_options(machine))
        serving = asyncio.ensure_future(serve(nanny))
        await asyncio.wait([serving, ended], return_when=asyncio.FIRST_COMPLETED)
        serving.cancel()
        try:
            await serving
        except asyncio.CancelledError:
            return
        except (OSError, TimeoutError, RuntimeError) as error:
            if not noted:
                say(f"waiting for the scheduler at {address}: {error or type(error).__name__}")
            noted = True
        if patience_seconds is not None and time.monotonic() - alone_since > patience_seconds:
            raise MeasureError(f"no scheduler at {address} for {patience_seconds:g} s")
        await asyncio.wait([ended], timeout=_AGAIN_SECONDS)


def worker_options(machine: FleetMachine) -> dict[str, Any]:
    """Return Dask's options for a worker, which carries out one task at a time, without Dask's memory management.

    The worker is a child process of Dask's nanny, which restarts it if it dies.
    """
    return {
        "nthreads": 1,
        "memory_limit": 0,
        "resources": _offers(machine),
        "startup_information": {DESCRIPTION: _StartupInformation(machine)},
        "dashboard": False,
        "preload": ["op_profiler.fleet.work"],
    }


def _listens(address: str) -> dict[str, Any]:
    """Return Dask's options for the address at which a worker listens.

    Without certificates, anyone who reaches a worker can run code on its machine, so it then listens at a loopback
    address.

    Raises:
        UsageError: without certificates, the scheduler is on another machine, from which it cannot reach this worker.
    """
    if address.startswith("tls://"):
        return {}
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    if not _is_loopback(host):
        raise UsageError(
            f"{address} is on another machine, so this worker would accept connections from everybody. Make "
            "certificates with 'op-profiler certificates FOLDER', and give tls:// in place of tcp://"
        )
    return {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}


def _offers(machine: FleetMachine) -> Needs:
    """Return all Dask resources of a worker on this machine that tasks can require."""
    return {
        **offers(machine.processor, machine.features, machine.memory_bytes),
        settings.MACHINE: 1,
        settings.on_host(machine.host_id): 1,
        **{settings.measures(kind): 1 for kind in machine.measures},
        **dict.fromkeys(machine.measures.values(), 1),
    }


class _StartupInformation:
    """A function that Dask calls whenever the worker joins a scheduler; it returns the description of the machine."""

    def __init__(self, machine: FleetMachine) -> None:
        self._machine = msgspec.to_builtins(machine)

    def __call__(self, _worker: object) -> object:
        return self._machine


async def _until_end_is_requested(other: Coroutine[Any, Any, object]) -> None:
    """Wait for SIGINT (Ctrl-C), SIGTERM (``kill``), or the end of another coroutine."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    waits: list[asyncio.Future[Any]] = [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(other)]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


def check_scheduler(address: str, patience_seconds: float) -> None:
    """Check that the server at an address is a scheduler; if no server listens there, do nothing.

    Dask itself interprets the first bytes of any server as a size, and waits for as many bytes without a time limit.

    Raises:
        OSError: the server does not answer in time, or its first bytes are not the size of a short message, so it is
            another program.
    """
    place = urlsplit(address)
    try:
        with socket.create_connection((place.hostname, place.port), timeout=patience_seconds) as connection:
            size = int.from_bytes(connection.recv(_SIZE_BYTES, socket.MSG_WAITALL), "little")
    except ConnectionRefusedError:  # Dask waits for one that is about to start
        return
    if not 0 < size < _LONGEST_GREETING:
        raise OSError("another program answers at this address")


def machine_of(worker: dict[str, object]) -> FleetMachine:
    """Return the machine that a worker reported.

    Args:
        worker: metadata of the worker, from Dask's scheduler.

    Raises:
        OpProfilerError: it is not a worker of op_profiler, or a worker of another version, which may not support all
            requests.
    """
    try:
        machine = msgspec.convert(worker.get(DESCRIPTION), FleetMachine)
    except msgspec.ValidationError:
        raise OpProfilerError(f"the worker at {worker.get('id')} was not started by 'op-profiler worker'") from None
    if machine.version != op_profiler.__version__:
        raise OpProfilerError(
            f"the worker on {machine.host} is of op_profiler {machine.version}, and this is {op_profiler.__version__}"
        )
    return machine
