"""The library in the place of NVIDIA's driver, which a machine without one compiles for itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from op_profiler.errors import MeasureError
from op_profiler.targets.cuda import tvm_build


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
def test_it_is_compiled_once_by_the_compiler_that_cc_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\necho "$@" >>"$0.log"\nexec "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.setenv("CC", f"'{launcher}' cc -g")
    made = tvm_build._stub(tmp_path / "driver")
    (asked,) = (tmp_path / "launcher.log").read_text().splitlines()
    assert asked.startswith("cc -g ") and "soname" in asked
    call = f"import ctypes; print(ctypes.CDLL({str(made)!r}).cuLaunchKernel())"  # it would be this process's driver
    assert subprocess.run([sys.executable, "-c", call], capture_output=True, text=True).stdout == "34\n"
    monkeypatch.setenv("CC", "no-such-compiler")
    assert tvm_build._stub(tmp_path / "driver") == made


def test_without_a_compiler_it_says_what_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    with pytest.raises(MeasureError, match="there is no no-such-compiler"):
        tvm_build._stub(tmp_path / "driver")
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match="compiling for cuda without libcuda.so.1 needs a C compiler"):
        tvm_build._stub(tmp_path / "driver")
