"""Compiling for a GPU where there is none: the TVM with CUDA, its kernels' launches, and what is said when it lacks."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.errors import OpProfilerError
from op_profiler.targets.cuda import tvm_build
from op_profiler.targets.target import use_build_for

COLLECTOR = Path(__file__).parents[2] / "collector" / "op_performance_collector.py"
lacking = tvm_build.missing()
needs_build = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")


def collect(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(COLLECTOR), *arguments, "--db", f"sqlite:///{folder / 'gpu.db'}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=900)


@pytest.mark.skipif(tvm_build.device_count() > 0, reason="there is a GPU here")
def test_without_a_gpu_the_error_says_what_to_do(tmp_path: Path) -> None:
    done = collect(tmp_path, "--modelname", "mlp", "--target", "cuda")
    assert done.returncode == 5 and not (tmp_path / "gpu.db").exists()
    for words in ("lacks", "--host and --port", "--dry-run", "-arch=sm_90"):
        assert words in done.stderr


@needs_build
def test_a_dry_run_records_shapes_costs_and_launches(tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    arguments = ("--target", "cuda -arch=sm_90", "--dry-run", "--summary-json", str(summary))
    done = collect(tmp_path, "--modelsource", "simple", "--modelname", "conv2d", *arguments)
    assert done.returncode == 0, done.stderr + done.stdout
    (entry,) = json.loads(summary.read_text())
    assert entry["operators"] >= 1 and entry["flops"] > 0 and entry["whole_model_us"] is None
    with sqlite3.connect(tmp_path / "gpu.db") as connection:
        found = connection.execute("SELECT launches FROM model_operators").fetchall()
        assert connection.execute("SELECT count(*) FROM measurements").fetchall() == [(0,)]
    assert len(found) == entry["operators"]
    for (text,) in found:
        for launch in json.loads(text):
            assert 1 <= np.prod(launch["block"]) <= 1024 and np.prod(launch["grid"]) >= 1


@needs_build
def test_blocks_have_warps_where_lengths_divide_badly() -> None:
    """73 and 197 are primes, and 74 is twice one: blocks of such kernels had one to eight threads. Images of one pixel
    had a single block each. Those of transposed convolutions have four threads by the template's own defaults: dcgan,
    whose four stand here, took 29 ms on an H100."""
    done = subprocess.run([sys.executable, "-c", DEFAULTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    transposed = [found.pop(f"transposed convolution of {width}")[1] for width in (4, 8, 16, 32)]
    assert 64 <= min(transposed) <= max(transposed) <= 256
    assert found == {
        "convolution of 14": [7, 14 * 2 * 8],
        "convolution of 56": [4 * 28, 14 * 2 * 8],
        "convolution of 73": [292, 73 * 2],
        "convolution of 74": [296, 74 * 2],
        "convolution of 1": [4, 8],
        "product of 128": [48, 64],
        "product of 49": [12 * 7, 49],
        "product of 197": [12 * 197, 197],
    }


DEFAULTS = """
import json
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.relay.extract import describe
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
relay = tvm.relay

def launched(call, shapes, constant):
    variables = [relay.var(f"x{n}", shape=shape) for n, shape in enumerate(shapes)]
    function = relay.Function(variables, call(*variables)).with_attr("Primitive", tvm.tir.IntImm("int32", 1))
    function = relay.transform.InferType()(tvm.IRModule.from_expr(function))["main"]
    kernel = compiler_in_use().read_kernel(describe(function, constant), resolve_target("cuda -arch=sm_90"))
    return [kernel.launches[0].blocks, kernel.launches[0].threads]

found = {}
for width in (14, 56, 73, 74, 1):
    size = 1 if width == 1 else 3
    convolve = lambda x, w: relay.nn.conv2d(x, w, padding=(size // 2,) * 2, channels=32, kernel_size=(size, size))
    shapes = (1, 32, width, width), (32, 32, size, size)
    found[f"convolution of {width}"] = launched(convolve, shapes, (False, True))
for length in (128, 49, 197):
    found[f"product of {length}"] = launched(relay.nn.batch_matmul, [(12, length, 64)] * 2, (False, False))
for width, inputs, outputs in ((4, 1024, 512), (8, 512, 256), (16, 256, 128), (32, 128, 3)):
    options = {"kernel_size": (4, 4), "strides": (2, 2), "padding": (1, 1), "channels": outputs}
    transposed = lambda x, w: relay.nn.conv2d_transpose(x, w, **options)
    shapes = (1, inputs, width, width), (inputs, outputs, 4, 4)
    found[f"transposed convolution of {width}"] = launched(transposed, shapes, (False, True))
print(json.dumps(found))
"""


@needs_build
def test_one_process_holds_one_tvm(tvm: Any) -> None:
    with pytest.raises(OpProfilerError, match="a process of its own"):
        use_build_for("cuda -arch=sm_90")


def test_launches_are_read_from_the_loops(tvm: Any) -> None:
    from op_profiler.compilers.relay.launch import launches_of

    te = tvm.te
    a = te.placeholder((64, 48), "float32", "a")
    b = te.compute((64, 48), lambda i, j: a[i, j] * 2.0, "b")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("blockIdx.y"))
    outer, inner = schedule[b].split(b.op.axis[1], factor=16)
    schedule[b].bind(outer, te.thread_axis("blockIdx.x"))
    schedule[b].bind(inner, te.thread_axis("threadIdx.x"))
    found = launches_of(tvm.lower(schedule, [a, b])["main"])
    assert found == [{"grid": [3, 64, 1], "block": [16, 1, 1]}]


TASKS = """
import json
import numpy as np
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
target = resolve_target("cuda -arch=sm_90")
from op_profiler.collection.studies.tune import tunables_of
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
relay = tvm.relay
shapes = {"data": (1, 16, 14, 14), "first": (32, 16, 3, 3), "second": (32, 1, 3, 3)}
data, *weights = (relay.var(name, shape=shape) for name, shape in shapes.items())
x = relay.nn.conv2d(data, weights[0], padding=(1, 1), channels=32, kernel_size=(3, 3))
y = relay.nn.conv2d(relay.nn.relu(x), weights[1], padding=(1, 1), channels=32, groups=32, kernel_size=(3, 3))
module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([data, *weights], y)))
params = {name: tvm.nd.array(np.ones(shape, "float32")) for name, shape in [*shapes.items()][1:]}
model = ImportedModel("two", "test", module, params, (InputSpec("data", shapes["data"]),))
items, _ = tunables_of(model, target, None)
built = 0
task = compiler_in_use().task(items[0].tasks[0], target)
for point in range(0, task.size, task.size // 6):
    try:
        built += bool(task.build(point))
    except Exception as error:
        assert "too much shared data" in str(error) or "invalid" in str(error).lower(), error
    if built == 2:
        break
print(json.dumps({"templates": sorted({spec.template for item in items for spec in item.tasks}), "built": built}))
"""


@needs_build
def test_templates_of_cuda_are_found_and_their_candidates_build() -> None:
    done = subprocess.run([sys.executable, "-c", TASKS], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert {"conv2d_nchw.cuda", "depthwise_conv2d_nchw.cuda"} <= set(found["templates"])
    assert found["built"] >= 1
