"""A runtime in a separate process, which runs only while it is measured and is suspended otherwise.

The process is suspended because the threads of a runtime keep polling for work after a run, which would disturb the
measurements of other runtimes.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from op_profiler.child_processes import Child, carry_out
from op_profiler.comparison.peers import PEERS
from op_profiler.errors import MeasureError

if TYPE_CHECKING:
    from op_profiler.comparison.peers.peer import Peer, PeerSession

WARM_SECONDS, TIMED_SECONDS = 0.03, 0.1
_LONG_SECONDS = 0.3
"""Runs of at least this duration need no warm-up run."""
_WATCHED_SECONDS = 0.5
_BUSY_SHARE = 0.05
"""A thread counts as working if it runs for this share of the time of the busiest thread."""
_PROFILED_SECONDS = 1.0
_LEAST_RUNS = 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class PeerTask:
    """Task of the separate process: the model to run, and the runtime to run it in.

    Attributes:
        peer: name of the runtime.
        file: file with the model, in a format that the runtime reads.
        inputs: file with the input arrays, by position.
        outputs: file to which the process writes its outputs.
        folder: folder for files of the runtime.
        cores: cores that the process is bound to, one per thread.
        profiled: whether times of layers are requested.
    """

    peer: str
    file: str
    inputs: str
    outputs: str
    folder: str
    cores: tuple[int, ...]
    profiled: bool


@dataclasses.dataclass(frozen=True)
class PeerProfile:
    """Times that a runtime's own profiler reports.

    Attributes:
        nodes: name and microseconds of each node of a run.
        distortion: time of a run with the profiler divided by the time of a run without, both measured alternately.
    """

    nodes: tuple[tuple[str, float], ...]
    distortion: float


class PeerFailure(Exception):
    """Raised if a runtime cannot run the model; the message is the reason, a sentence without a full stop."""


class RunningPeer:
    """A runtime that has loaded a model. As a context manager, it kills the process at the end.

    Attributes:
        version: version of the runtime's package.
        threads: thread count that the runtime reports.
        busy_threads: number of threads that worked while the model ran.
        profile: times by the runtime's profiler; None if it has no profiler.
    """

    version: str
    threads: int
    busy_threads: int
    profile: PeerProfile | None

    def __init__(self, task: PeerTask) -> None:
        self._task = task
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._child = Child(__name__, task, self._log)
        self._events: Iterator[dict[str, Any]] = self._child.events()

    def __enter__(self) -> RunningPeer:
        try:
            loaded = self._next()
        except BaseException:
            self.__exit__()
            raise
        self.version, self.threads, self.busy_threads = loaded["version"], loaded["threads"], loaded["busy"]
        profile = loaded["profile"]
        self.profile = PeerProfile(tuple(map(tuple, profile["nodes"])), profile["distortion"]) if profile else None
        return self

    def __exit__(self, *_: object) -> None:
        self._child.__exit__()
        self._log.close()

    @property
    def process(self) -> int:
        """Process identifier."""
        return self._child.process.pid

    def outputs(self) -> list[np.ndarray]:
        """Return the outputs of the model, in the order of the model."""
        with np.load(self._task.outputs, allow_pickle=False) as arrays:
            return [arrays[str(place)] for place in range(len(arrays.files))]

    def time_us(self) -> float:
        """Resume the runtime for a while; return the median time of a run in microseconds.

        Raises:
            PeerFailure: the process has died.
        """
        self._child.process.send_signal(signal.SIGCONT)
        return float(self._next()["us"])

    def _next(self) -> dict[str, Any]:
        """Return the next event of the process, after the process is suspended again.

        Raises:
            PeerFailure: the process reported an error, or ended.
        """
        event = next(self._events, None)
        if event is None or "error" in event:
            code = self._child.process.wait()
            raise PeerFailure(event["error"] if event else f"its process ended with {code}")
        os.waitid(os.P_PID, self.process, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return event


def timed_runs(run: Callable[[], float]) -> float:
    """Return the median time of a run in microseconds, after some warm-up runs.

    Args:
        run: runs the model once and returns the microseconds that the run took.
    """
    started = time.perf_counter()
    us = run()
    while (passed := time.perf_counter() - started) < WARM_SECONDS:
        us = run()
    if passed >= _LONG_SECONDS:
        return run()
    started, times = time.perf_counter(), []
    while time.perf_counter() - started < TIMED_SECONDS:
        times.append(run())
    return statistics.median(times or [us])


def main() -> int:
    """Entry point of the process that runs a model in another project's runtime."""
    return carry_out(PeerTask, _serve)


def _serve(task: PeerTask, send: Callable[..., None]) -> None:
    os.sched_setaffinity(0, task.cores)  # before the runtime makes threads, which inherit it

    peer = PEERS.get(task.peer)
    with np.load(task.inputs, allow_pickle=False) as arrays:
        inputs = [arrays[str(place)] for place in range(len(arrays.files))]
    session = _load(peer, task, inputs, profiled=False)
    session.run()
    outputs = {str(place): array for place, array in enumerate(session.outputs())}
    np.savez(task.outputs, **outputs)  # type: ignore[arg-type]
    threads, busy = session.threads, busy_threads(session.run)
    profile = None
    if task.profiled and peer.has_profiler:
        profile = dataclasses.asdict(_profile(session, _load(peer, task, inputs, profiled=True)))
    send(version=metadata.version(peer.packages[0]), threads=threads, busy=busy, profile=profile)
    while True:
        os.kill(os.getpid(), signal.SIGSTOP)
        send(us=timed_runs(lambda: _timed_us(session)))


def _load(peer: Peer, task: PeerTask, inputs: Sequence[np.ndarray], *, profiled: bool) -> PeerSession:
    try:
        return peer.load(Path(task.file), Path(task.folder), inputs, len(task.cores), profiled=profiled)
    except Exception as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MeasureError(f"it does not take the model: {line[:300]}") from error


def _timed_us(session: PeerSession) -> float:
    started = time.perf_counter_ns()
    session.run()
    return (time.perf_counter_ns() - started) / 1e3


def _profile(plain: PeerSession, profiled: PeerSession) -> PeerProfile:
    """Return the profile over several runs, each next to a run without the profiler."""
    profiled.run()
    started, ratios = time.perf_counter(), list[float]()
    nodes: dict[str, float] = {}
    while len(ratios) < _LEAST_RUNS or time.perf_counter() - started < _PROFILED_SECONDS:
        plain_us, profiled_us = _timed_us(plain), _timed_us(profiled)
        ratios.append(profiled_us / plain_us)
    for name, us in profiled.layer_times():
        nodes[name] = nodes.get(name, 0.0) + us / (len(ratios) + 1)
    return PeerProfile(tuple(nodes.items()), statistics.median(ratios))


def busy_threads(run: Callable[[], None]) -> int:
    """Return the number of threads of this process that work during calls of a function.

    Args:
        run: called repeatedly for half a second, at least three times.
    """
    before = _nanoseconds_of_threads()
    started, runs = time.perf_counter(), 0
    while runs < _LEAST_RUNS or time.perf_counter() - started < _WATCHED_SECONDS:
        run()
        runs += 1
    worked = [ran_ns - before.get(thread, 0) for thread, ran_ns in _nanoseconds_of_threads().items()]
    return sum(ran_ns > _BUSY_SHARE * max(worked) for ran_ns in worked)


def _nanoseconds_of_threads() -> dict[str, int]:
    """Return the nanoseconds that each thread of this process ran, by its number."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        try:
            found[task.name] = int((task / "schedstat").read_text().split()[0])
        except OSError:  # it has ended meanwhile
            continue
    return found
