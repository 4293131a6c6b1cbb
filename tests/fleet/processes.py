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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def running(*words: str, log: Path, environment: dict[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A command of op-profiler's, ended with its children."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [*COMMAND, *words],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
        )
    try:
        yield process
    finally:
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
def scheduler(folder: Path, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
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
    listed = psutil.process_iter(["cmdline"])
    commands = [p for p in listed if (p.info["cmdline"] or [])[-2:] == ["worker", address]]
    found = []
    for command in commands:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = command.children(recursive=True)
            found += [p for p in children if p.is_running() and "spawn_main" in " ".join(p.cmdline())]
    return found
