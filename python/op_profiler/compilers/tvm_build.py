"""Selects the build of TVM that a process uses, and imports it.

TVM reads its environment when it is imported, so `load_tvm` sets these variables first:

- ``TOPHUB_LOCATION=NONE``: otherwise every extraction queries the network for tuned schedules, and on arm a thread
  swallows the failure and tasks are lost.
- ``TVM_NUM_THREADS``: otherwise TVM limits its thread pool to half of the logical cores without a message.
- ``TEST_DATA_ROOT_PATH``: TVM creates this folder during its import; the default is in the home folder, which may not
  be writable.
- ``HOME``: TVM needs it, also where the user has none.

A process uses one TVM. Compiler and target decide which before the first import (`use_build`); child processes use the
same.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from op_profiler.cache import cache_folder, ensure_home
from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiler import compiler_in_use, use_compiler
from op_profiler.compilers.tvm_types import RuntimeDevice, Target
from op_profiler.cores import usable_cores
from op_profiler.errors import MeasureError, OpProfilerError
from op_profiler.lean_imports import hidden
from op_profiler.registry import registry_of

DEFAULT_BUILD = "default"
_BUILD = "OP_PROFILER_TVM_BUILD"


def use_build(compiler: str, build: str, target: str) -> None:
    """Make this process and its child processes use a compiler and one of the builds of TVM.

    A build in ``TVM_HOME`` is used for every target.

    Args:
        compiler: name of the compiler.
        build: `DEFAULT_BUILD`, or the name of a kind of targets with a separate build.
        target: name of the target that needs the build, for error messages.

    Raises:
        UnknownNameError: there is no such compiler.
        OpProfilerError: this process has already imported TVM for another compiler or from another build.
    """
    of_target = COMPILERS.get(compiler).takes_builds_of_targets and not os.environ.get("TVM_HOME")
    wanted = build if of_target else DEFAULT_BUILD
    if "tvm" in sys.modules:
        if compiler_in_use().name != compiler:
            raise OpProfilerError(
                f"this process uses another compiler already; the compiler {compiler!r} needs a process of its own"
            )
        if _build_in_use() != wanted:
            raise OpProfilerError(
                f"this process uses another TVM already; target {target!r} needs a process of its own"
            )
    use_compiler(compiler)
    os.environ[_BUILD] = wanted


def _build_in_use() -> str:
    return os.environ.get(_BUILD, DEFAULT_BUILD)


class BroughtBuild(Protocol):
    """A separate build of TVM for a kind of targets (`op_profiler.targets.target_kind.TargetKind`)."""

    def activate_build(self, folder: Path) -> None:
        """Put the build in front of any other TVM of this process, before the first import; `folder` is the cache
        folder."""

    def prepare_build(self, tvm: ModuleType) -> None:
        """Set up the build after ``tvm`` was imported."""


def _brought_build() -> BroughtBuild:
    found: BroughtBuild = registry_of("targets").get(_build_in_use())
    return found


def _select_build() -> None:
    """Put one build in front of others: that of ``TVM_HOME``, that of a kind of targets, or that of the compiler."""
    if _build_in_use() != DEFAULT_BUILD:
        _brought_build().activate_build(cache_folder())
        return
    home = os.environ.get("TVM_HOME")
    if not home:
        compiler_in_use().activate_tvm()
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


@contextlib.contextmanager
def replaced(owner: object, name: str, value: object) -> Iterator[None]:
    """Replace an attribute of an object or module of TVM inside the block."""
    usual = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, usual)


@functools.cache
def load_tvm() -> ModuleType:
    """Import TVM with its environment set, and check that it has what the compiler in use needs.

    Raises:
        OpProfilerError: there is no TVM, or the compiler cannot use it; the message contains the remedy.
    """
    os.environ["TOPHUB_LOCATION"] = "NONE"
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))
    _set_folders()
    compiler = compiler_in_use()
    try:
        _select_build()
        if importlib.util.find_spec("tvm") is None:
            raise OpProfilerError(f"TVM is not installed. {compiler.needs}")
        # Three parts of TVM import it, with scikit-learn and SciPy behind it, which takes longer than TVM itself. Only
        # a search by a cost model has a use for it (`compilers.relay.tuners.xgboost`).
        with hidden("xgboost"):
            import tvm

            compiler.prepare_tvm(tvm)
            if _build_in_use() != DEFAULT_BUILD:
                _brought_build().prepare_build(tvm)
    except (ImportError, OSError, RuntimeError) as error:
        raise OpProfilerError(f"this build of TVM cannot be used ({error}). {compiler.needs}") from error
    return tvm


def _set_folders() -> None:
    ensure_home()
    folder = cache_folder() / "tvm"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.gettempdir())
    os.environ.setdefault("TEST_DATA_ROOT_PATH", str(folder))


def build_info() -> dict[str, Any]:
    """Return the TVM in use: version, path, LLVM version, git commit, and build options."""
    tvm = load_tvm()
    info = {str(k): str(v) for k, v in tvm.support.libinfo().items()}
    off = {"OFF", "NOT-FOUND", "none", "", "0", "FALSE"}
    built_with = sorted(
        k.removeprefix("USE_") for k, v in info.items() if k.startswith("USE_") and v not in off and "/path/" not in v
    )
    return {
        "compiler": compiler_in_use().name,
        "tvm_version": tvm.__version__,
        "path": str(Path(str(tvm.__file__)).parent),
        "selected_by": _selected_by(),
        "llvm_version": llvm_version(),
        "git_commit": info.get("GIT_COMMIT_HASH", "unknown"),
        "built_with": built_with,
    }


def _selected_by() -> str:
    if os.environ.get("TVM_HOME"):
        return "TVM_HOME"
    return "installed package" if _build_in_use() == DEFAULT_BUILD else f"target {_build_in_use()}"


def llvm_version() -> str | None:
    """Return the version of the LLVM in this TVM; None if this TVM was built without LLVM."""
    version = load_tvm().support.libinfo().get("LLVM_VERSION")
    return str(version) if version and str(version) != "NOT-FOUND" else None


@functools.cache
def host_cpu() -> str:
    """Return LLVM's name of this processor, e.g. ``znver5``."""
    tvm = load_tvm()
    name = tvm.get_global_func("tvm.codegen.llvm.GetHostCPUName", allow_missing=True)
    if name is None:
        name = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True)
    return "generic" if name is None else str(name())


def runtime_device(target: Target) -> RuntimeDevice:
    """Return the device that runs code for `target`.

    Raises:
        MeasureError: this build or machine has no such device.
    """
    tvm = load_tvm()
    name = str(target.kind.name)
    device = tvm.device("cpu" if name == "llvm" else name, 0)
    if not device.exist:
        raise MeasureError(f"this machine has no device for target {target.kind.name!r}")
    found: RuntimeDevice = device
    return found
