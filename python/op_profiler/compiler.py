"""The only module that knows which build of TVM is in use.

TVM reads its environment when it is imported, so everything that has to be set before is set here, in `load_tvm`:

- ``TOPHUB_LOCATION=NONE``: without it every extraction asks the network for tuned schedules, and on arm the failure is
  swallowed in a thread and tasks vanish.
- ``TVM_NUM_THREADS``: TVM counts half the logical cores and caps its thread pool there without a word.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from op_profiler.errors import MeasureError, OpProfilerError, UsageError

TARGET_KINDS = ("llvm", "cuda", "pynq")
_LATER = {"cuda", "pynq", "arm_cpu"}


def usable_cores() -> int:
    """Cores that this process may run on (its affinity), not the cores of the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _select_build() -> None:
    """Put the build that ``TVM_HOME`` names, if any, in front of the installed one."""
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
        "selected_by": "TVM_HOME" if os.environ.get("TVM_HOME") else "installed package",
        "llvm_version": llvm_version(),
        "git_commit": info.get("GIT_COMMIT_HASH", "unknown"),
        "built_with": built_with,
    }


def llvm_version() -> str | None:
    """Version of the LLVM inside this TVM, None where it has none."""
    version = load_tvm().support.libinfo().get("LLVM_VERSION")
    return str(version) if version and str(version) != "NOT-FOUND" else None


def check_target(target: str) -> None:
    """Refuse a target that cannot be used, without importing TVM.

    Raises:
        UsageError: empty, or of a kind that this version does not measure on yet.
    """
    kind = target.split()[0].removeprefix("-device=") if target.split() else ""
    if not kind:
        raise UsageError("the target is empty; use llvm or a TVM target string such as 'llvm -mcpu=skylake-avx512'")
    if kind in _LATER:
        raise UsageError(f"target {kind!r} is not supported yet; this version measures on llvm")
    if kind != "llvm":
        from op_profiler.errors import UnknownNameError

        raise UnknownNameError("target", kind, TARGET_KINDS, "A TVM target string starts with one of these.")


def resolve_target(target: str) -> Any:
    """The `tvm.target.Target` of a name; plain ``llvm`` gets this processor's ``-mcpu``.

    Raises:
        UsageError: TVM does not understand the target string.
    """
    check_target(target)
    tvm = load_tvm()
    if target.strip() == "llvm":
        target = f"llvm -mcpu={host_cpu()}"
    try:
        resolved = tvm.target.Target(target)
    except (ValueError, TypeError, tvm.TVMError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise UsageError(f"TVM does not understand the target {target!r}: {reason}") from error
    return resolved


@functools.cache
def host_cpu() -> str:
    """LLVM's name of this processor, e.g. ``znver5``."""
    tvm = load_tvm()
    name = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName", allow_missing=True)
    if name is None:
        name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    if name is None:
        return "native"
    return str(name())


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
