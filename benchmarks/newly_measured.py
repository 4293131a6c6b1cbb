"""How far off is the included predictor on networks that were measured after it was fitted?

    python benchmarks/newly_measured.py DB     (a dataset that collector/drawn_plan.sh made, merged; a minute)

The networks are drawn (``collector/drawn_networks``): nobody chose them, and the predictor was not fitted to them. They
are predicted as for a user without a calibration: on another day, perhaps on another machine of the same hardware
model, and in another state of a shared host. The result lists the peaks of this host next to those of the machine of
the included data. Disturbed times are left out, as in all benchmarks. `held_out_models.py` is easier for the predictor:
its held-out networks were measured in the same period as the data of the fit. Networks whose errors were shown belong
to the development set from then on.

Goal: networks 5 % off on average, 90 % within 10 %, none over 25 %; intervals that hold 88 to 92 %.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_least, at_most, every, provenance, store
from network_sets_common import spend

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.prediction.latency.held_out import HeldOutNetwork


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None without networks."""
    rows = list(tables.get("networks", ()))
    if not rows:
        return None
    errors = [abs(row["error_percent"]) for row in rows]
    holds = 100 * sum(row["interval_holds"] for row in rows) / len(rows)
    return every(
        [
            at_most(sum(errors) / len(errors), 5),
            at_least(sum(error <= 10 for error in errors) / len(errors), 0.9),
            at_most(max(errors), 25),
            88 <= holds <= 92,
        ]
    )


def network_row(found: HeldOutNetwork) -> dict[str, Any]:
    """Measured and predicted time of one network at one thread count."""
    from op_profiler.prediction.latency.held_out import HEAVY_US

    told = found.prediction
    heavy = found.operators_us > HEAVY_US
    off = np.abs(told.operators.latency_us / found.operators_us - 1)[heavy]
    return {
        "network": told.network.name,
        "threads": told.threads,
        "measured_us": round(found.measured_us),
        "predicted_us": round(told.total_us),
        "error_percent": round(100 * (told.total_us / found.measured_us - 1), 1),
        "interval_holds": bool(told.low_us <= found.measured_us <= told.high_us),
        "half_width_percent": round(100 * (told.high_us / told.total_us - 1), 1),
        "operators_above_20_us_off_percent": round(100 * float(np.nanmean(off)), 1) if off.size else None,
    }


def summaries(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows at each thread count together."""
    found = []
    for threads in sorted({row["threads"] for row in rows}):
        mine = [row for row in rows if row["threads"] == threads]
        errors = np.array([row["error_percent"] for row in mine])
        found.append(
            {
                "threads": threads,
                "networks": len(mine),
                "mean_error_percent": round(float(np.abs(errors).mean()), 1),
                "within_10_percent": round(100 * float((np.abs(errors) <= 10).mean())),
                "worst_percent": round(float(np.abs(errors).max()), 1),
                "bias_percent": round(float(errors.mean()), 1),
                "inside_interval_percent": round(100 * sum(row["interval_holds"] for row in mine) / len(mine)),
                "median_half_width_percent": round(float(np.median([row["half_width_percent"] for row in mine])), 1),
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("db", type=Path, help="a dataset of this processor: a SQLite file")
    arguments = parser.parse_args()
    from op_profiler.prediction.latency import predictor_files
    from op_profiler.prediction.latency.examples import load_examples
    from op_profiler.prediction.latency.held_out import predicted_networks
    from op_profiler.prediction.latency.open_predictor import shipped_processor, with_loops
    from op_profiler.prediction.latency.steady_times import at_reference_state

    print(provenance())
    examples = at_reference_state(load_examples(db=f"sqlite:///{arguments.db.resolve()}", device=None, note=print))
    device = examples.only_device
    examples = with_loops(examples, device.target, print)
    file = shipped_processor(device.processor).predictor
    if file is None:
        sys.exit(f"no predictor is included for {device.processor}")
    fitted = predictor_files.load(file)
    spend(device.processor, (name for name, sampled in zip(examples.models, examples.sampled) if not sampled))
    rows = [network_row(found) for found in predicted_networks(fitted, examples)]
    rows.sort(key=lambda row: -abs(row["error_percent"]))
    peaks = [
        {"machine": name, **{kind: round(found[kind][0]) for kind in ("flops_per_us", "bytes_per_us")}}
        for name, found in (("of the included data", fitted.device.peaks), ("now", device.peaks))
        if found
    ]
    for row in (*rows, *summaries(rows), *peaks):
        print(", ".join(f"{name} {value}" for name, value in row.items()))
    parts = [
        f"{one['networks']} networks at {one['threads']} thread{'s' * (one['threads'] > 1)} "
        f"{one['mean_error_percent']} % off on average, {one['within_10_percent']} % within 10 %, intervals hold "
        f"{one['inside_interval_percent']} %"
        for one in summaries(rows)
    ]
    headline = f"{device.processor}, networks drawn after the included predictor was fitted: {'; '.join(parts)}"
    print(headline)
    tables = {"by_threads": summaries(rows), "networks": rows, "peaks_at_one_thread": peaks}
    store(__file__, headline, tables, whole=True, inputs=[str(arguments.db)])


if __name__ == "__main__":
    main()
