"""How close are networks on a processor that is unknown to the predictor, after a calibration of three minutes?

    python benchmarks/calibrate.py [--budget 3m] DB [DB ...]      (three minutes, and some seconds a network)
    python benchmarks/calibrate.py --calibration DB DB [DB ...]     (of an earlier calibration; stores nothing)

The included data of this processor is removed first, so the included predictor is that of the most similar other
processor. Each DB contains networks that were measured on this machine at each thread count by
``op_performance_collector.py --modelname NAME --schedules none --db DB``, or by ``compilers.py`` with
BENCHMARK_DATASETS=FOLDER. A network that is in several DBs was measured several times, because on a shared host one run
may be a third slower than another. `op-profiler calibrate` uses a separate dataset and a separate data folder, so no
time of these networks on this machine is known to it. It chooses operators by the networks of all processors with
included data, including this one, and by the operators that take most of their time.

Three predictors are compared: the included one, fitted to another machine; the one that `op-profiler predict` uses
after the calibration, fitted to the calibration and the included data of other processors; and one that is fitted to
the calibration only. Measured times are at the reference state of the machine.

Goal: whole networks 8 % off on average; operators above 20 us 12 %.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import math
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import at_most, every, provenance, run_command, store

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.prediction.latency.examples import Examples
    from op_profiler.prediction.latency.held_out import HeldOutNetwork
    from op_profiler.prediction.latency.operator_predictor import OperatorPredictor

_BUDGET = "3m"


def predictors(db: str) -> dict[str, OperatorPredictor]:
    """Who answers, by name, after a calibration into `db`."""
    from op_profiler.errors import DatasetError
    from op_profiler.prediction.latency.calibration import calibrated
    from op_profiler.prediction.latency.fit import fit
    from op_profiler.prediction.latency.open_predictor import examples_for, open_predictor
    from op_profiler.prediction.latency.steady_times import at_reference_state

    shipped = open_predictor()
    adapted = calibrated(lambda: shipped, None, print)
    if adapted is None:
        raise DatasetError("the calibration left nothing that can be used")
    alone = fit(at_reference_state(examples_for(db=db, device=None)), choice="xgboost", folds=3)
    return {"as_it_ships": shipped, "adapted": adapted, "calibration_alone": alone}


@contextlib.contextmanager
def without_this_processor(folder: Path) -> Iterator[None]:
    """Hide the included data of the processor from this process, as on a processor without included data.

    Args:
        folder: folder for links to the other included data.
    """
    from op_profiler import shipped
    from op_profiler.schedules.records import slug
    from op_profiler.targets.llvm.identity import processor_name

    ships, before = shipped.shipped_processors(), shipped._FOLDER
    (folder / "results").mkdir()
    for one in ships:
        if one.folder.name != slug(processor_name()):
            (folder / "results" / one.folder.name).symlink_to(one.folder)
    shipped._FOLDER = folder
    try:
        yield
    finally:
        shipped._FOLDER = before


def networks(db: str) -> Examples:
    """What was measured of networks on this machine under Relay."""
    from op_profiler.prediction.latency.open_predictor import examples_for
    from op_profiler.prediction.latency.steady_times import at_reference_state

    return at_reference_state(examples_for(db=address(db), device=None))


def calibration(earlier: str | None, budget: str, folder: str) -> str:
    """The dataset that predictions adapt to from now on: an earlier calibration, or one of now in a folder."""
    if earlier is None:
        db = f"sqlite:///{folder}/calibration.db"
        run_command(["calibrate", "--budget", budget, "--db", db])
        return db
    from op_profiler.prediction.latency.calibration import note_calibration

    examples = networks(earlier)
    db = address(earlier)
    note_calibration("llvm", db, examples.only_device.key)
    return db


def address(db: str) -> str:
    """Of a dataset that was given as an address or as a file."""
    return db if "://" in db else f"sqlite:///{Path(db).resolve()}"


def answers(predictor: OperatorPredictor, measured: list[Examples]) -> list[HeldOutNetwork]:
    """What it says of each network at each thread count; of several runs their geometric mean was measured."""
    import numpy as np

    from op_profiler.prediction.latency.held_out import predicted_networks

    runs: dict[tuple[str, int], list[HeldOutNetwork]] = {}
    for examples in measured:
        for found in predicted_networks(predictor, examples):
            said = found.prediction
            runs.setdefault((said.network.name, said.threads), []).append(found)

    def mean(of: list[HeldOutNetwork]) -> HeldOutNetwork:
        keys = [[operator.key for operator in one.prediction.network.operators] for one in of]
        places = [[one.index(key) for key in keys[0]] for one in keys]
        times = [np.log(one.operators_us[place]) for one, place in zip(of, places)]
        whole_us = float(np.exp(np.mean([np.log(one.measured_us) for one in of])))
        return dataclasses.replace(of[0], measured_us=whole_us, operators_us=np.exp(np.mean(times, axis=0)))

    return [mean(of) for of in runs.values()]


def rows_of(name: str, found: list[HeldOutNetwork]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row of each network, and one of them all with their operators; printed too."""
    import numpy as np

    from op_profiler.prediction.latency.held_out import HEAVY_US

    rows: list[dict[str, Any]] = []
    for one in found:
        said = one.prediction
        if not math.isfinite(said.total_us):
            continue
        row: dict[str, Any] = {
            "predictor": name,
            "network": said.network.name,
            "threads": said.threads,
            "measured_us": round(one.measured_us),
            "predicted_us": round(said.total_us),
            "error_percent": round(100 * (said.total_us / one.measured_us - 1), 1),
            "interval_holds": bool(said.low_us <= one.measured_us <= said.high_us),
        }
        rows.append(row)
        print(*row.values(), sep="\t", flush=True)
    size = np.abs([row["error_percent"] for row in rows])
    off = np.concatenate([np.abs(one.prediction.operators.latency_us / one.operators_us - 1) for one in found])
    heavy = np.concatenate([one.operators_us > HEAVY_US for one in found])
    estimated = heavy & np.isfinite(off)  # no number where a dtype was never measured, say
    whole = {
        "predictor": name,
        "networks_mean_percent": round(float(size.mean()), 1),
        "networks_median_percent": round(float(np.median(size)), 1),
        "networks_within_10_percent": round(100 * float(np.mean(size <= 10))),
        "networks_inside_interval_percent": round(100 * float(np.mean([row["interval_holds"] for row in rows]))),
        "networks": len(rows),
        "networks_without_total": len(found) - len(rows),
        f"operators_above_{HEAVY_US:.0f}_us_percent": round(100 * float(off[estimated].mean()), 1),
        "operators": int(heavy.sum()),
        "without_estimate": int((heavy & ~estimated).sum()),
    }
    print(", ".join(f"{key} {value}" for key, value in whole.items()), flush=True)
    return rows, whole


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Networks and operators without an estimate have no error, and are in no mean.
    """
    adapted = [row for row in tables.get("together", ()) if row["predictor"] == "adapted"]
    networks = [at_most(row["networks_mean_percent"], 8) for row in adapted]
    return every([*networks, *(at_most(row["operators_above_20_us_percent"], 12) for row in adapted)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", nargs="+", help="datasets with networks that were measured on this machine")
    parser.add_argument("--budget", default=_BUDGET, help="of the calibration")
    parser.add_argument("--calibration", help="dataset of an earlier calibration, in place of a new one")
    arguments = parser.parse_args()
    from op_profiler.prediction.latency.calibration import operators_in

    print(provenance())
    measured = [networks(db) for db in arguments.db]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_DATA_HOME"] = folder  # the note of the calibration is this benchmark's alone
        db = calibration(arguments.calibration, arguments.budget, folder)
        known = operators_in(networks(db))
        rows, together = [], []
        with without_this_processor(Path(folder)):
            who = predictors(db)
        for name, predictor in who.items():
            found, whole = rows_of(name, answers(predictor, measured))
            rows += found
            together.append(whole)
    (adapted,) = (whole for whole in together if whole["predictor"] == "adapted")
    headline = (
        f"after {arguments.budget} ({known} operators): networks {adapted['networks_mean_percent']} % off on average, "
        f"{adapted['networks_within_10_percent']} % of {adapted['networks']} within 10 %"
    )
    print(headline)
    store(
        __file__,
        headline,
        {"together": together, "networks": rows},
        whole=arguments.budget == _BUDGET and not arguments.calibration,
        inputs=arguments.db,
    )


if __name__ == "__main__":
    main()
