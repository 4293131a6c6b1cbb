"""Schedulers and workers as users start them, and progress that listens."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

import psutil

from op_profiler import cache
from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.frontends.frontend import ModelRequest

COMMAND = [sys.executable, "-c", "from op_profiler.cli import main; main()"]
PATIENCE_SECONDS = 300


class Listening:
    """Progress that keeps what it is told, and calls `meanwhile` once when a worker says that it measures."""

    def __init__(self, meanwhile: Any = None) -> None:
        self.told: list[str] = []
        self._meanwhile = meanwhile

    def start(self, models: int) -> None:
        self.told.append(f"start {models}")

    def stop(self) -> None:
        self.told.append("stop")

    def step(self, description: str, done_models: float) -> None:
        self.told.append(description)
        if self._meanwhile is not None and ": " in description:
            meanwhile, self._meanwhile = self._meanwhile, None
            threading.Thread(target=meanwhile).start()

    def note(self, text: str) -> None:
        self.told.append(text)

    def problem(self, text: str) -> None:
        self.told.append(text)


class Process(Protocol):
    """As far as tests ask."""

    pid: int

    def kill(self) -> None: ...

    def wait(self) -> int: ...


def started(words: Sequence[str], out: IO[bytes], folder: Path, environment: dict[str, str]) -> Process:
    """A command of op-profiler's in a Python of its own; the tests of a fleet have another function in this place."""
    return subprocess.Popen([*COMMAND, *words], stdout=out, stderr=out, env=environment, cwd=folder)


_workers: dict[int, str] = {}
"""Process ids of the workers' commands that run, and the addresses of their schedulers."""


@contextlib.contextmanager
def running(*words: str, log: Path, environment: dict[str, str] | None = None) -> Iterator[Process]:
    """A command of op-profiler's, ended with its children."""
    with log.open("ab") as out:
        process = started(words, out, log.parent, {**os.environ, **(environment or {})})
    if words[0] == "worker":
        _workers[process.pid] = words[-1]
    try:
        yield process
    finally:
        _workers.pop(process.pid, None)
        end(process.pid)
        process.wait()


def end(pid: int) -> None:
    """Kill a process and all that it started; it first, since it may start them anew."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


def said(log: Path, pattern: str, times: int = 1) -> str:
    """Wait until a log says something; what its group matched."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        found = re.findall(pattern, log.read_text())
        if len(found) >= times:
            return str(found[-1])
        time.sleep(0.1)
    raise AssertionError(f"{pattern} is not in {log.read_text()}")


@contextlib.contextmanager
def scheduler(folder: Path, port: int = 0) -> Iterator[tuple[str, Process]]:
    log = folder / f"scheduler{time.monotonic_ns()}.log"
    with running("scheduler", "--port", str(port), log=log) as process:
        yield said(log, r"scheduler at (\S+)"), process


def other_cache(folder: Path) -> str:
    """A cache folder without builds, which knows what takes seconds to find out."""
    for name in ("processor", "peaks", "relay"):
        if (cache.cache_folder() / name).is_dir():
            shutil.copytree(cache.cache_folder() / name, folder / name)
    return str(folder)


@contextlib.contextmanager
def worker(folder: Path, address: str, *words: str, **environment: str) -> Iterator[Path]:
    log = folder / f"worker{time.monotonic_ns()}.log"
    with running("worker", *words, address, log=log, environment=environment):
        said(log, "(connected)")
        yield log


def request(db: str, model: str = "mlp") -> CollectRequest:
    build = BuildRequest(model=ModelRequest(source="local", name=model), threads=(1,), schedules="none")
    return CollectRequest(build=build, measuring=Measuring(rounds=3), db=db)


def dask_workers_of(address: str) -> list[psutil.Process]:
    """The processes that carry requests out: the children of the commands that connected to `address`."""
    found = []
    for pid in [pid for pid, connected_to in _workers.items() if connected_to == address]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(pid).children(recursive=True)
            found += [p for p in children if p.is_running() and "spawn_main" in " ".join(p.cmdline())]
    return found
