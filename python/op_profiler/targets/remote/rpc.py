"""Finds and connects to machines behind TVM's RPC: through a tracker, or directly to a server.

TVM's RPC runs any code for any client: use trackers and servers only on networks where everybody may run code on them.
Every call has a time limit, because a tracker without a free machine and a board without power never answer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.compilers.tvm_types import RemoteSession
from op_profiler.errors import BoardLostError, MeasureError
from op_profiler.targets.machine import Place

ANSWER_SECONDS = 10.0
"""Time limit of calls that a connected machine answers immediately."""
_TRACKER_MAGIC = 0x2F271
_SERVER = "server:"
_OTHER_PROTOCOL = ("pending_request_bytes_", "protocol version mismatch", "Invalid message")
"""Part of TVM's message about a server whose protocol it cannot read."""


@contextlib.contextmanager
def deadline(seconds: float, doing: str) -> Iterator[None]:
    """Raise BoardLostError if the block, which calls into TVM, takes longer than `seconds`; outside the main thread,
    there is no time limit.

    The limit is a signal, which also ends calls into TVM: TVM's sockets let Python's signal handlers run.

    Args:
        doing: what the block does, for the error message.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    late_error: list[BoardLostError] = []

    def late(_signal: int, _frame: FrameType | None) -> None:
        late_error.append(BoardLostError(f"no answer after {seconds:g} s while {doing}"))
        raise late_error[0]

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception as error:
        if late_error and error is not late_error[0]:  # on its way through TVM it became another
            raise late_error[0] from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def is_tracker(host: str, port: int) -> bool:
    """Return whether a tracker listens at an address; an RPC server closes the connection after a tracker's greeting.

    Raises:
        MeasureError: nothing listens there.
    """
    try:
        with socket.create_connection((host, port), timeout=ANSWER_SECONDS) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(struct.pack("<i", _TRACKER_MAGIC))
            answer = connection.recv(4, socket.MSG_WAITALL)
    except (ConnectionResetError, TimeoutError):
        return False
    except (OSError, UnicodeError) as error:  # the latter of names that are no host's
        reason = getattr(error, "strerror", None) or error
        raise MeasureError(
            f"nothing answers at {host}:{port} ({reason}); is the tracker or the server running? "
            "python -m tvm.exec.rpc_tracker --host=127.0.0.1 --port=9190 starts a tracker on this machine"
        ) from error
    return len(answer) == 4 and struct.unpack("<i", answer)[0] == _TRACKER_MAGIC


@dataclasses.dataclass(frozen=True)
class TrackerMachine:
    """One machine that is registered at a tracker.

    Attributes:
        address: ``host:port`` of its server.
        free: whether the machine is not in use.
    """

    key: str
    address: str
    free: bool


def list_machines(host: str, port: int) -> list[TrackerMachine]:
    """Return the machines that are registered at a tracker.

    Raises:
        MeasureError: no tracker answers there.
    """
    tracker = _tracker(host, port)
    try:
        summary = tracker.summary()
    finally:
        tracker.close()
    free: dict[tuple[str, str], int] = {}
    found = []
    for entry in summary["server_info"]:
        key = str(entry["key"]).removeprefix(_SERVER)
        place = entry.get("addr")
        address = f"{place[0]}:{place[1]}" if place else "unknown"
        left = free.setdefault((key, ""), int(summary["queue_info"].get(key, {}).get("free", 0)))
        free[key, ""] = left - 1
        found.append(TrackerMachine(key, address, left > 0))
    return sorted(found, key=lambda one: (one.key, one.address))


def _tracker(host: str, port: int) -> Any:
    rpc = load_tvm().rpc
    try:
        tracker = rpc.connect_tracker(host, port)
    except (OSError, RuntimeError) as error:
        raise MeasureError(f"no tracker answers at {host}:{port}: {error}") from error
    tracker._sock.settimeout(ANSWER_SECONDS)
    return tracker


@dataclasses.dataclass
class Connection:
    """A session on one machine.

    Attributes:
        session: `tvm.rpc.RPCSession`.
        address: ``host:port`` of its server.
    """

    session: RemoteSession
    address: str

    def alive(self) -> bool:
        """Return whether the machine still answers in this session."""
        try:
            with deadline(ANSWER_SECONDS, "asking whether it is there"):
                self.session.get_function("runtime.NumThreads")()
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            return False
        return True


def connect(place: Place, *, wait_seconds: float, address: str | None = None) -> Connection:
    """Open a session on the machine at a place.

    Args:
        wait_seconds: how long to wait until a machine with the key of `place` is free.
        address: address of the requested machine; other machines that the tracker offers are released.

    Raises:
        BoardLostError: no machine became free, or the free machine does not answer.
    """
    rpc = load_tvm().rpc
    if not is_tracker(place.host, place.port):
        with deadline(wait_seconds, f"connecting to {place.host}:{place.port}"), _as_lost(place):
            return Connection(rpc.connect(place.host, place.port, place.key), f"{place.host}:{place.port}")
    others = []
    try:
        while True:
            host, port, match = _request(place, wait_seconds)
            with deadline(wait_seconds, f"connecting to {host}:{port}"), _as_lost(place):
                made = Connection(rpc.connect(host, port, match), f"{host}:{port}")
            if address is None or made.address == address:
                return made
            others.append(made)  # held until the wanted one has come, or the tracker would offer it again
    finally:
        others.clear()


def _request(place: Place, wait_seconds: float) -> tuple[str, int, str]:
    """Request a machine from a tracker; return the address of its server and the key of the connection."""
    base = load_tvm().rpc.base
    tracker = _tracker(place.host, place.port)
    try:
        tracker._sock.settimeout(wait_seconds)
        base.sendjson(tracker._sock, [base.TrackerCode.REQUEST, place.key, "", 1])
        code, answer = base.recvjson(tracker._sock)
    except (OSError, ValueError) as error:
        raise BoardLostError(
            f"no machine with key {place.key!r} became free at the tracker {place.host}:{place.port} within "
            f"{wait_seconds:g} s; op-profiler devices --host {place.host} --port {place.port} lists the machines"
        ) from error
    finally:
        tracker.close()
    if code != base.TrackerCode.SUCCESS:
        raise BoardLostError(f"the tracker {place.host}:{place.port} refuses key {place.key!r}: {answer}")
    return str(answer[0]), int(answer[1]), str(answer[2])


@contextlib.contextmanager
def _as_lost(place: Place) -> Iterator[None]:
    """Convert errors of TVM about a failed connection into BoardLostError."""
    try:
        yield
    except BoardLostError:
        raise
    except (RuntimeError, OSError) as error:
        reason = str(error).strip().splitlines()[-1]
        if any(word in str(error) for word in _OTHER_PROTOCOL):
            raise MeasureError(
                f"the server behind {place.host}:{place.port}, key {place.key!r}, is of another TVM: --compiler "
                f"{compiler_in_use().name} needs one of TVM {load_tvm().__version__} there"
            ) from error
        raise BoardLostError(f"no session with key {place.key!r} at {place.host}:{place.port}: {reason}") from error
