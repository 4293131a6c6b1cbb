"""On a GPU: the TVM with CUDA computes what numpy computes. The first thing to look at on a new machine."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from op_profiler.targets.cuda import tvm_build

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not tvm_build.device_count(), reason="no GPU here (no driver, or it lists no device)"),
]

# A process holds one TVM, and that of the other tests is another one.
HEAD = """
import json
import numpy as np
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda")
from op_profiler.compilers.tvm_build import load_tvm
tvm, target = load_tvm(), resolve_target("cuda")
device, rng = tvm.cuda(0), np.random.default_rng(0)
"""
ADDITION = """
te, count, dtype = tvm.te, 1 << 20, "{dtype}"
a, b = te.placeholder((count,), dtype, "a"), te.placeholder((count,), dtype, "b")
c = te.compute((count,), lambda i: a[i] + b[i], "c")
schedule = te.create_schedule(c.op)
outer, inner = schedule[c].split(c.op.axis[0], 256)
schedule[c].bind(outer, te.thread_axis("blockIdx.x"))
schedule[c].bind(inner, te.thread_axis("threadIdx.x"))
inputs = [rng.standard_normal(count).astype(dtype) for _ in range(2)]
arrays = [tvm.nd.array(array, device) for array in (*inputs, np.full(count, np.nan, dtype))]
tvm.build(schedule, [a, b, c], target)(*arrays)
found, expected = arrays[2].numpy(), inputs[0] + inputs[1]
"""
CONVOLUTION = """
from tvm.contrib import graph_executor
relay = tvm.relay
data, weight = relay.var("data", shape=(1, 64, 56, 56)), relay.var("weight", shape=(64, 64, 3, 3))
body = relay.nn.conv2d(data, weight, padding=(1, 1), channels=64, kernel_size=(3, 3))
kernel, image = (rng.standard_normal(shape).astype("float32") for shape in ((64, 64, 3, 3), (1, 64, 56, 56)))
module = tvm.IRModule.from_expr(relay.Function([data, weight], body))
with tvm.transform.PassContext(opt_level=3):
    library = relay.build(module, target=target, params={"weight": kernel})
executor = graph_executor.GraphModule(library["default"](device))
executor.run(data=image)
found = executor.get_output(0).numpy()
padded = np.pad(image.astype("float64"), ((0, 0), (0, 0), (1, 1), (1, 1)))
windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
expected = np.tensordot(windows, kernel.astype("float64"), axes=([1, 4, 5], [1, 2, 3])).transpose(0, 3, 1, 2)
"""
TAIL = """
off = np.linalg.norm(found.astype("float64") - expected.astype("float64")) / np.linalg.norm(expected.astype("float64"))
print(json.dumps(float(off)))
"""


@pytest.mark.parametrize(
    ("program", "limit"),
    [(ADDITION.format(dtype="float32"), 1e-7), (ADDITION.format(dtype="float16"), 1e-3), (CONVOLUTION, 1e-5)],
    ids=["addition of float32", "addition of float16", "convolution"],
)
def test_the_relative_error_is_that_of_the_precision(program: str, limit: float) -> None:
    done = subprocess.run([sys.executable, "-c", HEAD + program + TAIL], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    off: Any = json.loads(done.stdout.splitlines()[-1])
    assert off <= limit  # NaN is not
