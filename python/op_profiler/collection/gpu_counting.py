"""Measures the shares of a GPU's peaks that kernels reach, in a separate run of the model under ncu."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from op_profiler.building.recipe import Recipe
from op_profiler.building.requested_target import load_target
from op_profiler.child_processes import end_with_parent
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.errors import MeasureError
from op_profiler.measure.counters import GPU_SHARE_NAMES, Counted, Counts
from op_profiler.option_values import several
from op_profiler.targets.cuda.counters import count_kernels, shares_of

_PROGRAM = "import sys; del sys.path[0]; from op_profiler.collection.gpu_counting import main; main()"


def count_on_gpu(
    recipe: Recipe | None, keys: Sequence[str], launches: Sequence[int], threads: Sequence[int]
) -> Counted:
    """Count the events of a model's kernels under ncu; the result is that of `op_profiler.collection.counting.count`.

    If ncu fails, the fields contain the reason instead of numbers.

    Args:
        recipe: how to build the model again; None if it could not be measured as a whole.
        keys: workload key of each operator call of the model, in order.
        launches: number of launches of each call.
        threads: thread counts of the results; on a GPU there is one.
    """
    try:
        if recipe is None:
            raise MeasureError("ncu watches whole models, and this one was measured operator by operator")
        with tempfile.TemporaryDirectory(prefix="op_profiler-") as folder:
            file = Path(folder) / "recipe.json"
            file.write_text(json.dumps(recipe.to_json()))
            kernels = count_kernels([sys.executable, "-c", _PROGRAM, str(file)])
        if len(kernels) != sum(launches):
            raise MeasureError(f"ncu saw {several(len(kernels), 'kernel')}, and the model launches {sum(launches)}")
    except MeasureError as error:
        nothing = Counts({}, dict.fromkeys(GPU_SHARE_NAMES, str(error)))
        return {(n, key): nothing.fields() for n in threads for key in (None, *keys)}
    remaining = iter(kernels)
    mine: dict[str | None, list[dict[str, float]]] = {None: kernels}
    for key, number in zip(keys, launches):
        mine.setdefault(key, []).extend(next(remaining) for _ in range(number))
    return {(n, key): shares_of(found).fields() for n in threads for key, found in mine.items()}


def main() -> None:
    """Run the model of a recipe once; entry point of the process that ncu watches."""
    end_with_parent()
    recipe = Recipe.from_json(json.loads(Path(sys.argv[1]).read_text()))
    target = load_target(recipe.request)
    compiled = recipe.build(print).compiled
    compiler_in_use().load(compiled, runtime_device(target), recipe.input_arrays())
    runtime_device(target).sync()
