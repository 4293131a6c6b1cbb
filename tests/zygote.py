"""A process that has imported what commands need, and forks one for each command line that it reads.

A command then takes milliseconds instead of seconds, and is a process of its own: what crashes, hangs or asks for too
much memory is one command. One line of JSON in (see `command_line.py`), the exit code out. The worker processes that a
command starts are forked too, from a process that was there before the command opened any file.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import resource
import signal
import socket
import subprocess
import sys
import time
import traceback
import types
from collections.abc import Callable, Iterable
from typing import IO, Any

import op_profiler
from hurry import measure_in_a_hurry
from op_profiler.errors import MissingPackageError

IN_WORKERS = "OP_PROFILER_TESTS_IN_WORKERS"
"""Environment variable: code that worker processes of a collection run first."""
_LEFT_OUT = (
    "op_profiler.tuning.trials.preload",  # changes the environment
    "op_profiler.frontends.zoo.transformers",  # imports torch
)
# What commands import beside the package, in `main` too: without it the shortest would take five times as long.
_ALWAYS = (
    *("numpy", "scipy.sparse", "scipy.special", "sqlite3", "sqlalchemy.dialects.sqlite", "tvm.relay.testing.mlp"),
    *("rich.markdown", "rich.progress", "rich.table", "typer._adapters", "typer.rich_utils", "xgboost"),
)
_MOST_BYTES = 24 << 30  # of addresses; what asks for more gets a MemoryError, as on a machine that is full


def load_package() -> None:
    from op_profiler.compilers.tvm_build import load_tvm

    load_tvm()
    for module in pkgutil.walk_packages(op_profiler.__path__, "op_profiler."):
        if module.name not in _LEFT_OUT:
            with contextlib.suppress(ImportError):  # of an extra that is not installed
                importlib.import_module(module.name)
    load(_ALWAYS)


def make_commands() -> None:
    """Once for all command lines: their options are read from some forty signatures."""
    import typer

    from op_profiler import cli

    commands = typer.main.get_command(cli.application())
    vars(cli)["application"] = lambda: commands


def warm_up() -> None:
    """What TVM sets up when it is first used, and the probe's kernels: half of what a short collection would take.
    No kernel is run, which would start TVM's threads."""
    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.measure import steadiness
    from op_profiler.targets.target import resolve_target

    if compiler_in_use().name == DEFAULT_COMPILER:  # another process imports the models of others
        FRONTENDS.get("local").load(ModelRequest(source="local", name="mlp"))
    steadiness._functions(str(resolve_target("llvm")))


def hurry() -> None:
    """Beside what `measure_in_a_hurry` does: plans and runs are compared after few rounds, and all that commands
    connect to is here."""
    from op_profiler.comparison import turns
    from op_profiler.fleet import cluster
    from op_profiler.parallel.corun import candidates
    from op_profiler.targets.remote import board

    measure_in_a_hurry()
    vars(turns)["_COPY_SECONDS"] = 0.01
    vars(candidates).update(_SHORT_ROUNDS=5, _CHOICE_SECONDS=0.5)
    vars(cluster)["_CONNECT_SECONDS"] = 1
    vars(board)["_WAIT_SECONDS"] = 10.0


def load_transformers() -> None:
    from op_profiler.frontends import transformers

    transformers._library()


def load(libraries: Iterable[str]) -> bool:
    """Import what is not there yet and is installed; whether there was any."""
    missing = [name for name in libraries if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(ImportError, MissingPackageError):
            if name == "transformers":  # which otherwise takes torchvision along, built for another torch
                load_transformers()
            else:
                importlib.import_module(name)
    if missing:
        gc.collect()
        gc.freeze()  # else a collection in a child copies all of this
    return bool(missing)


class Nursery:
    """A process that worker processes of collections are forked from, one after the other, and in a supervisor's place
    the module `subprocess`, whose `Popen` asks it for one. All commands share it: to fork it again for each would cost
    as much as to fork the command."""

    PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair()
        self._pid = os.fork()
        if self._pid == 0:
            self._orders.close()
            self._serve(theirs)
        theirs.close()

    def end(self) -> None:
        self._orders.close()
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

    def Popen(self, command: list[str], *, stdout: IO[str], env: dict[str, str], **_: Any) -> Forked:  # noqa: N802
        stdin, ours = os.pipe()
        answers, theirs = os.pipe()
        order = {"environment": env, "folder": os.getcwd(), "most_bytes": resource.getrlimit(resource.RLIMIT_AS)}
        events = int(command[-1])
        socket.send_fds(self._orders, [json.dumps(order).encode()], [stdin, stdout.fileno(), events, theirs])
        os.close(stdin)
        os.close(theirs)
        return Forked(os.fdopen(answers), os.fdopen(ours, "wb"))

    def _serve(self, orders: socket.socket) -> None:
        while True:
            message, descriptors, *_ = socket.recv_fds(orders, 1 << 20, 4)
            if not message:
                os._exit(0)
            child = os.fork()
            if child == 0:
                orders.close()
                self._work(json.loads(message), *descriptors[:3])
            with open(descriptors.pop(), "w") as answers:
                for descriptor in descriptors:
                    os.close(descriptor)
                with contextlib.suppress(BrokenPipeError):  # who asked was killed
                    print(child, file=answers, flush=True)
                    _, status = os.waitpid(child, 0)
                    print(os.waitstatus_to_exitcode(status), file=answers, flush=True)

    def _work(self, order: dict[str, Any], stdin: int, log: int, events: int) -> None:
        for source, descriptor in ((stdin, 0), (log, 1), (log, 2)):
            os.dup2(source, descriptor)
        os.chdir(order["folder"])
        resource.setrlimit(resource.RLIMIT_AS, order["most_bytes"])
        os.environ.clear()
        os.environ.update(order["environment"])
        sys.argv = ["-c", str(events)]
        exec(os.environ.get(IN_WORKERS, ""), {})
        from op_profiler.collection.worker import main

        os._exit(outcome(main))


class Forked:
    """A worker, as far as a supervisor asks."""

    def __init__(self, answers: IO[str], stdin: IO[bytes]) -> None:
        self.stdin = stdin
        self._answers = answers
        self._pid = int(self._answers.readline())
        self._code: int | None = None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = int(self._answers.readline())
        return self._code


def outcome(main: Callable[[], int | None]) -> int:
    """The exit code that Python would end with after a call; what was printed is written."""
    sys.modules["__main__"] = types.ModuleType("__main__")  # which processes of multiprocessing would import
    try:
        code: Any = main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


def command(order: dict[str, Any], nursery: Nursery) -> None:
    """In the child: what the console script does."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    os.chdir(order["folder"])
    threads = os.environ["TVM_NUM_THREADS"]  # as `load_tvm` set it
    os.environ.clear()
    os.environ.update({"TVM_NUM_THREADS": threads, **order["environment"]})
    for descriptor, name in ((0, os.devnull), (1, order["out"]), (2, order["err"])):
        flags = os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT
        os.dup2(os.open(name, flags), descriptor)
    sys.argv = ["op-profiler", *order["arguments"]]
    for name in order["without"]:
        sys.modules[name] = None  # type: ignore[assignment]  # what Python's import looks for to refuse
        if name == "tvm":
            from op_profiler.compilers.tvm_build import load_tvm

            load_tvm.cache_clear()
    from op_profiler.cli import main

    if order["forks_workers"]:
        from op_profiler.collection import worker_process

        vars(worker_process)["subprocess"] = nursery
    os._exit(outcome(main))


def wait(child: int, seconds: float) -> int | None:
    """Its exit code, less than 0 for a signal; None where it was still running, and was ended."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    load_package()
    make_commands()
    hurry()
    warm_up()
    nursery = Nursery()
    for line in sys.stdin:
        order = json.loads(line)
        if load(order["libraries"]):
            nursery.end()
            nursery = Nursery()
        child = os.fork()
        if child == 0:
            command(order, nursery)
        code = wait(child, order["seconds"])
        if code is None or code < 0:  # a worker of its may still run
            nursery.end()
            nursery = Nursery()
        answers.write(json.dumps(code) + "\n")
        answers.flush()
    nursery.end()


if __name__ == "__main__":
    serve()
