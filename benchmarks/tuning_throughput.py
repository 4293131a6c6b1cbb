"""How many valid trials a minute, next to stock AutoTVM, and are the best schedules as good?

Both search the same spaces (TVM's conv2d tasks of resnet-18) with the same tuner (xgb_knob) and seeds, task by task in
turns; stock AutoTVM uses LocalBuilder on all cores and LocalRunner. Each finished candidate gets three samples of at
least 2 ms. Afterwards, the best of both are measured in alternation in one process.

    python benchmarks/tuning_throughput.py [--trials 64] [--tasks 12]
"""

from __future__ import annotations

import argparse
import logging
import math
import random
import time
from typing import Any

from common import provenance, store


def stock(task: Any, trials: int, cores: int) -> tuple[int, float, int]:
    """Valid trials, seconds, and the best point of AutoTVM's own tuning."""
    import numpy as np
    from tvm import autotvm

    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - AutoTVM draws from the global generators
    tuner = autotvm.tuner.XGBTuner(task, feature_type="knob", loss_type="reg", num_threads=cores, log_interval=0)
    valid = [0]

    def count(_: Any, __: Any, results: Any) -> None:
        valid[0] += sum(1 for r in results if r.error_no == 0)

    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(n_parallel=cores, do_fork=True),
        runner=autotvm.LocalRunner(number=1, repeat=3, min_repeat_ms=2, timeout=20),
    )
    started = time.perf_counter()
    tuner.tune(trials, option, callbacks=[count])
    seconds = time.perf_counter() - started
    return valid[0], seconds, int(tuner.best_config.index)


def ours(spec: Any, target: Any, runner: Any, trials: int) -> tuple[int, float, int, int]:
    """Valid trials, seconds (with the comparison of the finalists), the best point, and how many stopped early."""
    from op_profiler.tuning.search import OperatorSearch

    started = time.perf_counter()
    search = OperatorSearch([spec], target, runner, tuner="xgb_knob", trials=trials).run()
    seconds = time.perf_counter() - started
    valid = sum(1 for t in search.trials if t.result.error is None)
    early = sum(1 for t in search.trials if t.result.stopped_early)
    index = search.finalists[0].candidate.index
    assert index is not None
    return valid, seconds, index, early


def check_cost(spec: Any, target: Any, cores: int, count: int = 64) -> list[float]:
    """Seconds for the same candidates with the numeric check over those without, three times, in turns."""
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.tuning.candidate import Candidate
    from op_profiler.tuning.trials.runner import TrialRunner

    random.seed(1)
    task = compiler_in_use().task(spec, target)
    candidates = [Candidate(spec, task.random_point()) for _ in range(count)]
    ratios = []
    with TrialRunner(str(target), cores) as checking, TrialRunner(str(target), cores, check=False) as trusting:
        for runner in (checking, trusting):
            runner.run(candidates[:4], math.inf)  # starts the workers
        for _ in range(3):
            seconds = []
            for runner in (checking, trusting):
                started = time.perf_counter()
                runner.run(candidates, math.inf)
                seconds.append(time.perf_counter() - started)
            ratios.append(seconds[0] / seconds[1])
    return ratios


def rates_of(stock: float, ours: float) -> dict[str, float]:
    """Valid trials a minute of both, as a record."""
    return {"stock_per_minute": round(stock), "ours_per_minute": round(ours), "times": round(ours / stock, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--tasks", type=int, default=100, help="only the first so many")
    arguments = parser.parse_args()

    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.cores import usable_cores
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.candidate import Candidate, TaskSpec
    from op_profiler.tuning.trials.runner import TrialRunner

    tvm = load_tvm()
    logging.getLogger("autotvm").setLevel(logging.ERROR)
    target, cores = resolve_target("llvm"), usable_cores()
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name="resnet-18"))
    conv2d = (tvm.relay.op.get("nn.conv2d"),)
    tasks = tvm.autotvm.task.extract_from_program(model.mod["main"], target=target, params=model.params, ops=conv2d)
    print(provenance())
    count = min(len(tasks), arguments.tasks)
    print(f"resnet-18, {count} conv2d tasks, {arguments.trials} trials each, {cores} threads")
    print(f"{'task':34}{'stock /min':>12}{'ours /min':>12}{'times':>8}{'best ours/stock':>18}")
    totals = [0, 0.0, 0, 0.0, 0]
    logs: list[float] = []
    rows = []
    with TrialRunner(str(target), cores) as runner:
        for number, task in enumerate(tasks[: arguments.tasks]):
            spec = TaskSpec(task.name, task.args)
            if number % 2:
                mine, theirs = ours(spec, target, runner, arguments.trials), stock(task, arguments.trials, cores)
            else:
                theirs, mine = stock(task, arguments.trials, cores), ours(spec, target, runner, arguments.trials)
            pair = runner.compare([Candidate(spec, mine[2]), Candidate(spec, theirs[2])], 21)
            ratio = pair[0].median_us / pair[1].median_us
            logs.append(math.log(ratio))
            totals = [a + b for a, b in zip(totals, (theirs[0], theirs[1], mine[0], mine[1], mine[3]))]
            rates = theirs[0] / theirs[1] * 60, mine[0] / mine[1] * 60
            shape = f"{task.args[0][1]} {task.args[1][1][0]}x{task.args[1][1][2]}".replace(" ", "")
            print(f"{shape:34}{rates[0]:12.0f}{rates[1]:12.0f}{rates[1] / rates[0]:8.1f}{ratio:18.3f}", flush=True)
            rows.append({"task": shape, **rates_of(*rates), "best_ours_over_stock": round(ratio, 3)})
    rates = totals[0] / totals[1] * 60, totals[2] / totals[3] * 60
    total = {
        **{"model": "resnet-18", "conv2d_tasks": count, "trials": arguments.trials, "threads": cores},
        **rates_of(*rates),
        "stopped_after_one_call_percent": round(100 * totals[4] / max(totals[2], 1)),
    }
    ratios = check_cost(TaskSpec(tasks[0].name, tasks[0].args), target, cores)
    check = [{"run": n, "cost_percent": round(100 * (ratio - 1), 1)} for n, ratio in enumerate(ratios, 1)]
    logarithms = {"geometric_mean": sum(logs) / len(logs), "worst": max(logs), "best": min(logs)}
    best = {name: round(math.exp(value), 3) for name, value in logarithms.items()}
    for record in (total, *check, best):
        print(", ".join(f"{name} {value}" for name, value in record.items()))
    headline = (
        f"{total['times']} times the valid trials a minute of stock AutoTVM; the best found takes "
        f"{best['geometric_mean']} of the time of its best"
    )
    tables = {"tasks": rows, "all": [total], "numeric_check": check, "best_ours_over_stock": [best]}
    store(__file__, headline, tables, whole=count == len(tasks))


if __name__ == "__main__":
    main()
