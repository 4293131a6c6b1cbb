"""Kinds of targets: this host's processor, its GPU, or another machine behind TVM's RPC.

This package contains the contracts; each kind has its own folder. Nothing heavy is imported before a kind is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.targets.target_kind import TargetKind

_HERE = "op_profiler.targets"

TARGETS: Registry[TargetKind] = Registry(
    "targets",
    "target",
    f"{_HERE}.target_kind:TargetKind",
    {
        "llvm": Entry(f"{_HERE}.llvm.kind:LLVM", "this processor, or with options another one that LLVM supports"),
        "cuda": Entry(f"{_HERE}.cuda.kind:CUDA", "this machine's GPU; 'cuda -arch=sm_90' compiles for one elsewhere"),
        "pynq": Entry(f"{_HERE}.arm.kind:PYNQ", "a PYNQ board's Cortex-A9, over RPC"),
        "arm_cpu": Entry(f"{_HERE}.arm.kind:ARM_CPU", "a board with a 64-bit ARM processor, over RPC"),
    },
)
