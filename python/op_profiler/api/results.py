"""Python functions on stored results: `compare`, `analyze`, `export`, `import_results`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    """Compare two runs: which operators became faster or slower, and which changes exceed the noise between runs.

    >>> import op_profiler
    >>> before, after = (
    ...     op_profiler.collect("mlp", threads=[1], label=label, db="sqlite:///mlp.db") for label in ("before", "after")
    ... )
    >>> found = op_profiler.compare(before, after, rerun=True, seconds=2)
    >>> [(row.name, row.threads) for run, row in found.rows][:1]  # the whole model comes first
    [(None, 1)]

    `before` and `after` may also be results of `collect`, as in the example.

    Args:

    Returns:
        The operators and whole models of both runs, with the changes of their times.

    Raises:
        OpProfilerError: a run does not exist, or the runs cannot be compared.
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
    """Report how latency correlates with each factor, and beyond which value of the factor no more time is saved.

    Factors of schedules and settings are compared within an operator; sizes are compared between operators. The
    turnaround point of a factor is its smallest value over which no larger value saves more than 5 % of the time.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> found = op_profiler.analyze(factors="flops,threads", db="sqlite:///mlp.db")
    >>> {one.factor for one in found.correlations} == {"flops", "threads"}
    True

    Args:

    Returns:
        Correlations by anchor and factor, turnaround points by operator, and predicted turnaround points for other
        operators.

    Raises:
        OpProfilerError: a factor or an anchor does not exist, or no measurement can be used.
    """
    from op_profiler.analysis.analyze import analyze as run

    request.check()
    return run(*request.read(silent), request.threshold)


@from_python
def export(path: str | Path, *, request: ExportRequest) -> Exported:
    """Write the dataset as one flat table with a row for each measurement, or in a format of another project.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> op_profiler.export("mlp.csv", where="threads = 1", db="sqlite:///mlp.db").rows > 0
    True

    Args:
        path: file to write, or folder for several files.

    Returns:
        Number of rows that were written, and what the format could not express.

    Raises:
        OpProfilerError: the dataset cannot be read, or its rows cannot be written in this format.
    """
    return request.write(Path(path))


@from_python
def import_results(file: str | Path, *, request: ImportRequest) -> Imported:
    """Add measurements from a file to the dataset; rows that cannot be read or look wrong are counted and reported.

    >>> import op_profiler
    >>> run = op_profiler.collect("mlp", threads=[1], db="sqlite:///mlp.db")
    >>> written = op_profiler.export("mlp.csv", db="sqlite:///mlp.db")
    >>> op_profiler.import_results("mlp.csv", db="sqlite:///copy.db").rows == written.rows
    True

    Args:
        file: file to read.

    Returns:
        Number of measurements that were stored, and counts of the other rows by reason.

    Raises:
        OpProfilerError: an option does not fit the format, or nothing in the file could be imported.
    """
    from op_profiler.dataset.formats.importing import refuse_nothing

    file = Path(file)
    done = request.read(file)
    refuse_nothing(done, file, request.format_of(file))
    return done
