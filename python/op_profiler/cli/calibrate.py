"""``op-profiler calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from op_profiler import json_text
from op_profiler.cli import options
from op_profiler.dataset import DEFAULT_DB

if TYPE_CHECKING:
    from op_profiler.predict.latency.examples import Examples

EXAMPLES = """Examples:

op-profiler calibrate                                  (three minutes; then predict answers for this machine)

op-profiler calibrate --budget 10m --threads 1,2

op-profiler calibrate --target pynq --host 127.0.0.1 --device-key pynq     (a board)

The same command goes on where it was interrupted. What is collected into the same dataset later counts too.

Exit codes: as those of sample; 5 where too little could be measured.
"""


def calibrate(
    budget: Annotated[str, typer.Option(help="Time to spend: 90s, 3m, 1h.", rich_help_panel="How much")] = "3m",
    rounds: Annotated[int, typer.Option(help="Times that each operator is run.", rich_help_panel="How much")] = 7,
    seed: Annotated[int, typer.Option(min=0, help="Of the operators.", rich_help_panel="How much")] = 0,
    target: options.Target = "llvm",
    threads: options.Threads = None,
    remeasure: options.Remeasure = "",
    host: options.Host = None,
    port: options.Port = None,
    device_key: options.DeviceKey = None,
    db: options.Db = DEFAULT_DB,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Measure the operators that tell most about this machine; predictions are for it from then on."""
    from op_profiler.building.request import BuildRequest
    from op_profiler.cli import values
    from op_profiler.collection.request import CollectRequest, Measuring
    from op_profiler.collection.sampling import run
    from op_profiler.collection.sampling.telling import telling_batches
    from op_profiler.collection.supervisor import Collection
    from op_profiler.dataset.engine import absolute_address
    from op_profiler.errors import DatasetError
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.predict.latency.calibration import FEWEST, note_calibration, operators_in
    from op_profiler.report.collection import Screen
    from op_profiler.targets.target import kind_of

    run.check_amount(None, rounds)
    place = values.parse_place(host, port, device_key, kind_of(target).name)
    build = BuildRequest(
        model=ModelRequest(source="sample", name=""),
        target=target,
        place=place,
        threads=values.thread_counts(threads, target, place),
        schedules="none",
    )
    request = CollectRequest(build=build, measuring=Measuring(rounds=rounds, remeasure=remeasure), db=db)
    request.check()
    seconds = values.parse_duration("--budget", budget)
    with Collection(db) as collection:
        report = run.measure_batches(
            telling_batches(seed), request, collection, Screen(quiet=quiet), count=None, budget_seconds=seconds
        )
    examples = _measured(db, target, place is None)
    measured = operators_in(examples)
    if measured < FEWEST:
        reasons = [f"{count} measurements left out: {reason}" for reason, count in examples.left_out.items()]
        why = "; ".join([*report.errors[:3], *reasons])
        raise DatasetError(
            f"{measured} operators can be used, and {FEWEST} is the least. {why}. Give more time with --budget, or "
            "measure again on a quiet machine: op-profiler calibrate --remeasure noisy"
        )
    device = examples.devices[int(examples.device[0])]
    note = note_calibration(target, absolute_address(db), device.key)
    if as_json:
        found = {"operators": measured, "device_key": device.key, "seconds": report.seconds, "note": str(note)}
        print(json_text.dumps(found, indent=1))
    elif not quiet:
        print(
            f"{measured} operators of {device.processor} ({device.target}) in {report.seconds:.0f} s: predictions are "
            f"for this machine from now on, and learn from what is collected into {db}. {note} says so"
        )


def _measured(db: str, target: str, here: bool) -> Examples:
    """All that the dataset holds of the machine; of a board that of the one with most measurements of its target."""
    from op_profiler.predict.latency.calibration import is_here
    from op_profiler.predict.latency.examples import load_examples
    from op_profiler.targets.target import kind_of

    kind = kind_of(target)
    examples = load_examples(db=db)
    fitting = [d for d in examples.devices if d.kind == kind.name and (not (here and kind.on_host) or is_here(d))]
    found = [examples.of_device(device.key) for device in fitting]
    return max(found, key=len, default=examples.where(examples.device < 0))
