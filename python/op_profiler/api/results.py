"""Python functions on stored results: `compare`, `analyze`, `export`, `import_results`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from op_profiler.analysis.analyze import analyze as run
from op_profiler.analysis.request import AnalyzeRequest
from op_profiler.api.from_python import from_python, silent
from op_profiler.comparison.request import CompareRequest
from op_profiler.dataset.formats.request import ExportRequest, ImportRequest
from op_profiler.run import Run

if TYPE_CHECKING:
    from op_profiler.analysis.analyze import FactorAnalysis
    from op_profiler.comparison.result import Comparison
    from op_profiler.dataset.formats.format import Exported, Imported


@from_python
def compare(*, request: CompareRequest) -> Comparison:
    """Compare two runs: what became faster or slower, whether that is real, and what only one of them has.

    >>> import op_profiler
    >>> before, after = (
    ...     op_profiler.collect("mlp", threads=[1], label=label, db="sqlite:///mlp.db") for label in ("before", "after")
    ... )
    >>> found = op_profiler.compare(before, after, rerun=True, seconds=2)
    >>> [(row.name, row.threads) for run, row in found.rows][:1]  # the whole model comes first
    [(None, 1)]

    What `collect` returned is a run, too.

    Args:

    Returns:
        Operators and whole models of both, with the ratios of their times.

    Raises:
        OpProfilerError: there are no such runs, or they cannot be compared.
    """
    from op_profiler.comparison.compare import compare_runs

    sides: tuple[Any, ...] = (request.before, request.after)
    given = [one for one in sides if isinstance(one, Run)]
    if given:
        before, after = (one.model_key if isinstance(one, Run) else one for one in sides)
        request = dataclasses.replace(request, before=before, after=after, db=given[0].request.db)
    return compare_runs(request, silent)


@from_python
def analyze(*, request: AnalyzeRequest) -> FactorAnalysis:
    """Find how latency goes with each factor, and from where on more of it stops paying (the turnaround point).

    Factors of a schedule and settings are compared within an operator, sizes between operators.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> found = op_profiler.analyze(factors="flops,threads", db="sqlite:///mlp.db")
    >>> {one.factor for one in found.correlations} == {"flops", "threads"}
    True

    Args:

    Returns:
        Correlations by anchor and factor, turnaround points by operator, and those predicted for other operators.

    Raises:
        OpProfilerError: there is no such factor or anchor, or no measurement can be used.
    """
    request.check()
    return run(*request.read(silent), request.threshold)


@from_python
def export(path: str | Path, *, request: ExportRequest) -> Exported:
    """Write the dataset as one flat table, one row a measurement; or what of it fits into a format of others.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> op_profiler.export("mlp.csv", where="threads = 1", db="sqlite:///mlp.db").rows > 0
    True

    Args:
        path: file to write, or the folder of several.

    Returns:
        How many rows were written, and what of them did not fit.

    Raises:
        OpProfilerError: the dataset cannot be read, or its rows cannot be written so.
    """
    return request.write(Path(path))


@from_python
def import_results(file: str | Path, *, request: ImportRequest) -> Imported:
    """Take measurements of others into the dataset; what cannot be read or looks wrong is counted, never dropped.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> written = op_profiler.export("mlp.csv", db="sqlite:///mlp.db")
    >>> op_profiler.import_results("mlp.csv", db="sqlite:///copy.db").rows == written.rows
    True

    Args:
        file: to read.

    Returns:
        How many measurements were stored, and what became of the other rows.

    Raises:
        OpProfilerError: an option does not fit the format, or nothing in the file could be imported.
    """
    from op_profiler.dataset.formats.importing import refuse_nothing

    file = Path(file)
    done = request.read(file)
    refuse_nothing(done, file, request.format_of(file))
    return done
