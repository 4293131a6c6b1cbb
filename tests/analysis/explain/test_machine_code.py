"""What is read out of compiled kernels, and what llvm-mca says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.analysis.explain import reading as mca
from op_profiler.analysis.explain.machine_code import KernelCode, MachineLoop, kernels_of, loops_of
from op_profiler.compilers.compiler import compiler_in_use

ASSEMBLY = """
\t.type\tkernel_compute_,@function
kernel_compute_:
\tleaq\t.L__tvm_parallel_lambda(%rip), %rdi
\tcallq\t*__TVMBackendParallelLaunch(%rax)
\tretq
\t.size\tkernel_compute_, .-kernel_compute_
.L__tvm_parallel_lambda:
\txorl\t%eax, %eax
.LBB0_1:
\tmovq\t%r8, %r10
.LBB0_2:                                # inner
\tvbroadcastss\t(%rsi,%r9,4), %zmm3
\tvfmadd231ps\t(%r10), %zmm3, %zmm2
\tvfmadd231ps\t4096(%r10), %zmm3, %zmm1
\tvmovups\t%zmm1, 64(%rsp)
\tincq\t%r9
\taddq\t$8192, %r10
\tjne\t.LBB0_2
\tvaddps\t%zmm2, %zmm1, %zmm1
\tvmovaps\t%zmm1, (%rdi)
\tjne\t.LBB0_1
\tretq
\t.size\t.L__tvm_parallel_lambda, .-x
"""


def test_the_innermost_loop_of_a_parallel_part_is_found_and_counted() -> None:
    code = kernels_of(ASSEMBLY, ["kernel", "another"])["kernel"]
    loop = code.hottest
    assert code.parallel and len(code.loops) == 1 and loop.depth == 2
    assert loop.flops == 2 * 2 * 16 and loop.lanes == 16 and loop.fma_share == 1.0
    assert loop.spills == 1 and not any("rsp" in line for line in loop.without_spills())
    assert loop.far_steps == (4096,)


def test_a_jump_forward_is_no_loop() -> None:
    assert loops_of(["jne .LBB0_1", "incq %rax", ".LBB0_1:", "retq"]) == []


def test_steps_that_follow_each_other_are_not_far() -> None:
    unrolled = tuple(f"vmovups {64 * i}(%rax), %zmm{i}" for i in range(16))
    assert MachineLoop((*unrolled, "addq $1024, %rax", "jne .L"), 1).far_steps == ()
    assert MachineLoop((*unrolled[:1], "addq $1024, %rax", "jne .L"), 1).far_steps == (1024,)


def test_planted_code_is_what_was_planted(codes: dict[str, KernelCode], target: Any) -> None:
    lanes = compiler_in_use().vector_lanes(target)
    assert codes["tile of 1"].hottest.lanes == lanes
    assert codes["no vectorize"].hottest.lanes == 1.0 and codes["no vectorize"].hottest.vector_share == 0.0
    assert codes["no vectorize"].hottest.far_steps == ()
    assert not codes["no parallel axis"].parallel and codes["tile of 1"].parallel
    assert codes["power-of-two stride"].hottest.far_steps == (4 * (1 << 15),)
    assert codes["weights larger than the cache"].hottest.far_steps == ()
    spilling, fitting = codes["spilling tile"].hottest, codes["no parallel axis"].hottest
    assert spilling.spills > 0.1 * len(spilling.body) and fitting.spills == 0


@pytest.fixture
def program() -> Path:
    found = mca.find_mca()
    if found is None:
        pytest.skip("llvm-mca is not installed")
    return found


def test_cycles_tell_waiting_from_work(program: Path) -> None:
    chain = ("vfmadd231ps %ymm13, %ymm14, %ymm0",)
    cycles = mca.cycles_of(program, {"chain": chain, "peak": mca.peak_body(8)}, "skylake-avx512")
    assert cycles["chain"] > 3 and cycles["peak"] / 12 < 1.1


def test_a_loop_that_cannot_be_read_has_no_cycles_and_the_others_have(program: Path) -> None:
    cycles = mca.cycles_of(program, {"one": ("nonsense %rax",), "peak": mca.peak_body(8)}, "skylake-avx512")
    assert set(cycles) == {"peak"}


def test_a_processor_without_a_model_gives_none(program: Path) -> None:
    assert mca.cycles_of(program, {"peak": mca.peak_body(8)}, "no-such-processor") == {}
