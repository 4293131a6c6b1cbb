"""Targets by their name: of which kind they are, whether they can be used here, and what TVM is given for them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from op_profiler.compilers.relay.tvm_build import host_cpu, load_tvm, use_build
from op_profiler.errors import OpProfilerError, UnknownNameError, UsageError

TARGET_KINDS = ("llvm", "cuda", "pynq", "arm_cpu")
BOARD_KINDS = ("pynq", "arm_cpu")
"""Kinds whose code cannot run on this machine: they are measured over RPC."""
_PYNQ = "-model=pynq -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon -mfloat-abi=hard -num-cores=2"
_WITHOUT_A_GPU = (
    ". Two ways on: --host and --port of a tracker that has a GPU; or --dry-run with --target 'cuda -arch=sm_90', "
    "which compiles every kernel and measures nothing"
)
_ARM64 = "-mtriple=aarch64-linux-gnu -mattr=+neon"


def target_kind(target: str) -> str:
    """The first word of a target: one of `TARGET_KINDS`, or what the user wrote instead."""
    words = target.split()
    return words[0].removeprefix("-device=") if words else ""


def use_build_for(target: str) -> None:
    """Let this process, and those that it starts, use the TVM that can compile for a target.

    Raises:
        OpProfilerError: this process has imported another TVM already.
    """
    use_build("cuda" if target_kind(target) == "cuda" else "default", target)


def check_target(target: str, *, remote: bool = False, dry_run: bool = False) -> None:
    """Refuse a target that cannot be used, without importing TVM.

    Args:
        remote: it is measured on another machine.
        dry_run: it is compiled for and not measured.

    Raises:
        UsageError: empty, of an unknown kind, or a board's without a way to the board.
        OpProfilerError: cuda, and this machine lacks what it takes.
    """
    kind = target_kind(target)
    if not kind:
        raise UsageError("the target is empty; use llvm or a TVM target string such as 'llvm -mcpu=skylake-avx512'")
    if kind not in TARGET_KINDS:
        raise UnknownNameError("target", kind, TARGET_KINDS, "A TVM target string starts with one of these.")
    if kind in BOARD_KINDS and not remote and not dry_run:
        raise UsageError(
            f"target {kind!r} is measured on a board: give --host and --port of its tracker or RPC server "
            "(op-profiler devices --host H --port P lists who is there), or --dry-run to compile only"
        )
    if kind == "cuda":
        _check_cuda(target, compile_only=remote or dry_run)


def _check_cuda(target: str, *, compile_only: bool) -> None:
    from op_profiler.targets.cuda import tvm_build

    architecture = re.search(r"-arch=(\S*)", target)
    if architecture is not None and not re.fullmatch(r"sm_\d{2,3}[a-z]?", architecture[1]):
        raise UsageError(f"-arch={architecture[1]} is no architecture of a GPU; they are named like sm_90")

    lacking = tvm_build.missing(compile_only=compile_only)
    if lacking:
        raise OpProfilerError(
            f"target cuda: this machine lacks {'; '.join(lacking)}" + ("" if compile_only else _WITHOUT_A_GPU)
        )
    if compile_only and "-arch=" not in target and not tvm_build.device_count():
        raise UsageError(
            "there is no GPU here to compile for: name its architecture, as in --target 'cuda -arch=sm_90'"
        )


def resolve_target(target: str) -> Any:
    """The `tvm.target.Target` of a name.

    Plain ``llvm`` gets this processor's ``-mcpu``; ``pynq`` is the Cortex-A9 of a PYNQ board with hard floats;
    ``arm_cpu`` is a 64-bit ARM unless options say otherwise.

    Raises:
        UsageError: TVM does not understand the target string, or LLVM an option in it.
    """
    tvm = load_tvm()
    kind = target_kind(target)
    options = " ".join(target.split()[1:])
    if kind == "llvm":
        target = f"llvm {options}" if options else f"llvm -mcpu={host_cpu()}"
    elif kind == "pynq":
        target = f"llvm -keys=arm_cpu,cpu -device=arm_cpu {options or _PYNQ}"
    elif kind == "arm_cpu":
        target = f"llvm -keys=arm_cpu,cpu -device=arm_cpu {options or _ARM64}"
    try:
        resolved = tvm.target.Target(target)
    except (ValueError, TypeError, tvm.TVMError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise UsageError(f"TVM does not understand the target {target!r}: {reason}") from error
    if resolved.kind.name == "llvm":
        from op_profiler.targets.llvm.options import check

        check(resolved)
    return resolved


def compiler_identity(target: str) -> str:
    """The TVM build that a worker will use for a target, told without importing it."""
    home = os.environ.get("TVM_HOME")
    if home:
        libraries = sorted(Path(home).glob("build/libtvm.*"))
        return f"{home}:{[lib.stat().st_mtime_ns for lib in libraries]}"
    from importlib import metadata

    for name in ("bitblas",) if target_kind(target) == "cuda" else ("xtc-tvm-python-bindings", "apache-tvm"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "none"
