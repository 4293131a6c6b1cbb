"""Default schedules on GPUs compute the right numbers: their CUDA is run on a processor, a block as many threads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from op_profiler.targets.cuda import tvm_build

HEADER = Path(__file__).parent / "stand_in" / "threads.h"
lacking = [*tvm_build.missing(), *([] if shutil.which("c++") else ["a C++ compiler"])]
pytestmark = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")

PROGRAM = """
import ctypes
import json
import re
import sys
from pathlib import Path

import numpy as np

from op_profiler.c_compiler import make_library
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
from op_profiler.compilers.relay.launch import launches_of
from op_profiler.compilers.relay.lower import quiet
from op_profiler.compilers.relay.read_kernel import _lowered
from op_profiler.compilers.tvm_build import load_tvm

header, folder = Path(sys.argv[1]), Path(sys.argv[2])
tvm, target = load_tvm(), resolve_target("cuda -arch=sm_90")
relay = tvm.relay
texts = []
tvm._ffi.register_func("tvm_callback_cuda_compile", lambda text, _: texts.append(text) or bytearray(), override=True)


def on_a_processor(function, arrays):
    (launch,) = launches_of(_lowered(function, target)[0])
    compiler = relay.backend.te_compiler.get()
    compiler.clear()
    with quiet(), tvm.transform.PassContext(opt_level=3), target:
        lowered = compiler.lower(function, target)
        (kernel,) = lowered.funcs.functions.values()
        tvm.build(lowered.funcs, target=target)
    text = texts[-1]
    text = text[text.index('extern "C" __global__') :]
    name, given = re.search(r"(\\w+)\\(([^)]*)\\);", text).groups()
    order = [re.search(r"(\\w+)$", one.strip()).group(1) for one in given.split(",")]
    there = [str(kernel.buffer_map[one].name) for one in kernel.params]
    passed = ", ".join(f"a[{there.index(one)}]" for one in order)
    sizes = [", ".join(map(str, launch[where])) for where in ("grid", "block")]
    source = folder / f"{name}.cc"
    source.write_text(
        f'#include "{header}"\\n{text}\\n'
        f'extern "C" void run(float **a) {{ launch({{{sizes[0]}}}, {{{sizes[1]}}}, [&] {{ {name}({passed}); }}); }}'
    )
    make_library(str(source.with_suffix(".so")), [str(source)], ["-std=c++17", "-pthread", "-lstdc++"])
    out = np.full([int(size) for size in function.ret_type.shape], np.nan, dtype="float32")
    tensors = [*arrays, out]
    pointers = (ctypes.c_void_p * len(tensors))(*(one.ctypes.data for one in tensors))
    ctypes.CDLL(str(source.with_suffix(".so"))).run(pointers)
    return out, int(np.prod(launch["block"]))


def compared(call, *shapes):
    variables = [relay.var(f"x{n}", shape=shape) for n, shape in enumerate(shapes)]
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(variables, call(*variables))))
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    wanted = relay.create_executor("graph", module, tvm.cpu(), "llvm").evaluate()(*arrays).numpy()
    found, threads = on_a_processor(module["main"].with_attr("Primitive", tvm.tir.IntImm("int32", 1)), arrays)
    return [float(np.abs(found - wanted).max() / np.abs(wanted).max()), threads]


def convolution(x, w):
    return relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), channels=16, kernel_size=(3, 3)))


def pixel(x, w):
    return relay.nn.conv2d(x, w, channels=24, kernel_size=(1, 1))


def transposed(x, w):
    return relay.nn.conv2d_transpose(x, w, channels=8, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1))


found = {
    "rows of 14": compared(convolution, (1, 8, 14, 14), (16, 8, 3, 3)),
    "rows of 73": compared(convolution, (1, 8, 73, 73), (16, 8, 3, 3)),
    "rows of 74": compared(convolution, (1, 8, 74, 74), (16, 8, 3, 3)),
    "one pixel": compared(pixel, (1, 60, 1, 1), (24, 60, 1, 1)),
    "transposed": compared(transposed, (1, 4, 8, 8), (4, 8, 4, 4)),
    "products of 49": compared(relay.nn.batch_matmul, (2, 49, 32), (2, 49, 32)),
    "products of 197": compared(relay.nn.batch_matmul, (2, 197, 17), (2, 197, 17)),
    "products of 64": compared(relay.nn.batch_matmul, (2, 64, 32), (2, 64, 32)),
}
print(json.dumps(found))
"""


def test_they_compute_what_a_processor_computes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(HEADER), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 8 and {name: off for name, (off, _) in found.items() if not off < 1e-5} == {}
    assert {name: threads for name, (_, threads) in found.items() if threads < 8} == {}
