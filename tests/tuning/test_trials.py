"""Real worker processes: what they measure, and that nothing a candidate does ends more than itself."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.cores import available_cores, usable_cores
from op_profiler.errors import MeasureError
from op_profiler.tuning.candidate import VENDOR, Candidate, TaskSpec
from op_profiler.tuning.trials.runner import TrialLimits, TrialRunner
from op_profiler.tuning.trials.worker import Built, Worker, WorkerSetup

BAD_TEMPLATE = '''
"""A product whose only knob says how it goes wrong."""
import os, time
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
te, autotvm = tvm.te, tvm.autotvm
KINDS = ("good", "wrong", "crash", "hang", "memory", "invalid", "endless", "exit")

@autotvm.template("dense_bad.test")
def bad(m, n, k):
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k), name="b")
    cfg = autotvm.get_config()
    cfg.define_knob("kind", list(range(len(KINDS))))
    kind = KINDS[cfg["kind"].val]
    if not cfg.is_fallback and not getattr(cfg, "_collect", False):
        if kind == "crash":
            os.abort()
        if kind == "exit":
            os._exit(3)
        if kind == "hang":
            time.sleep(86400)
        if kind == "memory":
            bytearray(1 << 42)
        if kind == "invalid":
            raise ValueError("this schedule cannot be")
    r = te.reduce_axis((0, k), name="r")
    again = te.reduce_axis((0, 10**9 if kind == "endless" else 1), name="again")
    extra = 1.0 if kind == "wrong" else 0.0
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=[again, r]), name="c")
    d = te.compute((m, n), lambda i, j: c[i, j] + extra, name="d")
    return te.create_schedule(d.op), [d, a, b]
'''
KINDS = ("good", "wrong", "crash", "hang", "memory", "invalid", "endless", "exit")
WRONG_TEMPLATE = '''
"""A product whose only knob says whether it is right, adds to each term, or leaves out the lower half of the output."""
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
te, autotvm = tvm.te, tvm.autotvm

@autotvm.template("dense_wrong.test")
def wrong(a, b):
    autotvm.get_config().define_knob("kind", [0, 1, 2])
    kind = autotvm.get_config()["kind"].val
    (m, k), (n, _) = ((int(size) for size in one.shape) for one in (a, b))

    def upper_half(inputs, outputs):
        made = tvm.tir.ir_builder.create()
        x, y, z = (made.buffer_ptr(one) for one in (*inputs, *outputs))
        with made.for_range(0, m // 2) as i, made.for_range(0, n) as j:
            z[i, j] = tvm.tir.const(0.0, "float32")
            with made.for_range(0, k) as r:
                z[i, j] = z[i, j] + x[i, r] * y[j, r]
        return made.get()

    r = te.reduce_axis((0, k), name="r")
    if kind == 2:
        c = te.extern((m, n), [a, b], upper_half, dtype="float32")
    else:
        c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r] + float(kind), axis=r))
    return te.create_schedule(c.op), [c, a, b]
'''


def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
    return ("TENSOR", shape, "float32")


GOOD = TaskSpec("dense_pack.op_profiler", (tensor(16, 64), tensor(4, 64, 16), None, "float32"))


def packed(rows: int, columns: int, reduction: int, target: Any) -> TaskSpec:
    """A product of TVM's own template, its weights packed as the template's default has them."""
    width = 2 * compiler_in_use().vector_lanes(target)
    weights = tensor(columns // width, reduction, width)
    return TaskSpec("dense_pack.x86", (tensor(rows, reduction), weights, None, "float32"))


@pytest.fixture(scope="module")
def stock(target: Any) -> TaskSpec:
    return packed(16, 64, 64, target)


@pytest.fixture(scope="module")
def runner(target: Any, patient: TrialLimits) -> Iterator[TrialRunner]:
    with TrialRunner(str(target), 1, limits=patient) as made:
        yield made


@pytest.fixture(scope="module")
def bad_runner(target: Any, patient: TrialLimits, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrialRunner]:
    folder = tmp_path_factory.mktemp("templates")
    (folder / "bad_template.py").write_text(BAD_TEMPLATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        with TrialRunner(str(target), 1, limits=patient, modules=["bad_template"]) as made:
            yield made


def test_good_candidates_have_samples_and_were_checked(runner: TrialRunner, target: Any) -> None:
    space = compiler_in_use().task(GOOD, target)
    indices = [i for i in range(0, space.size, 7) if space.is_valid(i)][:6]
    results = runner.run([Candidate(GOOD, i) for i in indices], float("inf"))
    assert len(results) == len(indices)
    assert all(r.error is None and r.checked and r.build_seconds > 0 for r in results)
    assert {len(r.samples_us) for r in results if not r.stopped_early} == {TrialLimits().samples}
    assert all(len(r.samples_us) == 1 for r in results if r.stopped_early)


def test_the_default_of_a_stock_template_needs_no_index(runner: TrialRunner, stock: TaskSpec) -> None:
    (result,) = runner.run([Candidate(stock, None)], float("inf"))
    assert result.error is None and result.checked and 0 < result.median_us < 1e5


def test_a_candidate_far_behind_the_best_is_called_once(runner: TrialRunner, stock: TaskSpec) -> None:
    (result,) = runner.run([Candidate(stock, None)], 1e-6)
    assert result.stopped_early and len(result.samples_us) == 1


def test_settings_are_read_back(runner: TrialRunner) -> None:
    settings = runner.settings()
    assert settings.threads == settings.threads_effective == 1
    assert (settings.cache, settings.cache_mechanism, settings.executor) == ("hot", "repeat", "kernel")


def test_flushed_weights_make_a_large_product_slower(target: Any) -> None:
    large = Candidate(packed(1, 512, 512, target), None)  # its weights fit caches of their own of any processor
    hot_us: list[float] = []
    cold_us: list[float] = []
    with TrialRunner(str(target), 1, cache="hot") as hot, TrialRunner(str(target), 1, cache="cold") as cold:
        for _ in range(5):  # in turn, since others may use the machine
            for runner, medians_us in ((hot, hot_us), (cold, cold_us)):
                (result,) = runner.run([large], float("inf"))
                assert result.error is None
                medians_us.append(result.median_us)
        assert (hot.settings().cache, cold.settings().cache) == ("hot", "cold")
    assert min(cold_us) > min(hot_us)


def test_cold_trials_without_weights_flush_all_inputs(target: Any) -> None:
    left, right = ("TENSOR", (4, 32, 16), "float32"), ("TENSOR", (4, 32, 16), "float32")
    product = TaskSpec("batch_matmul.op_profiler", (left, right, (4, 32, 32), "float32", False, True))
    setup = WorkerSetup(
        target=str(target), threads=1, modules=(), memory_bytes=None, check=True, cache="cold", log="/dev/null"
    )
    worker = Worker(setup)
    assert worker.build(0, Candidate(product, None)).error is None
    built = worker.built[0]
    assert isinstance(built, Built) and built.flush is not None
    assert len(worker.measure(0, float("inf"), 3, 0.0, 1.5).samples_us) == 3


def test_candidates_are_compared_in_turns(runner: TrialRunner, stock: TaskSpec) -> None:
    results = runner.compare([Candidate(stock, None), Candidate(stock, None)], 5)
    assert [len(r.samples_us) for r in results] == [5, 5]


def test_the_vendors_kernel_is_timed_and_named(runner: TrialRunner, stock: TaskSpec) -> None:
    pytest.importorskip("torch")
    product = TaskSpec("batch_matmul.x86", (tensor(2, 8, 16), tensor(2, 8, 16), (2, 8, 8), "float32", 0, 1))
    rest = ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW8c", "NCHW8c", "float32")
    convolution = TaskSpec("conv2d_NCHWc.x86", (tensor(1, 1, 8, 8, 8), tensor(1, 1, 3, 3, 8, 8), *rest))
    for task, name in ((stock, "linear"), (product, "bmm"), (convolution, "conv2d")):
        (result,) = runner.compare([Candidate(task, VENDOR)], 3)
        assert result.error is None and result.kernel is not None and name in result.kernel


def test_each_way_to_fail_is_recorded_and_ends_nothing_else(bad_runner: TrialRunner) -> None:
    spec = TaskSpec("dense_bad.test", (4, 4, 8))
    usual = bad_runner.limits
    short = {  # what never ends takes as long as that
        "hang": dataclasses.replace(usual, build_seconds=1.0),
        "endless": dataclasses.replace(usual, run_seconds=1.0),
    }
    quick = [kind for kind in KINDS if kind not in short]
    candidates = {kind: Candidate(spec, number) for number, kind in enumerate(KINDS)}
    results = bad_runner.run([candidates[kind] for kind in [*quick, "good"]], float("inf"))
    found = dict(zip(quick, results))
    assert results[0].error is None and results[-1].error is None
    for kind, limits in short.items():
        bad_runner.limits = limits
        (found[kind],) = bad_runner.run([candidates[kind]], float("inf"))
        bad_runner.limits = usual
        (after,) = bad_runner.run([candidates["good"]], float("inf"))
        assert after.error is None
    assert found["wrong"].failure in (None, "wrong")  # no reference for a template of this project's tests
    assert found["crash"].failure == "crash" and "SIGABRT" in str(found["crash"].error)
    assert found["exit"].failure == "crash" and "exit code 3" in str(found["exit"].error)
    assert found["hang"].failure == "timeout" and "building" in str(found["hang"].error)
    assert found["endless"].failure == "timeout" and "running" in str(found["endless"].error)
    assert found["memory"].failure == "memory"
    assert found["invalid"].failure == "invalid" and "this schedule cannot be" in str(found["invalid"].error)
    assert all(r.samples_us == () for r in found.values() if r.error is not None)


def test_wrong_numbers_are_told(target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wrong_template.py").write_text(WRONG_TEMPLATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = TaskSpec("dense_wrong.test", (tensor(4, 8), tensor(6, 8)))
    with TrialRunner(str(target), 1, modules=["wrong_template"]) as runner:
        right, wrong, half = runner.run([Candidate(spec, kind) for kind in range(3)], float("inf"))
    assert right.error is None and right.checked
    assert wrong.failure == "wrong" and "the error is" in str(wrong.error) and wrong.samples_us == ()
    assert half.failure == "wrong" and "12 are not finite" in str(half.error)


SLOW_TEMPLATE = '''
"""A product whose space takes a while to make, and whose only knob says whether a build ends."""
import time
from op_profiler.compilers.tvm_build import load_tvm
tvm = load_tvm()
te, autotvm = tvm.te, tvm.autotvm

@autotvm.template("dense_slow.test")
def slow(m, n, k):
    cfg = autotvm.get_config()
    cfg.define_knob("ends", [1, 0])
    time.sleep(3.0 if getattr(cfg, "_collect", False) else 0.0 if cfg["ends"].val else 86400)
    a, b = te.placeholder((m, k), name="a"), te.placeholder((n, k), name="b")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[j, r], axis=r))
    return te.create_schedule(c.op), [c, a, b]
'''


def test_a_task_has_time_of_its_own_and_the_first_build_has_no_more_than_others(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slow_template.py").write_text(SLOW_TEMPLATE)
    monkeypatch.syspath_prepend(str(tmp_path))
    limits = TrialLimits(build_seconds=2.5, preparing_seconds=300.0)
    spec = TaskSpec("dense_slow.test", (4, 6, 8))
    with TrialRunner(str(target), 1, modules=["slow_template"], limits=limits, cores=1) as runner:
        hangs, ends = runner.run([Candidate(spec, 1), Candidate(spec, 0)], float("inf"))
    assert hangs.failure == "timeout" and "2.5 s while building" in str(hangs.error)
    assert ends.error is None


@pytest.mark.skipif(usable_cores() < 2, reason="one core")
def test_all_cores_build_though_what_is_timed_runs_on_one(target: Any, stock: TaskSpec) -> None:
    """Of the process that asks for it the model has been walked on one core before; workers time on one."""
    cores = available_cores()
    os.sched_setaffinity(0, cores[:1])
    with TrialRunner(str(target), 1) as runner:
        assert os.sched_getaffinity(0) == set(cores), "the fork server inherits it"
        assert len(runner._workers) == usable_cores()
        for _ in range(2):
            (worker,) = (holder for _, holder in runner._build([Candidate(stock, None)], {}, slot=0))
            assert os.sched_getaffinity(worker._process.pid or 0) == set(cores)
            assert runner.run([Candidate(stock, None)], float("inf"))[0].error is None
            assert os.sched_getaffinity(worker._process.pid or 0) == set(cores[:1])


def test_workers_that_cannot_start_are_an_error(target: Any) -> None:
    broken = TrialRunner(str(target), 1, modules=["no_such_module_anywhere"])
    with broken as runner, pytest.raises(MeasureError, match="could be started: .*No module named 'no_such_module"):
        runner.run([Candidate(GOOD, 0)], float("inf"))


def kill_workers(runner: TrialRunner) -> int:
    """Kill all that are idle, as the system does when memory runs out; how many there were."""
    workers = [worker._process for worker in runner._workers if worker is not None]
    processes = [process for process in workers if process.is_alive()]
    for process in processes:
        process.kill()
        process.join()
    return len(processes)


def test_workers_that_are_killed_while_they_are_idle_are_replaced(target: Any, stock: TaskSpec) -> None:
    candidates = [Candidate(stock, None)] * 4
    with TrialRunner(str(target), 1) as runner:
        uses: list[Callable[[], list[Any]]] = [
            lambda: runner.run(candidates, float("inf")),
            lambda: runner.compare(candidates[:2], 3),
        ]
        for use in uses * 2:
            assert all(result.error is None for result in use())
            assert kill_workers(runner) > 0
            settings = runner.settings()
            assert (settings.threads, settings.threads_effective) == (1, 1)
            assert kill_workers(runner) == 1


def test_what_a_killed_worker_had_built_is_built_again(
    target: Any, stock: TaskSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are killed when all is built and nothing was timed yet."""
    with TrialRunner(str(target), 1) as runner:
        build = runner._build
        killed: list[int] = []

        def built_and_killed(*arguments: Any, **options: Any) -> list[Any]:
            done = list(build(*arguments, **options))
            if len(killed) < 2:
                killed.append(kill_workers(runner))
            return done

        monkeypatch.setattr(runner, "_build", built_and_killed)
        for use in (
            lambda: runner.run([Candidate(stock, None)] * 3, float("inf")),
            lambda: runner.compare([Candidate(stock, None)] * 2, 3),
        ):
            killed.clear()
            assert all(result.error is None and result.samples_us for result in use())
            assert len(killed) == 2 and all(killed)


def test_a_candidate_that_no_process_survives_is_a_failure(
    target: Any, stock: TaskSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TrialRunner(str(target), 1) as runner:
        build = runner._build

        def built_and_killed(*arguments: Any, **options: Any) -> list[Any]:
            done = list(build(*arguments, **options))
            kill_workers(runner)
            return done

        monkeypatch.setattr(runner, "_build", built_and_killed)
        for results in (
            runner.run([Candidate(stock, None)], float("inf")),
            runner.compare([Candidate(stock, None)], 3),
        ):
            assert [result.failure for result in results] == ["crash"]


def test_no_process_is_left_behind(target: Any, stock: TaskSpec) -> None:
    import psutil

    with TrialRunner(str(target), 1) as runner:
        runner.run([Candidate(stock, None)] * 4, float("inf"))
        processes = [w._process.pid for w in runner._workers if w is not None]
    assert processes and not any(psutil.pid_exists(pid) for pid in processes)
