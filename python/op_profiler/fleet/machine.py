"""`FleetMachine`: the description of its machine that a worker reports to the scheduler."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable

import msgspec

import op_profiler
from op_profiler.building.build_cache import BUILDS_GO_THROUGH
from op_profiler.cache import code_digest
from op_profiler.child_processes import python_path
from op_profiler.compilers import COMPILERS
from op_profiler.cores import usable_cores
from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.files import atomic_file
from op_profiler.fleet import settings
from op_profiler.targets import TARGETS
from op_profiler.targets.llvm.identity import host_id, kept_until_boot, processor_features, processor_name
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, tvm_identity

DESCRIPTION = "op_profiler"
"""Key, in Dask's metadata of a worker, of the `FleetMachine` that the worker reported when it joined."""


DRIFT = 0.15
"""A machine has drifted if its reference kernels deviate by more than this share from their usual time. Another guest
on a shared host causes deviations of 10 to 40 % (`measure.steadiness`)."""


_LAST_PORT = 65535
_COMPILES_FOR = """
import sys
del sys.path[0]
from op_profiler.compilers.tvm_build import host_cpu
from op_profiler.targets.target import use_build_for
use_build_for("llvm", compiler=sys.argv[1])
print(f"llvm -mcpu={host_cpu()}")
"""


class Compiles(msgspec.Struct, frozen=True):
    """A compiler that is installed on a machine.

    Attributes:
        tvm: identity of the compiler's TVM (`targets.target.tvm_identity`), and the architecture that it runs on.
        llvm: complete target for ``llvm`` on the machine, with LLVM's name of the processor.
        code: digest of this package's code that affects builds (`op_profiler.cache.code_digest`).
    """

    tvm: str
    llvm: str
    code: str


class FleetMachine(msgspec.Struct, frozen=True, kw_only=True):
    """Description of the machine of a worker.

    Attributes:
        host: name of the machine.
        host_id: identifier of the machine, which also distinguishes machines with the same name.
        processor: the operating system's name of the processor.
        features: the operating system's names of the processor's features.
        cores, memory_bytes: number of cores and memory that a worker may use.
        measures: `Device.identity` of the devices that the machine measures, by kind of target; for boards,
            ``KIND@HOST:PORT`` with the address of their tracker.
        version: version of op_profiler.
        compilers: installed compilers by name; empty if they were not examined.
    """

    host: str
    host_id: str
    processor: str
    features: tuple[str, ...]
    cores: int
    memory_bytes: int
    measures: dict[str, str]
    version: str
    compilers: dict[str, Compiles] = {}

    @property
    def does(self) -> str:
        """Text for users that lists the kinds of targets that the machine measures."""
        return f"measures {', '.join(self.measures) or 'boards only'}"


def this_machine() -> FleetMachine:
    """Return the description of this machine, without its compilers, so that TVM is not imported."""
    from distributed.system import memory_limit

    return FleetMachine(
        host=platform.node(),
        host_id=host_id(),
        processor=processor_name(),
        features=processor_features(),
        cores=usable_cores(),
        memory_bytes=memory_limit(),
        measures=_measured(),
        version=op_profiler.__version__,
    )


def compilers_here(say: Callable[[str], None]) -> dict[str, Compiles]:
    """Return the installed compilers of this machine by name, for `FleetMachine.compilers`.

    TVM is imported in separate processes, and only once per boot, because the results are stored.

    Args:
        say: called with the reason if an installed compiler cannot be used.
    """
    found = {}
    for name in COMPILERS:
        tvm = tvm_identity("llvm", name)
        if not tvm.endswith("none") and (llvm := _compiles_for(name, tvm, say)):
            found[name] = Compiles(f"{tvm} on {platform.machine()}", llvm, code_digest(*BUILDS_GO_THROUGH))
    return found


def _compiles_for(compiler: str, tvm: str, say: Callable[[str], None]) -> str:
    """Return a compiler's complete target for ``llvm`` on this machine; empty if its TVM cannot be used."""
    file = kept_until_boot(tvm)
    with contextlib.suppress(OSError, ValueError):
        return str(json.loads(file.read_text()))
    command = [sys.executable, "-c", _COMPILES_FOR, compiler]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        say(f"{tvm} cannot be used: {why[-1]}")
        return ""
    with contextlib.suppress(OSError), atomic_file(file) as partial:
        partial.write_text(json.dumps(done.stdout.strip()))
    return done.stdout.strip()


def boards() -> tuple[str, ...]:
    """Return the boards of this worker (``worker --boards``) in the form ``KIND@HOST:PORT``.

    Raises:
        UsageError: a text has another form, its kind is not a kind of boards, or a kind occurs twice.
    """
    texts = tuple(filter(None, os.environ.get(settings.BOARDS, "").split(",")))
    keys = [_place_of(board).key for board in texts]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise UsageError(f"--boards names two trackers of {twice[0]}; start a worker for each")
    return texts


def place_of_boards(kind: str) -> Place | None:
    """Return the tracker of this worker's boards of a kind; None if the worker has no boards of this kind."""
    return next((_place_of(board) for board in boards() if board.startswith(f"{kind}@")), None)


def _place_of(board: str) -> Place:
    kind, _, address = board.partition("@")
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= _LAST_PORT:
        raise UsageError(f"--boards {board!r}: give a kind of boards and their tracker, as pynq@192.168.2.99:9190")
    if not kind_of(kind).is_board:
        raise UsageError(f"--boards {board!r}: {kind} is measured on the worker's machine, which reports it")
    return Place(host=host, port=int(port), key=kind)


def _measured() -> dict[str, str]:
    """Return `FleetMachine.measures`: all kinds of targets that are available, or those in ``worker --targets``.

    Raises:
        UsageError: ``--targets`` names a kind that is not available on this machine.
    """
    found = {}
    for name in TARGETS:
        kind = TARGETS.get(name)
        try:
            kind.check(name, remote=False, dry_run=False)
            found[name] = kind.machine_identity()
        except OpProfilerError:
            continue  # not on this machine
    found |= {board.partition("@")[0]: board for board in boards()}
    named = [kind_of(name).name for name in filter(None, os.environ.get(settings.TARGETS, "").split(","))]
    if away := [name for name in named if name not in found]:
        there = ", ".join(found)
        raise UsageError(f"--targets {away[0]} is not measured here; give some of {there}, or --boards for boards")
    return {name: found[name] for name in named or found}


def has_drifted(deviation: float | None) -> bool:
    """Return whether a deviation (`work.TaskOutcome`) exceeds `DRIFT`, so that times are not comparable.

    The result is False for None.
    """
    return deviation is not None and abs(deviation) > DRIFT
