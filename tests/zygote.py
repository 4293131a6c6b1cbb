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
import select
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable, Iterable
from typing import Any

import op_profiler
from hurry import measure_in_a_hurry
from nursery import Nursery
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
        freeze()
    return bool(missing)


def freeze() -> None:
    """Else a collection in a child copies all that is here."""
    gc.collect()
    gc.freeze()


class Workers:
    """A process that worker processes of collections are forked from, one after the other.

    Args:
        orders: where it reads them; it ends when nobody can write any.
        others: what it has to close, so that it sees that.
    """

    def __init__(self, orders: socket.socket, *others: socket.socket) -> None:
        self._pid = os.fork()
        if self._pid == 0:
            for other in others:
                other.close()
            self._serve(orders)
        orders.close()

    def end(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)

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
        threads = os.environ["TVM_NUM_THREADS"]  # as `load_tvm` set it
        os.environ.clear()
        os.environ.update({"TVM_NUM_THREADS": threads, **order["environment"]})
        sys.argv = ["-c", str(events)]
        exec(os.environ.get(IN_WORKERS, ""), {})
        from op_profiler.collection.worker import main

        os._exit(outcome(main))


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


class OwnNursery(Nursery):
    """Of the commands, which share it: to fork it again for each would cost as much as to fork the command."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        super().__init__(ours)
        self._workers = Workers(theirs, ours)

    def end(self) -> None:
        self.close()
        self._workers.end()


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
    ending = os.pidfd_open(child)
    ended, *_ = select.select([ending], [], [], seconds)
    os.close(ending)
    if ended:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
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
    freeze()
    Workers(socket.socket(fileno=int(sys.argv[1])))  # of the tests' process itself
    nursery = OwnNursery()
    for line in sys.stdin:
        order = json.loads(line)
        if load(order["libraries"]):
            nursery.end()
            nursery = OwnNursery()
        child = os.fork()
        if child == 0:
            command(order, nursery)
        code = wait(child, order["seconds"])
        if code is None or code < 0:  # a worker of its may still run
            nursery.end()
            nursery = OwnNursery()
        answers.write(json.dumps(code) + "\n")
        answers.flush()
    nursery.end()


if __name__ == "__main__":
    serve()
