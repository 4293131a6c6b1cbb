"""A process that has imported what commands need, and forks one for each that is asked for.

A command then takes milliseconds instead of seconds, and is a process of its own: what crashes, hangs or asks for too
much memory is one command. One packet of JSON in with the open files of the new process (`nursery.Forked`), its process
id and its exit code out. All processes of the tests share it; it ends when its standard input is closed.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import pkgutil
import resource
import selectors
import signal
import socket
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import op_profiler
from hurry import measure_in_a_hurry
from nursery import forked_child
from op_profiler.errors import MissingPackageError

_LEFT_OUT = (
    "op_profiler.tuning.trials.preload",  # changes the environment
    "op_profiler.frontends.zoo.transformers",  # imports torch
)
# What commands import beside the package, in `main` too: without it the shortest would take five times as long.
_ALWAYS = (
    *("numpy", "scipy.sparse", "scipy.special", "sqlite3", "sqlalchemy.dialects.sqlite", "tvm.relay.testing.mlp"),
    *("rich.markdown", "rich.progress", "rich.table", "typer._adapters", "typer.rich_utils", "xgboost"),
)


def load_package() -> None:
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.fleet import settings

    load_tvm()
    with contextlib.suppress(MissingPackageError):
        settings.configure()  # before a module imports Dask, which then reads some of it
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
    vars(cli)["application"] = lambda *asked: commands


def warm_up() -> None:
    """What TVM sets up when it is first used, and the probe's kernels: half of what a short collection would take.
    No kernel is run, which would start TVM's threads."""
    from op_profiler.compilers import DEFAULT_COMPILER
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.llvm import reference_kernels
    from op_profiler.targets.target import resolve_target

    if compiler_in_use().name == DEFAULT_COMPILER:  # another process imports the models of others
        FRONTENDS.get("local").load(ModelRequest(source="local", name="mlp"))
    reference_kernels._functions(str(resolve_target("llvm")))


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


def take_models_of_relay() -> None:
    """From the process with Relay's TVM: the compiler relax would start a Python for each."""
    from op_profiler.compilers.relax import relay_models

    vars(relay_models)["Child"] = forked_child()


def load_transformers() -> None:
    from op_profiler.frontends import transformers

    transformers._library()


def load(libraries: Iterable[str]) -> None:
    """Import what is not there yet and is installed."""
    missing = [name for name in libraries if name not in sys.modules]
    for name in missing:
        with contextlib.suppress(ImportError, MissingPackageError):
            if name == "transformers":  # which otherwise takes torchvision along, built for another torch
                load_transformers()
            else:
                importlib.import_module(name)
    if missing:
        freeze()


def freeze() -> None:
    """Else a collection in a child copies all that is here."""
    gc.collect()
    gc.freeze()


class Zygote:
    """Forks, and tells who asked when what was forked has ended.

    Args:
        listening: where it is asked.
    """

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._asking: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ, self._fork)
        self._selector.register(0, selectors.EVENT_READ, self._end)
        self._is_prepared = False

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                if self._selector.get_map().get(key.fd) is key:  # not over since
                    key.data()

    def _fork(self) -> None:
        asking, _ = self._listening.accept()
        message, received, *_ = socket.recv_fds(asking, 1 << 20, 250)
        if not message:  # who asked has ended
            asking.close()
            return
        order = json.loads(message)
        if not self._is_prepared:
            prepare()
            self._is_prepared = True
        load(order["libraries"])
        sys.stdout.flush()  # else each child writes what an import printed
        pid = os.fork()
        if pid == 0:
            self._selector.close()
            for other in (self._listening, asking, *self._asking.values()):
                other.close()
            become(order, received)
        for descriptor in received:
            os.close(descriptor)
        self._asking[pid] = asking
        ending = os.pidfd_open(pid)
        self._selector.register(ending, selectors.EVENT_READ, functools.partial(self._tell_end, pid, ending))
        self._selector.register(asking, selectors.EVENT_READ, functools.partial(self._kill, pid))
        self._tell(asking, pid)

    def _tell_end(self, pid: int, ending: int) -> None:
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(ending)
        os.close(ending)
        with self._asking.pop(pid) as asking:
            with contextlib.suppress(KeyError):  # it has left
                self._selector.unregister(asking)
            self._tell(asking, os.waitstatus_to_exitcode(status))

    def _tell(self, asking: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError):  # it has left
            asking.send(str(number).encode())

    def _kill(self, pid: int) -> None:
        """Who asked for it has ended, or does not wait any longer."""
        self._selector.unregister(self._asking[pid])
        _kill_group(pid)

    def _end(self) -> NoReturn:
        for pid in self._asking:
            _kill_group(pid)
        sys.exit()


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # it may not have a group yet
        with contextlib.suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def prepare() -> None:
    load_package()
    make_commands()
    hurry()
    take_models_of_relay()
    warm_up()
    freeze()


def become(order: dict[str, Any], received: Sequence[int]) -> NoReturn:
    """In the child: what was asked for."""
    os.setsid()
    hand_over(order["files"], received)
    os.chdir(order["folder"])
    resource.setrlimit(resource.RLIMIT_AS, order["most_bytes"])
    threads = os.environ["TVM_NUM_THREADS"]  # as `load_tvm` set it
    os.environ.clear()
    os.environ.update({"TVM_NUM_THREADS": threads, **order["environment"]})
    sys.argv = order["argv"]
    for name in order["without"]:
        sys.modules[name] = None  # type: ignore[assignment]  # what Python's import looks for to refuse
        if name == "tvm":
            from op_profiler.compilers.tvm_build import load_tvm

            load_tvm.cache_clear()
    if order["forks_workers"]:
        from op_profiler.collection import worker_process
        from op_profiler.comparison.peers import explain_child
        from op_profiler.compilers.compiler import compiler_in_use

        for starter in (worker_process, explain_child):
            vars(starter)["Child"] = forked_child(compiler_in_use().name)

    def run() -> None:
        exec(order["before"], {})
        exec(order["code"], {"__name__": "__main__"})

    os._exit(outcome(run))


def hand_over(numbers: Sequence[int], received: Sequence[int]) -> None:
    """Give open files the numbers that they had where they come from."""
    beyond = max(*numbers, *received) + 1
    kept = [fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, beyond) for descriptor in received]
    for descriptor in received:
        os.close(descriptor)
    for number, descriptor in zip(numbers, kept, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)


def outcome(main: Callable[[], None]) -> int:
    """The exit code that Python would end with after a call; what was printed is written."""
    sys.modules["__main__"] = types.ModuleType("__main__")  # which processes of multiprocessing would import
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 0 if code is None else 1


if __name__ == "__main__":
    Zygote(socket.socket(fileno=int(sys.argv[1]))).serve()
