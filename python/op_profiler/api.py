"""What the commands do, for programs. Import it from the package: ``from op_profiler import collect, sample, corun``.

A function takes the options that decide what is measured and returns what the command would print. The command line has
more of them (boards, sweeps, searches, ready-made plans). A model is ``source:name``, the path of a file, or a name of
the source ``local``. Errors that a user can act on are `op_profiler.errors.OpProfilerError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.compilers import DEFAULT_COMPILER
from op_profiler.dataset import DEFAULT_DB
from op_profiler.frontends import FRONTENDS, source_and_name
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.measure.measurement import Precision
from op_profiler.schedules.records import AUTO, NONE
from op_profiler.targets.target import kind_of

if TYPE_CHECKING:
    from op_profiler.collection.sampling.run import SampleReport
    from op_profiler.collection.summary import ModelReport
    from op_profiler.comparison.result import Comparison
    from op_profiler.parallel.corun.comparison import CorunResult


def collect(
    model: str,
    *,
    batch_size: int = 1,
    sequence_length: int | None = None,
    target: str = "llvm",
    compiler: str = DEFAULT_COMPILER,
    precision: Precision = "float32",
    threads: Sequence[int] | None = None,
    schedules: str = AUTO,
    label: str = "",
    db: str = DEFAULT_DB,
) -> ModelReport:
    """Measure every operator of a model, as the compiler emits it, and the whole model beside them.

    What the dataset holds already is not measured again. Progress is not shown; what fails is said on stderr.

    >>> import op_profiler
    >>> report = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> [operator.anchor for operator, calls in report.operators]
    ['nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.contrib_dense_pack', 'nn.softmax']
    >>> report.threads[1].timing.whole_model.median_us > 0
    True

    Args:
        sequence_length: tokens of a language model; None for the source's default.
        target: ``llvm`` (this processor), ``cuda``, or a TVM target.
        compiler: what makes the kernels (``op-profiler collect --help`` lists them).
        precision: ``float32``, ``float16`` or ``int8``.
        threads: thread counts to measure at; None for a few from one to all cores.
        schedules: schedule records to compile with: ``auto`` (those of this processor), ``none``, or a folder.
        label: name of the run, which keeps it beside others of the same model.
        db: SQLAlchemy address of the dataset; it is made where it does not exist.

    Returns:
        Operators, times in microseconds by thread count, and `error` where the model has none, or not all of them.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used.
    """
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    source, name = source_and_name(model)
    build = BuildRequest(
        model=ModelRequest(source=source, name=name, batch_size=batch_size, sequence_length=sequence_length),
        target=target,
        compiler=compiler,
        precision=precision,
        threads=_counts(threads, target),
        schedules=schedules,
    )
    with Collection(db) as collection:
        return collection.run(
            FRONTENDS.get(source), [CollectRequest(build=build, db=db, label=label)], Screen(quiet=True)
        )[0]


def compare(
    before: str,
    after: str,
    *,
    model: str | None = None,
    rerun: bool = False,
    seconds: float = 60.0,
    db: str = DEFAULT_DB,
) -> Comparison:
    """Compare two runs: what became faster or slower, whether that is real, and what only one of them has.

    >>> import op_profiler
    >>> for label in ("before", "after"):
    ...     report = op_profiler.collect("mlp", threads=[1], label=label, db="sqlite:///mlp.db")
    >>> found = op_profiler.compare("before", "after", rerun=True, seconds=2, db="sqlite:///mlp.db")
    >>> [(row.name, row.threads) for run, row in found.rows][:1]  # the whole model comes first
    [(None, 1)]

    Args:
        before, after: each the file or address of a dataset, or the label or key of a run in `db`.
        model: a name, source:name or key; None: all models that both have.
        rerun: measure both again, in turns, on this machine.
        seconds: to measure each model, at most; for `rerun`.
        db: as for `collect`.

    Raises:
        OpProfilerError: there are no such runs, or they cannot be compared.
    """
    from op_profiler.comparison.compare import compare_runs

    return compare_runs(before, after, db=db, model=model, rerun=rerun, seconds=seconds, announce=lambda step: None)


def sample(
    count: int,
    *,
    kinds: Sequence[str] = (),
    seed: int = 0,
    rounds: int = 21,
    target: str = "llvm",
    compiler: str = DEFAULT_COMPILER,
    threads: Sequence[int] | None = None,
    schedules: str = NONE,
    db: str = DEFAULT_DB,
) -> SampleReport:
    """Measure operators that no model brought along, drawn at random, in networks made of them.

    A second call with the same arguments goes on where the first was interrupted.

    >>> import op_profiler
    >>> report = op_profiler.sample(10, kinds=["softmax"], rounds=3, threads=[1], db="sqlite:///sampled.db")
    >>> report.operators >= 10, report.errors
    (True, [])

    Args:
        count: operators to measure in all; whole batches are measured, so there may be a few more.
        kinds: of operators (``op-profiler sample --kinds list``), ``all`` among them; empty for the usual ones.
        seed: of everything that is drawn.
        rounds: times that each operator is run, 3 or more.
        target, compiler, threads, schedules, db: as for `collect`.

    Raises:
        OpProfilerError: the request cannot work, or the dataset cannot be used.
    """
    from op_profiler.collection.sampling import run
    from op_profiler.collection.sampling.draw import Draw
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    run.check_amount(count, rounds)
    build = BuildRequest(
        model=ModelRequest(source="sample", name=""),
        target=target,
        compiler=compiler,
        threads=_counts(threads, target),
        schedules=schedules,
    )
    request = CollectRequest(build=build, measuring=Measuring(rounds=rounds, energy="none"), db=db)
    batches = Draw(label=f"draw{seed}", seed=seed, kinds=tuple(kinds)).batches()
    with Collection(db) as collection:
        return run.measure_batches(batches, request, collection, Screen(quiet=True), count=count, budget_seconds=None)


def corun(
    *models: str,
    compiler: str = DEFAULT_COMPILER,
    policy: str = "auto",
    cores: int | None = None,
    batch_size: int = 1,
    rounds: int = 40,
    schedules: str = AUTO,
) -> CorunResult:
    """Run the operators of one model or several side by side on this processor: plan it, measure it beside one after
    the other, and compare the outputs. It needs a C compiler.

    >>> import op_profiler
    >>> result = op_profiler.corun("lstm", policy="greedy", rounds=5)
    >>> result.outputs_agree
    True
    >>> sorted(result.to_json())[-3:]
    ['stages', 'tried', 'tuned_stages']

    Args:
        compiler: as for `collect`; one for all calls in a process.
        policy: how to plan (``op-profiler corun --help`` lists them).
        cores: that the plan may use; None for all.
        rounds: how often the plan and sequential are timed, in turn.
        schedules: as for `collect`.

    Raises:
        OpProfilerError: a model, a policy or a setting stands in the way; or a kernel fails, with its name.
    """
    from op_profiler.parallel.corun.request import CorunRequest
    from op_profiler.parallel.corun.run import corun_on_one_target

    named = map(source_and_name, models)
    request = CorunRequest(
        models=tuple(ModelRequest(source=source, name=name, batch_size=batch_size) for source, name in named),
        compiler=compiler,
        policy=policy,
        threads=cores,
        schedules=schedules,
        rounds=rounds,
    )
    request.check()
    return corun_on_one_target(request, lambda step: None)


def _counts(threads: Sequence[int] | None, target: str) -> tuple[int, ...]:
    return kind_of(target).default_thread_counts(None) if threads is None else tuple(threads)
