"""How many valid trials a minute for Relax, next to stock MetaSchedule, and how good are the best schedules?

Both tune the same three kernels in turns, each a convolution or a product with its fused ops. op_profiler searches the
knobs of the default rules (`trees`); stock MetaSchedule searches its automatic space with its own builder and runner,
on all cores. Each finished candidate gets three samples of at least 2 ms. Afterwards, the best of both and the default
are measured in alternation in one process.

    python benchmarks/relax_tuning.py [--trials 64]                 (about twenty minutes)

Goal: at least 5 times the trials a minute of stock MetaSchedule, and no kernel slower than its default.
"""

from __future__ import annotations

import argparse
import logging
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from common import at_least, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_ROUNDS, _SECONDS = 21, 0.002
_PATIENCE_SECONDS = 300.0  # what stock's builder imports first takes ten seconds, on a busy machine more than its limit


def kernels(target: Any) -> dict[str, Any]:
    """What is tuned, as `Tunable`, by name."""
    import numpy as np

    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.compilers.imported_model import ImportedModel, InputSpec
    from op_profiler.compilers.tvm_build import load_tvm

    relax = load_tvm().relax
    rng = np.random.default_rng(0)

    def constant(*shape: int) -> Any:
        return relax.const(rng.standard_normal(shape).astype("float32"))

    def convolution(channels: int, groups: int) -> Callable[[Any], Any]:
        weight = constant(channels, channels // groups, 3, 3)
        bias = constant(1, channels, 1, 1)
        return lambda data: relax.op.nn.relu(
            relax.op.add(relax.op.nn.conv2d(data, weight, padding=1, groups=groups), bias)
        )

    weight, bias = constant(768, 768), constant(768)
    bodies: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
        "conv2d 64x56x56": ((1, 64, 56, 56), convolution(64, 1)),
        "depthwise 144x28x28": ((1, 144, 28, 28), convolution(144, 144)),
        "dense 128x768x768": ((128, 768), lambda data: relax.op.add(relax.op.matmul(data, weight), bias)),
    }
    found = {}
    for name, (shape, body) in bodies.items():
        builder = relax.BlockBuilder()
        data = relax.Var("data", relax.TensorType(list(shape), "float32"))
        with builder.function("main", [data]):
            with builder.dataflow():
                output = builder.emit_output(builder.emit(builder.normalize(body(data))))
            builder.emit_func_output(output)
        model = ImportedModel(name, "benchmark", builder.get(), {}, (InputSpec("data", shape),))
        (found[name],), _ = compiler_in_use().tunables(model, target, None)
    return found


def stock(module: Any, target: Any, trials: int, cores: int) -> tuple[int, float, Any]:
    """Valid trials and seconds of MetaSchedule's own tuning, and the best module; None where it found none."""
    from tvm import target as tvm_target
    from tvm.s_tir import meta_schedule

    builder = meta_schedule.builder.LocalBuilder(max_workers=cores, timeout_sec=_PATIENCE_SECONDS)
    runner = meta_schedule.runner.LocalRunner(
        evaluator_config=meta_schedule.runner.EvaluatorConfig(number=1, repeat=3, min_repeat_ms=2)
    )
    known = tvm_target.Target({**dict(target.export()), "num-cores": cores})
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        database = meta_schedule.tir_integration.tune_tir(
            module,
            known,
            folder,
            trials,
            builder=builder,
            runner=runner,
            num_tuning_cores=cores,
            seed=0,
        )
        seconds = time.perf_counter() - started
        records = database.get_all_tuning_records()
        valid = sum(all(0 < float(s) < 1e8 for s in record.run_secs or [0.0]) for record in records)
        best = meta_schedule.tir_integration.compile_tir(database, module, known)
        return valid, seconds, None if best is None else best.mod


def in_turns(functions: Sequence[Any], arrays: Sequence[Any]) -> list[float]:
    """Medians of the microseconds of libraries over the same arrays, one after the other in every round."""
    import numpy as np

    from op_profiler.compilers.tvm_build import load_tvm

    device = load_tvm().cpu()

    def timed(function: Any, number: int) -> float:
        return float(function.time_evaluator("main", device, number=number, repeat=1)(*arrays).results[0])

    counts = [max(math.ceil(_SECONDS / max(min(timed(one, 1), timed(one, 1)), 1e-7)), 1) for one in functions]
    times = [[timed(one, count) for one, count in zip(functions, counts)] for _ in range(_ROUNDS)]
    return [float(us) for us in np.median(np.asarray(times), axis=0) * 1e6]


def row(name: str, item: Any, target: Any, runner: Any, trials: int, cores: int) -> dict[str, Any]:
    """One kernel: trials a minute of both, and the times of the best of both and of the default."""
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.compilers.relax.tuning.workload import module_of
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.tuning.search import OperatorSearch

    tvm = load_tvm()
    (spec,) = item.tasks
    task, module = compiler_in_use().task(spec, target), module_of(spec.arguments)
    theirs, their_seconds, their_best = stock(module, target, trials, cores)
    started = time.perf_counter()
    search = OperatorSearch([spec], target, runner, tuner="trees", trials=trials).run()
    seconds = time.perf_counter() - started
    valid = sum(trial.result.error is None for trial in search.trials)
    built = [task.build(None), task.build(search.finalists[0].candidate.index)]
    functions = [one.function for one in built]
    if their_best is not None:
        functions.append(tvm.tirx.build(their_best, target=target))
    reference = task.reference()
    assert reference is not None
    arrays = [tvm.runtime.tensor(array) for array in reference.arrays]
    default_us, our_us, *their_us = in_turns(functions, [*arrays, tvm.runtime.empty(*built[0].tensors[-1])])
    return {
        "kernel": name,
        "stock_per_minute": round(theirs / their_seconds * 60),
        "ours_per_minute": round(valid / seconds * 60),
        "times": round(valid / seconds * their_seconds / max(theirs, 1), 1),
        "default_us": round(default_us, 1),
        "ours_us": round(our_us, 1),
        "stock_us": round(their_us[0], 1) if their_us else None,
        "default_over_ours": round(default_us / our_us, 3),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    The trials a minute are compared by the geometric mean over the kernels, as in the headline.
    """
    times = every(at_least(row["times"], 5) for row in tables.get("all", ()))
    return every([times, every(at_least(row["default_over_ours"], 1) for row in tables.get("kernels", ()))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--kernels", type=int, default=100, help="only the first so many")
    arguments = parser.parse_args()

    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.cores import usable_cores
    from op_profiler.targets.target import resolve_target, use_build_for
    from op_profiler.tuning.trials.runner import TrialRunner

    use_build_for("llvm", compiler="relax")
    version = str(load_tvm().__version__)
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.ERROR)
    target, cores = resolve_target("llvm"), usable_cores()
    print(provenance())
    print(f"TVM {version}, {arguments.trials} trials each, {cores} threads")
    items = kernels(target)
    rows = []
    with TrialRunner(str(target), cores) as runner:
        for name in list(items)[: arguments.kernels]:
            rows.append(row(name, items[name], target, runner, arguments.trials, cores))
            print(", ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    times = math.prod(one["times"] for one in rows) ** (1 / len(rows))
    faster = math.prod(one["default_over_ours"] for one in rows) ** (1 / len(rows))
    headline = (
        f"{times:.1f} times the valid trials a minute of stock MetaSchedule; {arguments.trials} trials make a kernel "
        f"{faster:.2f} times as fast as by default (geometric means)"
    )
    print(headline)
    total = {"relax": version, "trials": arguments.trials, "threads": cores, "times": round(times, 1)}
    store(__file__, headline, {"kernels": rows, "all": [total]}, whole=len(rows) == len(items))


if __name__ == "__main__":
    main()
