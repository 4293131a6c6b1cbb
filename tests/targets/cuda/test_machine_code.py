"""Machine code of GPUs without one, and the schedules that TVM is given where it has none of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from op_profiler.compilers.relay.gpu_tiles import fits, window_of
from op_profiler.targets.cuda import machine_code, tvm_build

lacking = tvm_build.missing()
needs_build = pytest.mark.skipif(bool(lacking), reason=f"needs {'; '.join(lacking)}")


@pytest.mark.skipif(machine_code.nvrtc() is None, reason="needs NVRTC with its headers")
class TestNvrtc:
    def test_a_program_becomes_a_cubin(self) -> None:
        found = machine_code.nvrtc()
        assert found is not None
        code = found.compile('extern "C" __global__ void k(float *a) { a[threadIdx.x] = 1; }', "sm_90")
        assert code[:4] == b"\x7fELF" and b"k" in code

    def test_why_it_does_not_compile_is_told(self) -> None:
        found = machine_code.nvrtc()
        assert found is not None
        with pytest.raises(RuntimeError, match='identifier "nothing" is undefined'):
            found.compile('extern "C" __global__ void k(float *a) { a[0] = nothing; }', "sm_90")


SUMS = {"tile_rc": [8, 8], "tile_ry": [1, 3], "tile_rx": [1, 3]}


@pytest.mark.parametrize(
    ("channels", "rows", "columns", "sums", "worth"),
    [
        ([4, 1, 4, 4], [7, 1, 4, 2], [4, 1, 14, 1], SUMS, True),
        ([1, 1, 64, 1], [1, 1, 28, 1], [1, 1, 28, 1], SUMS, False),  # 50,176 threads
        ([1, 1, 1, 64], [7, 1, 8, 1], [7, 1, 8, 4], SUMS, False),  # 256 outputs of a thread
        ([16, 1, 4, 1], [56, 1, 1, 1], [56, 1, 1, 1], SUMS, False),  # an eighth of a warp
        ([1, 1, 1, 1], [1, 1, 2, 1], [1, 1, 2, 1], SUMS, True),  # there are no more outputs
        ([1031, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1], SUMS, True),  # a prime that is no number of threads
        ([1, 2, 64, 1], [28, 1, 1, 1], [7, 1, 4, 1], SUMS, True),  # 128 channels of 72 terms are 36 KiB
        ([1, 2, 64, 1], [28, 1, 1, 1], [7, 1, 4, 1], SUMS | {"tile_rc": [4, 16]}, False),
        ([1, 1, 128, 1], [1, 1, 1, 1], [1, 1, 2, 1], SUMS, False),  # a block has 64 threads along its third axis
    ],
)
def test_tiles_that_cannot_be_launched_or_spill_are_left_out(
    channels: list[int], rows: list[int], columns: list[int], sums: dict[str, list[int]], worth: bool
) -> None:
    assert fits({"tile_f": channels, "tile_y": rows, "tile_x": columns, **sums}, 4) == worth
    assert fits({name: size for name, size in sums.items()}, 4)  # of sums alone nothing is known


def test_the_data_of_a_tile_reaches_as_far_as_its_window() -> None:
    """8 channels of 56 x 56 values in float32 are 98 KiB, with a stride of 1 a quarter of that."""
    sizes = {"tile_f": [16, 1, 4, 1], "tile_y": [1, 2, 7, 2], "tile_x": [1, 1, 14, 2], "tile_rc": [8, 8]}
    splits = sizes | {"tile_ry": [1, 3], "tile_rx": [1, 3]}
    tensors = ("TENSOR", (1, 64, 57, 57), "float32"), ("TENSOR", (64, 64, 3, 3), "float32")
    assert window_of([*tensors, (2, 2), (0, 0), (1, 1), "float32"]) == ((2, 1), (2, 1))
    assert window_of(tensors) == ()
    assert fits(splits, 4, [(1, 1), (1, 1)]) and not fits(splits, 4, [(2, 1), (2, 1)])
    assert not fits(splits, 4, [(1, 16), (1, 16)])  # dilation reaches farther too


LAUNCHES = """
import json
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
target = resolve_target("cuda -arch=sm_90")
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.compilers.relay.lower import compile_model
from op_profiler.compilers.tvm_build import load_tvm
relay, found = load_tvm().relay, {}
cases = {
    "square": ((1, 64, 56, 56), (64, 64, 3, 3), 1, "float32"),
    "prime": ((1, 128, 17, 17), (192, 128, 1, 7), 1, "float32"),
    "depthwise": ((1, 32, 28, 28), (32, 1, 3, 3), 32, "float32"),
    "half": ((1, 64, 28, 28), (64, 64, 3, 3), 1, "float16"),
    "groups": ((1, 64, 28, 28), (128, 16, 7, 7), 4, "float32"),
    "int8": ((1, 64, 28, 28), (64, 64, 3, 3), 1, "int8"),
}
for name, (data_shape, weight_shape, groups, dtype) in cases.items():
    data, weight = relay.var("data", shape=data_shape, dtype=dtype), relay.var("w", shape=weight_shape, dtype=dtype)
    out_dtype = "int32" if dtype == "int8" else dtype
    options = {"channels": weight_shape[0], "kernel_size": weight_shape[2:], "padding": (1, 3), "out_dtype": out_dtype}
    body = relay.abs(relay.nn.conv2d(data, weight, groups=groups, **options))
    function = relay.Function([data, weight], body if dtype == "int8" else relay.tanh(body))
    module = relay.transform.InferType()(load_tvm().IRModule.from_expr(function))
    specs = tuple(InputSpec(n, s, dtype) for n, s in (("data", data_shape), ("w", weight_shape)))
    compiled = compile_model(ImportedModel(name, "test", module, {}, specs), target)
    found[name] = [launches[-1]["block"] for launches in compiled.launches.values()]
print(json.dumps(found))
"""


def printed(program: str) -> Any:
    """What it prints last, as JSON; a process has one build of TVM."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@needs_build
def test_blocks_of_default_schedules_have_threads_and_fit_the_shared_memory() -> None:
    """TVM alone takes one thread; ptxas would refuse what does not fit. CUDA 12.8 has a `htanh` of its own."""
    for name, blocks in printed(LAUNCHES).items():
        assert blocks and all(32 <= x * y * z <= 1024 for x, y, z in blocks), (name, blocks)


SEARCH = """
import json
from op_profiler.targets.target import resolve_target, use_build_for
use_build_for("cuda -arch=sm_90")
target = resolve_target("cuda -arch=sm_90")
from op_profiler.collection.studies.tune import tunables_of
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.tuning.reference import reference_of
from op_profiler.tuning.search import make_tuner
shape = ((1, 32, 28, 28),)
model = FRONTENDS.get("simple").load(ModelRequest(source="simple", name="conv2d", input_shapes=shape))
(item,), _ = tunables_of(model, target)
task = compiler_in_use().task(item.default, target)
default = task.point(task.default().knobs)
first = make_tuner("trees", task, 0).next_batch(4)
checked = {spec.template: reference_of(spec) is not None for spec in item.tasks}
print(json.dumps([item.default.template, default, list(first), checked]))
"""


@needs_build
def test_a_search_begins_at_what_the_compiler_takes_and_its_neighbours() -> None:
    """And Winograd's numbers are not checked: in a search it takes weights that were transformed before."""
    template, default, first, checked = printed(SEARCH)
    assert template == "conv2d_nchw.cuda" and default is not None and first[0] == default
    assert checked == {"conv2d_nchw.cuda": True, "conv2d_nchw_winograd.cuda": False}
