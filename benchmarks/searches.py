"""How good is the best schedule after 64 trials, next to the other searches of TVM?

    python benchmarks/searches.py [--keep FILE] [OPERATOR ...]     (two to five minutes an operator)

Four searches get the same operators of ``rule.py``, the same number of trials and one thread: op_profiler (tuner
xgb_knob, all templates that can compute the operator), stock AutoTVM (XGBTuner on the templates that TVM uses), Ansor
(`tvm.auto_scheduler`; convolutions in the layout NHWC, as TVM's documentation recommends) and MetaSchedule. Each rival
uses its own builder on all cores and its own runner. Each finished candidate gets three samples of at least 2 ms.
Afterwards the best builds of all four and the builds without a search (TVM's own schedules, the rule) run in turns in
one process. Times contain the changes of layout at both ends of a convolution. The seconds of a search contain its
compilation, its measurements and its model.

Goal: op_profiler's best schedule takes the least time in the geometric mean, and op_profiler makes 5 times as many
trials a minute as stock AutoTVM.
"""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
import random
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, at_most, every, run_of, store
from rule import operators

if TYPE_CHECKING:
    from common import Tables

TRIALS = 64
OURS = "op_profiler"
OPERATORS = (
    "3x3, 64 channels, 56x56",
    "3x3, 512 channels, 7x7",
    "3x3 stride 2, 512 channels, 14x14",
    "7x7 stride 2, 3 to 64 channels, 224x224",
    "1x1, 256 to 1024 channels, 14x14",
    "1x1, 144 to 24 channels, 56x56",
    "depthwise 3x3, 144 channels, 56x56",
    "dense, 128 rows, 768 to 768",
    "dense, 197 rows, 768 to 3072",
    "batched product, 12 x 197 x 64 x 197",
)
_ROUNDS, _SAMPLES, _SAMPLE_MS = 21, 3, 2
_BUILD_SECONDS = 60  # MetaSchedule's workers import for more than its limit of 30 s beside other builds


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator that is searched for.

    Attributes:
        module: a Relay module of one function.
        params: its weights by name.
        target: a TVM target of one core.
        cores: number of processes that build.
    """

    module: Any
    params: dict[str, Any]
    target: Any
    cores: int

    @classmethod
    def of(cls, text: str, target: str) -> Operator:
        """Return the operator of ``rule.py`` with this text, with the same random weights in every process."""
        import tvm

        rng = np.random.default_rng(0)
        body, weights = operators()[text]
        module = tvm.relay.transform.InferType()(tvm.IRModule.from_expr(body))
        params = {name: tvm.nd.array(rng.standard_normal(shape).astype("float32")) for name, shape in weights.items()}
        return cls(module, params, tvm.target.Target(f"{target} -num-cores=1"), os.cpu_count() or 1)

    def built(self, records: Any) -> Any:
        """Return op_profiler's build with these records as a module with a graph."""
        from op_profiler.compilers.relay.relay_compiler import RELAY

        return RELAY.build(self.imported, self.target, records).compiled.library

    @property
    def imported(self) -> Any:
        """The operator as op_profiler's compilers take it."""
        from op_profiler.compilers.imported_model import ImportedModel

        return ImportedModel("operator", "benchmark", self.module, dict(self.params), ())


@dataclasses.dataclass(frozen=True)
class Searched:
    """Result of one search.

    Attributes:
        library: module with a graph of the best schedule.
        trials: number of trials with a time.
        seconds: duration of the search.
    """

    library: Any
    trials: int
    seconds: float


def op_profiler(operator: Operator) -> Searched:
    """Search with op_profiler."""
    from op_profiler.compilers.relay.relay_compiler import RELAY
    from op_profiler.schedules.records import Conditions, Record
    from op_profiler.schedules.usable_records import UsableRecords
    from op_profiler.tuning.search import OperatorSearch
    from op_profiler.tuning.trials.runner import TrialRunner

    target = operator.target
    (item,), _ = RELAY.tunables(operator.imported, target, None)
    defaults = () if item.default is None else (item.default,)
    with TrialRunner(str(target), 1, cores=operator.cores) as runner:
        started = time.perf_counter()
        search = OperatorSearch(item.tasks, target, runner, tuner=RELAY.tuner, trials=TRIALS, defaults=defaults).run()
        seconds = time.perf_counter() - started
    best, task = search.finalists[0], search.finalists[0].candidate.task
    costs = (best.result.median_us / 1e6,)
    record = Record(str(target), task.template, task.arguments, best.config, costs, conditions=Conditions(1))
    valid = sum(trial.result.error is None for trial in search.trials)
    return Searched(operator.built(UsableRecords.only(record)), valid, seconds)


def autotvm(operator: Operator) -> Searched:
    """Search with stock AutoTVM; several tasks share the trials."""
    import tvm
    from tvm import autotvm

    tasks = autotvm.task.extract_from_program(operator.module["main"], target=operator.target, params=operator.params)
    builder = autotvm.LocalBuilder(n_parallel=operator.cores, do_fork=True)
    runner = autotvm.LocalRunner(number=1, repeat=_SAMPLES, min_repeat_ms=_SAMPLE_MS, timeout=20)
    option = autotvm.measure_option(builder=builder, runner=runner)
    valid = [0]

    def count(_: Any, __: Any, results: Any) -> None:
        valid[0] += sum(one.error_no == 0 for one in results)

    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder, "records.json"))
        started = time.perf_counter()
        for task in tasks:
            tuner = autotvm.tuner.XGBTuner(task, feature_type="knob", loss_type="reg", log_interval=0)
            keep = autotvm.callback.log_to_file(log)
            tuner.tune(min(TRIALS // len(tasks), len(task.config_space)), option, callbacks=[count, keep])
        seconds = time.perf_counter() - started
        with autotvm.apply_history_best(log), tvm.transform.PassContext(opt_level=3):
            library = tvm.relay.build(operator.module, target=operator.target, params=operator.params)
    return Searched(library, valid[0], seconds)


def ansor(operator: Operator) -> Searched:
    """Search with Ansor."""
    import tvm
    from tvm import auto_scheduler

    turn = tvm.relay.transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})
    with tvm.transform.PassContext(opt_level=3):
        module = tvm.transform.Sequential([turn])(operator.module)
    tasks, weights = auto_scheduler.extract_tasks(module["main"], operator.params, operator.target)
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder, "records.json"))
        option = auto_scheduler.TuningOptions(
            num_measure_trials=TRIALS,
            num_measures_per_round=16,
            builder=auto_scheduler.LocalBuilder(n_parallel=operator.cores, timeout=_BUILD_SECONDS),
            runner=auto_scheduler.LocalRunner(number=1, repeat=_SAMPLES, min_repeat_ms=_SAMPLE_MS, timeout=20),
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
            verbose=0,
        )
        started = time.perf_counter()
        auto_scheduler.TaskScheduler(tasks, weights).tune(option)
        seconds = time.perf_counter() - started
        results = [result for _, result in auto_scheduler.RecordReader(log)]
        config = {"relay.backend.use_auto_scheduler": True}
        with auto_scheduler.ApplyHistoryBest(log), tvm.transform.PassContext(opt_level=3, config=config):
            library = tvm.relay.build(module, target=operator.target, params=operator.params)
    return Searched(library, sum(int(one.error_no) == 0 for one in results), seconds)


def metaschedule(operator: Operator) -> Searched:
    """Search with MetaSchedule."""
    from tvm import meta_schedule

    what = {"mod": operator.module, "target": operator.target, "params": operator.params}
    evaluator = meta_schedule.runner.EvaluatorConfig(number=1, repeat=_SAMPLES, min_repeat_ms=_SAMPLE_MS)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        database = meta_schedule.relay_integration.tune_relay(
            **what,
            work_dir=folder,
            max_trials_global=TRIALS,
            num_trials_per_iter=16,
            builder=meta_schedule.builder.LocalBuilder(max_workers=operator.cores, timeout_sec=_BUILD_SECONDS),
            runner=meta_schedule.runner.LocalRunner(evaluator_config=evaluator),
            num_tuning_cores=operator.cores,
            seed=0,
        )
        seconds = time.perf_counter() - started
        costs = [[float(cost) for cost in record.run_secs or ()] for record in database.get_all_tuning_records()]
        library = meta_schedule.relay_integration.compile_relay(database, **what)
    return Searched(library, sum(bool(cost) and max(cost) < 1e8 for cost in costs), seconds)


SEARCHES: dict[str, Callable[[Operator], Searched]] = {
    OURS: op_profiler,
    "autotvm": autotvm,
    "ansor": ansor,
    "metaschedule": metaschedule,
}


def searched(name: str, text: str, target: str, library: str) -> tuple[int, float]:
    """Run one search, write its best library to a file, and return its trials and seconds.

    Runs in a process of its own: op_profiler and stock AutoTVM load xgboost in different ways.
    """
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - AutoTVM and Ansor draw from the global generators
    logging.disable(logging.WARNING)
    found = SEARCHES[name](Operator.of(text, target))
    write(found.library, Path(library))
    return found.trials, found.seconds


def write(library: Any, file: Path) -> None:
    """Write the code, the graph and the weights of a module with a graph."""
    import tvm

    library.get_lib().export_library(str(file))
    file.with_suffix(".json").write_text(library.get_graph_json())
    file.with_suffix(".params").write_bytes(tvm.runtime.save_param_dict(library.get_params()))


def opened(file: Path) -> Any:
    """Return the executor of a module that `write` wrote."""
    import tvm
    from tvm.contrib import graph_executor

    graph = file.with_suffix(".json").read_text()
    run = graph_executor.create(graph, tvm.runtime.load_module(str(file)), tvm.cpu())
    run.load_params(file.with_suffix(".params").read_bytes())
    return run


def measured(text: str) -> dict[str, Any]:
    """Return the row of one operator, and the largest difference of an output from that of TVM's own schedules."""
    from op_profiler.schedules.records import Conditions
    from op_profiler.schedules.usable_records import UsableRecords
    from op_profiler.targets.target import resolve_target

    target = str(resolve_target("llvm"))
    operator = Operator.of(text, target)
    own = UsableRecords({}, Conditions(1))
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, f"{name}.so") for name in ("default", "rule", *SEARCHES)}
        for name, records in (("default", own), ("rule", dataclasses.replace(own, by_rule=True))):
            write(operator.built(records), files[name])
        found = {}
        for name in SEARCHES:
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
                found[name] = pool.submit(searched, name, text, target, str(files[name])).result()
        runs = {name: opened(file) for name, file in files.items()}
    rng = np.random.default_rng(1)
    for parameter in operator.module["main"].params:
        if parameter.name_hint not in operator.params:
            values = rng.standard_normal([int(size) for size in parameter.checked_type.shape]).astype("float32")
            for run in runs.values():
                run.set_input(parameter.name_hint, values)
    times = in_turns(runs)
    outputs = {name: run.get_output(0).numpy() for name, run in runs.items()}
    largest = max(np.abs(output - outputs["default"]).max() for output in outputs.values())
    ratios = {name: round(float(np.median(us / times[OURS])), 3) for name, us in times.items() if name != OURS}
    return {
        "operator": text,
        **{f"{name}_us": round(float(np.median(us)), 1) for name, us in times.items()},
        **{f"{name}_over_ours": ratio for name, ratio in ratios.items()},
        **{f"{name}_per_minute": round(60 * trials / seconds) for name, (trials, seconds) in found.items()},
        **{f"{name}_trials": trials for name, (trials, _) in found.items()},
        "largest_difference": float(f"{largest / np.abs(outputs['default']).max():.1e}"),
    }


def in_turns(runs: dict[str, Any]) -> dict[str, Any]:
    """Return the microseconds of each build in each round, by name."""
    import tvm

    def seconds(run: Any, number: int) -> float:
        return float(run.benchmark(tvm.cpu(), repeat=1, number=number).mean)

    numbers = {name: max(round(_SAMPLE_MS / 1e3 / max(seconds(run, 2), 1e-7)), 1) for name, run in runs.items()}
    rounds = [[seconds(run, numbers[name]) for name, run in runs.items()] for _ in range(_ROUNDS)]
    return dict(zip(runs, 1e6 * np.asarray(rounds).T))


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a row a rival: its time and its trials a minute, relative to op_profiler's."""
    found = []
    for name in (*(name for name in SEARCHES if name != OURS), "default", "rule"):
        ratios = [row[f"{name}_over_ours"] for row in rows]
        record = {
            "schedules": name,
            "time_over_ours": round(geometric_mean(ratios), 3),
            "least": min(ratios),
            "most": max(ratios),
        }
        if name in SEARCHES:
            rates = [row[f"{OURS}_per_minute"] / row[f"{name}_per_minute"] for row in rows]
            record["ours_trials_a_minute_over_its"] = round(geometric_mean(rates), 1)
        found.append(record)
    return found


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    rows = {row["schedules"]: row for row in tables.get("all", ())}
    faster = [at_least(rows[name]["time_over_ours"], 1) for name in SEARCHES if name in rows]
    rates = [at_least(rows["autotvm"]["ours_trials_a_minute_over_its"], 5)] if rows else []
    agree = [at_most(row["largest_difference"], 1e-3) for row in tables.get("operators", ())]
    return every([*faster, *rates, *agree])


def main() -> None:
    os.environ["TVM_NUM_THREADS"] = "1"
    run = run_of(__file__, __doc__, measured, OPERATORS)
    rows = []
    for one in run.found:
        rows.append(one.result)
        print(", ".join(f"{name} {value}" for name, value in one.result.items()), flush=True)
    rivals = summary(rows)
    for row in rivals:
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    parts = [f"{row['schedules']} {row['time_over_ours']}" for row in rivals if row["schedules"] in SEARCHES]
    headline = (
        f"after {TRIALS} trials, the best schedules of other searches take, relative to op_profiler's: "
        f"{', '.join(parts)} (geometric means over {len(rows)} operators); op_profiler makes "
        f"{rivals[0]['ours_trials_a_minute_over_its']} times as many trials a minute as stock AutoTVM"
    )
    print(headline)
    store(__file__, headline, {"all": rivals, "operators": rows}, whole=run.whole and len(rows) == len(OPERATORS))


if __name__ == "__main__":
    main()
