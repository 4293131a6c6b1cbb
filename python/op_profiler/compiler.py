"""The only module that knows which build of TVM is in use.

TVM reads its environment when it is imported, so everything that has to be set before is set here, in `load_tvm`:

- ``TOPHUB_LOCATION=NONE``: without it every extraction asks the network for tuned schedules, and on arm the failure is
  swallowed in a thread and tasks vanish.
- ``TVM_NUM_THREADS``: TVM counts half the logical cores and caps its thread pool there without a word.

One process holds one TVM. Which one, a target decides before the first import (`use_build_for`); processes that this
one starts take the same.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

from op_profiler.errors import MeasureError, OpProfilerError, UsageError

TARGET_KINDS = ("llvm", "cuda", "pynq", "arm_cpu")
BOARD_KINDS = ("pynq", "arm_cpu")
"""Kinds whose code cannot run on this machine: they are measured over RPC."""
_BUILD = "OP_PROFILER_TVM_BUILD"
_PYNQ = "-model=pynq -mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a9 -mattr=+neon -mfloat-abi=hard -num-cores=2"
_WITHOUT_A_GPU = (
    ". Two ways on: --host and --port of a tracker that has a GPU; or --dry-run with --target 'cuda -arch=sm_90', "
    "which compiles every kernel and measures nothing"
)
_ARM64 = "-mtriple=aarch64-linux-gnu -mattr=+neon"


def usable_cores() -> int:
    """Cores that this process may run on (its affinity), not the cores of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cache_folder() -> Path:
    """``OP_PROFILER_CACHE``, else ``op_profiler`` in the user's cache folder."""
    base = os.environ.get("OP_PROFILER_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "op_profiler"


def use_build_for(target: str) -> None:
    """Let this process, and those that it starts, use the TVM that can compile for a target.

    A build that ``TVM_HOME`` names is used for every target.

    Raises:
        OpProfilerError: this process has imported another TVM already.
    """
    wanted = "cuda" if target_kind(target) == "cuda" and not os.environ.get("TVM_HOME") else "default"
    if "tvm" in sys.modules and os.environ.get(_BUILD, "default") != wanted:
        raise OpProfilerError(f"this process uses another TVM already; target {target!r} needs a process of its own")
    os.environ[_BUILD] = wanted


def _select_build() -> None:
    """Put the build that ``TVM_HOME`` names, or the one with CUDA, in front of the installed one."""
    if os.environ.get(_BUILD) == "cuda":
        from op_profiler import cuda_build

        cuda_build.activate(cache_folder() / "driver-stub")
        return
    home = os.environ.get("TVM_HOME")
    if not home:
        return
    python = Path(home) / "python"
    if not (python / "tvm" / "__init__.py").is_file():
        raise OpProfilerError(
            f"TVM_HOME is {home!r}, but {python}/tvm does not exist. "
            "Set TVM_HOME to the root of a TVM source tree that was built, or unset it."
        )
    build = Path(home) / "build"
    if "TVM_LIBRARY_PATH" not in os.environ and build.is_dir():
        os.environ["TVM_LIBRARY_PATH"] = str(build)
    if str(python) not in sys.path:
        sys.path.insert(0, str(python))


@functools.cache
def load_tvm() -> Any:
    """Import TVM with its environment set, and make sure that it has Relay and AutoTVM.

    Raises:
        OpProfilerError: no TVM, or one without Relay (0.20 and later); says what to do.
    """
    _select_build()
    os.environ["TOPHUB_LOCATION"] = "NONE"
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))
    if importlib.util.find_spec("tvm") is None:
        raise OpProfilerError("TVM is not installed. Install it with: source ./env_var.sh")
    try:
        import tvm
        from tvm import autotvm, relay  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:
        raise OpProfilerError(
            f"this build of TVM cannot be used ({error}). op_profiler needs Relay and AutoTVM, TVM 0.8 to 0.19: "
            "source ./env_var.sh installs one, or set TVM_HOME to a build of your own."
        ) from error
    # Schedules for cuda ask for TopHub's reference logs over the network even where TOPHUB_LOCATION is NONE.
    autotvm.tophub.load_reference_log = lambda *_: []
    return tvm


def build_info() -> dict[str, Any]:
    """Which TVM is in use: version, path, LLVM version, git commit, and what it was built with."""
    tvm = load_tvm()
    info = {str(k): str(v) for k, v in tvm.support.libinfo().items()}
    off = {"OFF", "NOT-FOUND", "none", "", "0", "FALSE"}
    built_with = sorted(
        k.removeprefix("USE_") for k, v in info.items() if k.startswith("USE_") and v not in off and "/path/" not in v
    )
    return {
        "tvm_version": tvm.__version__,
        "path": str(Path(tvm.__file__).parent),
        "selected_by": _selected_by(),
        "llvm_version": llvm_version(),
        "git_commit": info.get("GIT_COMMIT_HASH", "unknown"),
        "built_with": built_with,
    }


def _selected_by() -> str:
    if os.environ.get("TVM_HOME"):
        return "TVM_HOME"
    return "target cuda" if os.environ.get(_BUILD) == "cuda" else "installed package"


def llvm_version() -> str | None:
    """Version of the LLVM inside this TVM, None where it has none."""
    version = load_tvm().support.libinfo().get("LLVM_VERSION")
    return str(version) if version and str(version) != "NOT-FOUND" else None


def target_kind(target: str) -> str:
    """The first word of a target: one of `TARGET_KINDS`, or what the user wrote instead."""
    words = target.split()
    return words[0].removeprefix("-device=") if words else ""


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
        from op_profiler.errors import UnknownNameError

        raise UnknownNameError("target", kind, TARGET_KINDS, "A TVM target string starts with one of these.")
    if kind in BOARD_KINDS and not remote and not dry_run:
        raise UsageError(
            f"target {kind!r} is measured on a board: give --host and --port of its tracker or RPC server "
            "(op-profiler devices --host H --port P lists who is there), or --dry-run to compile only"
        )
    if kind == "cuda":
        _check_cuda(target, compile_only=remote or dry_run)


def _check_cuda(target: str, *, compile_only: bool) -> None:
    from op_profiler import cuda_build

    architecture = re.search(r"-arch=(\S*)", target)
    if architecture is not None and not re.fullmatch(r"sm_\d{2,3}[a-z]?", architecture[1]):
        raise UsageError(f"-arch={architecture[1]} is no architecture of a GPU; they are named like sm_90")

    lacking = cuda_build.missing(compile_only=compile_only)
    if lacking:
        raise OpProfilerError(
            f"target cuda: this machine lacks {'; '.join(lacking)}" + ("" if compile_only else _WITHOUT_A_GPU)
        )
    if compile_only and "-arch=" not in target and not cuda_build.device_count():
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
        from op_profiler import llvm_options

        llvm_options.check(resolved)
    return resolved


def vector_lanes(target: Any) -> int:
    """Values of 32 bits in the vectors that TVM's schedules for processors reckon with.

    Args:
        target: `tvm.target.Target` of kind llvm.
    """
    load_tvm()
    from tvm.target.x86 import get_simd_32bit_lanes

    with target:
        return int(get_simd_32bit_lanes())


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this processor, e.g. ``znver5``."""
    tvm = load_tvm()
    name = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName", allow_missing=True)
    if name is None:
        name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return "generic" if name is None else str(name())


def runtime_device(target: Any) -> Any:
    """The `tvm.runtime.Device` that code for `target` runs on.

    Raises:
        MeasureError: this build or machine has no such device.
    """
    tvm = load_tvm()
    device = tvm.device(target.kind.name, 0)
    if not device.exist:
        raise MeasureError(f"this machine has no device for target {target.kind.name!r}")
    return device
