"""Conversion of a target as the user writes it to its kind, to TVM's target, and to the TVM that compiles for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from op_profiler.compilers import COMPILERS, DEFAULT_COMPILER
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import DEFAULT_BUILD, load_tvm, use_build
from op_profiler.compilers.tvm_types import Target
from op_profiler.errors import UsageError
from op_profiler.targets import TARGETS
from op_profiler.targets.target_kind import TargetKind


def kind_of(target: str) -> TargetKind:
    """Return the kind of a target as the user wrote it: its first word.

    Raises:
        UsageError: the target is empty.
        UnknownNameError: there is no such kind; the message lists the kinds.
    """
    name = _first_word(target)
    if not name:
        raise UsageError("the target is empty; use llvm or a TVM target string such as 'llvm -mcpu=skylake-avx512'")
    return TARGETS.get(name)


def _first_word(target: str) -> str:
    words = target.split()
    return words[0].removeprefix("-device=") if words else ""


def locks_of(targets: Sequence[str]) -> list[str]:
    """Return the names of the locks for measuring these targets (this machine's processor, its GPU), in a fixed order.

    Boards need no lock: their tracker gives a board to one process at a time.
    """
    locks = {kind_of(target).lock() for target in targets}
    return sorted(lock for lock in locks if lock is not None)


def options_of(target: str) -> str:
    """Return the text after the first word of a target."""
    return " ".join(target.split()[1:])


def use_build_for(*targets: str, compiler: str = DEFAULT_COMPILER) -> None:
    """Let this process, and those that it starts, use a compiler, with the TVM that can compile for these targets.

    The default TVM compiles only for processors. Every other TVM compiles for processors too. A process can load only
    one TVM.

    Raises:
        OpProfilerError: this process has already imported another TVM.
    """
    named = next((target for target in targets if kind_of(target).tvm_build != DEFAULT_BUILD), targets[0])
    use_build(compiler, kind_of(named).tvm_build, named)


def resolve_target(target: str) -> Target:
    """Return the `tvm.target.Target` for a target string; a string of an unknown kind, as in logs of other tools, is
    passed to TVM.

    Raises:
        UsageError: TVM does not accept the target string, or LLVM does not accept an option in it.
    """
    return kind_of(target).resolve(target) if _first_word(target) in (*TARGETS, "") else tvm_target(target)


def tvm_target(text: str) -> Target:
    """Return TVM's target for a target string.

    Raises:
        UsageError: TVM does not accept it.
    """
    load_tvm()
    try:
        return compiler_in_use().target(text)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise UsageError(f"TVM does not understand the target {text!r}: {reason}") from error


def tvm_identity(target: str, compiler: str = DEFAULT_COMPILER) -> str:
    """Return the TVM build that a worker will use for a target, without importing it.

    For another compiler than relay, the name of the compiler comes first.
    """
    found = _tvm_in_home() or COMPILERS.get(compiler).tvm_identity(kind_of(target).tvm_packages)
    return found if compiler == DEFAULT_COMPILER else f"{compiler} {found}"


def _tvm_in_home() -> str:
    """Return the build in ``TVM_HOME`` with the times of its libraries; empty if the variable is not set."""
    home = os.environ.get("TVM_HOME")
    if home:
        libraries = sorted(Path(home).glob("build/libtvm.*"))
        return f"{home}:{[lib.stat().st_mtime_ns for lib in libraries]}"
    return ""
