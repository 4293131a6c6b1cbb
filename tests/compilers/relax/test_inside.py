"""Tests of the compiler relax that need its TVM: in a process of their own, since this one uses the TVM with Relay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from op_profiler.compilers.relax import tvm_package

INSIDE = Path(__file__).parent / "inside"


@pytest.mark.parametrize("which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_what_stands_inside_passes(which: str) -> None:
    if tvm_package.version() is None:
        pytest.skip(f"there is no TVM with Relax in {tvm_package.folder()}: {tvm_package.INSTALL}")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", which, "-p", "no:cacheprovider", str(INSIDE)],
        env={**os.environ, "OP_PROFILER_COMPILER": "relax"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
