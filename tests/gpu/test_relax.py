"""Today's TVM on GPUs: compiling for one that is not here, and on one, times and numbers."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from math import prod
from pathlib import Path

import pytest

from op_profiler.compilers.relax import cuda_libraries, tvm_package
from op_profiler.targets.cuda import tvm_build

from ..command_line import op_profiler

lacking = ["the TVM with Relax"] if tvm_package.version() is None else cuda_libraries.missing()
needs_relax = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")
on_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tvm_build.device_count(), reason="no GPU here (no driver, or it lists no device)"),
    needs_relax,
]
CONVOLUTION = ("--compiler", "relax", "--modelsource", "simple", "--modelname", "conv2d", "--inputshape", "1,16,8,8")


@needs_relax
def test_a_dry_run_compiles_and_lists_rules_and_launches(tmp_path: Path) -> None:
    file = tmp_path / "gpu.db"
    options = ("--target", "cuda -arch=sm_90", "--dry-run", "--db", f"sqlite:///{file}")
    done = op_profiler("collect", *CONVOLUTION, *options, environment={"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr + done.stdout
    assert "not measured" in done.stdout and "blocks" in done.stdout
    with contextlib.closing(sqlite3.connect(file)) as connection:
        found = connection.execute(
            "SELECT template, launches FROM model_operators JOIN schedules ON schedules.key = schedule_key"
        ).fetchall()
        assert connection.execute("SELECT count(*) FROM measurements").fetchall() == [(0,)]
    assert found
    for template, text in found:
        assert template.endswith(".dlight")
        for launch in json.loads(text):
            assert 1 <= prod(launch["block"]) <= 1024 and prod(launch["grid"]) >= 1


def test_what_compiling_lacks_is_named_with_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tvm_package.FOLDER, str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    (told,) = cuda_libraries.missing()
    for words in ("libnvrtc.so.13", "cuda_runtime.h", "cuda-bindings", "nvcc", "source ./env_var.sh relax cuda"):
        assert words in told
    (tmp_path / "nvcc").touch(mode=0o755)
    assert cuda_libraries.missing() == []


@pytest.mark.parametrize("model", ["simple:conv2d", "mlp"])
class TestOnAGpu:
    pytestmark = on_gpu

    def test_kernels_are_timed_by_the_device_s_events(self, model: str, tmp_path: Path) -> None:
        file, summary = tmp_path / "gpu.db", tmp_path / "summary.json"
        source, _, name = model.rpartition(":")
        asked = ("--compiler", "relax", "--modelsource", source or "local", "--modelname", name, "--target", "cuda")
        done = op_profiler("collect", *asked, "--db", f"sqlite:///{file}", "--summary-json", str(summary))
        assert done.returncode == 0, done.stderr + done.stdout
        (entry,) = json.loads(summary.read_text())
        assert entry["failed"] == 0 and entry["whole_model_us"] > 0 and entry["sum_of_operators_us"] > 0
