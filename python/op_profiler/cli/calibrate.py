"""``op-profiler calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from op_profiler import json_text
from op_profiler.addresses import without_password
from op_profiler.cli import options, values
from op_profiler.collection.sampling.request import CalibratedRequest, CalibrateRequest
from op_profiler.errors import EXIT_FAILURES_RECORDED, UsageError
from op_profiler.files import check_writable
from op_profiler.fleet.cluster_request import ClusterRequest
from op_profiler.measure.disturbance import disturbed_text
from op_profiler.options import OUTPUT, Only
from op_profiler.report.shared import about, show_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from op_profiler.collection.sampling.calibrate import CalibrationResult
    from op_profiler.dataset import Dataset

EXAMPLES = """Examples:

op-profiler calibrate                                  (three minutes; predict then reports times of this machine)

op-profiler calibrate --budget 10m --threads 1,2

op-profiler calibrate --target pynq --host 127.0.0.1 --device-key pynq     (a board)

op-profiler calibrate --share mine.parquet               (also writes a file for others; sends nothing)

op-profiler calibrate --cluster tcp://127.0.0.1:8786 --db postgresql://me@host/times     (every machine of a cluster)

If the command is interrupted, run it again to resume. Predictions also use everything that is collected into the same
dataset later.

Exit codes: those of sample; 5 if too little could be measured.
"""


def calibrate(
    context: typer.Context,
    request: CalibratedRequest,
    wanted: CalibrateRequest,
    machines: Annotated[ClusterRequest, Only("cluster", "needs")],
    share: Annotated[
        Path | None,
        typer.Option(
            help="Also write the calibration to this Parquet file, to which others can fit predictors. The file "
            "contains operators, times, processor and versions, but no names of hosts, users, paths or models. The "
            "command first prints the content of the file, and sends nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the most informative operators on this machine, so that predictions are for this machine from then on."""
    from op_profiler.collection.sampling.calibrate import calibrate as calibration
    from op_profiler.collection.supervisor import Collection
    from op_profiler.report.collection import Screen

    if share is not None and machines.cluster:
        raise UsageError("--share writes what one machine measured; leave out --cluster")
    check_writable({"--share": share})
    request = values.for_machines(context, wanted.of(request), machines)
    request.check_for_cluster() if machines.cluster else request.check()
    seconds, seed = wanted.budget_seconds, wanted.seed
    screen = Screen(quiet=quiet)
    if machines.cluster:
        from op_profiler.fleet import cluster, runs

        with cluster.Cluster(machines.cluster) as connected:
            found = runs.calibrate(connected, request, screen, budget_seconds=seconds, seed=seed, needs=machines.needs)
        if as_json:
            print(json_text.dumps([one.to_json() | {"host": machine.host} for machine, one in found], indent=1))
        elif not quiet:
            for machine, one in found:
                print(f"{machine.host}: {_sentence(one, request.db)}")
        _exit_of([one for _, one in found])
        return
    with Collection(request.db) as collection:
        done = calibration(request, collection, screen, budget_seconds=seconds, seed=seed)
        shared = None if share is None else _shared(collection.dataset, done, share, show=not (as_json or quiet))
    if as_json:
        print(json_text.dumps(done.to_json() | ({} if shared is None else {"shared": shared}), indent=1))
    elif not quiet:
        print(_sentence(done, request.db))
    _exit_of([done])


def _shared(dataset: Dataset, done: CalibrationResult, path: Path, *, show: bool) -> dict[str, Any]:
    """Print the content of the file to share, write the file, and return a JSON-serializable description of it."""
    from op_profiler.dataset.formats.shared import shared_rows, write_shared

    rows = shared_rows(dataset, done.device_key)
    if show:
        show_rows(rows)
    write_shared(rows, path)
    if show:
        print(f"written to {path}; nothing was sent. How to share it: docs/tutorials/predict.md")
    return {"file": str(path)} | about(rows)


def _sentence(done: CalibrationResult, db: str) -> str:
    place = without_password(db)
    text = (
        f"{done.operators} operators of {done.processor} ({done.target}) in {done.seconds:.0f} s: predictions are now "
        f"for this machine, and also use later results in {place}. {done.note} has the dataset's address"
    )
    if done.failed:
        text += f". {done.failed} measurements failed"
    if disturbed := disturbed_text(done.timings, done.disturbed):
        text += f". {disturbed}"
    if done.errors:
        text += f". {len(done.errors)} batches or operators could not be measured; the first: {done.errors[0]}"
    return text


def _exit_of(found: Sequence[CalibrationResult]) -> None:
    """Exit with code 1, as `sample` does, if a measurement failed, although predictions can be made."""
    if any(one.failed or one.errors for one in found):
        raise typer.Exit(EXIT_FAILURES_RECORDED)
