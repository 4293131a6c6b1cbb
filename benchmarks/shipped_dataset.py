"""How many operators do the included datasets contain, and in which states of the machine were they measured?

    python benchmarks/shipped_dataset.py [DB]         (default: of every processor with included data; seconds)

The reference kernels are two kernels that never change (`op_profiler.measure.steadiness`). The script prints their
times divided by their medians, for all runs of networks and all batches of sampled operators.

If machines of one hardware model are included as one device, operators that were sampled on two of them show the
difference between the machines: the ratio over all operators, and the remaining difference of single operators, which
no predictor can know.

Goal: the loops of at least 99 % of the operators are stored.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import at_least, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.prediction.latency.examples import Examples


def _processor(examples: Examples) -> str:
    return examples.only_device.processor


def contents(examples: Examples) -> dict[str, Any]:
    """How much there is of one processor; the names of its networks are printed."""
    import numpy as np

    sampled = examples.sampled[examples.model]
    of_samples, distinct = (np.unique(examples.operator[rows]) for rows in (sampled, slice(None)))
    networks = sorted({examples.models[model] for model in np.unique(examples.model[~sampled])})
    print(f"{len(networks)} networks: {', '.join(networks)}")
    print(f"left out: {examples.left_out}")
    loops = examples.loops
    return {
        "networks": len(networks),
        "sampled_operators": len(of_samples),
        "distinct_operators": len(distinct),
        "measurements": len(examples),
        "loops_told": 0 if loops is None else int(np.isfinite(loops[distinct]).all(axis=1).sum()),
    }


def states(examples: Examples) -> list[dict[str, Any]]:
    """A row for each kernel of the probe and thread count; printed in full."""
    import numpy as np

    from op_profiler.measure.steadiness import PROBE_NAMES
    from op_profiler.prediction.latency.steady_times import FARTHEST

    found = []
    print("the probe over its median       runs    10 %    50 %    90 %    99 %  beyond what is learned from")
    for threads in np.unique(examples.threads):
        mine = examples.threads == threads
        _, first = np.unique(examples.model[mine], return_index=True)
        gauge = examples.reference_us[mine][first]
        gauge = gauge[np.isfinite(gauge).all(axis=1)]
        for name, over in zip(PROBE_NAMES, (gauge / np.median(gauge, axis=0)).T, strict=True):
            parts = "".join(f"{part:>8.2f}" for part in np.quantile(over, [0.1, 0.5, 0.9, 0.99]))
            beyond = np.mean(np.abs(np.log(over)) > np.log(FARTHEST))
            print(f"{name:12} {threads} thread(s) {len(over):>9}{parts}  {beyond:.0%}")
            part = round(float(np.quantile(over, 0.9)), 2)
            found.append({"kernel": name, "threads": int(threads), "part_90_percent": part})
    return found


def machines(file: Path) -> list[dict[str, Any]]:
    """Two machines of a kind beside each other: a row a thread count, for times as they were measured, and for those at
    the reference state of the machine. Empty where there is one machine."""
    import numpy as np

    from op_profiler.dataset.formats.parquet import parquet_rows
    from op_profiler.prediction.latency.examples import COLUMNS, examples_of, load_examples
    from op_profiler.prediction.latency.steady_times import at_reference_state

    apart = examples_of(parquet_rows(file, COLUMNS))
    _, first = np.unique(apart.model, return_index=True)
    machine = apart.device[first]  # by model; the rows, and so the models, are in the same order below
    together = load_examples(file=file)
    rows = []
    for state, examples in (("as measured", together), ("at the reference state", at_reference_state(together))):
        for threads in np.unique(examples.threads):
            mine = (examples.threads == threads) & examples.sampled[examples.model]
            operator, of = examples.operator[mine], machine[examples.model[mine]]
            us = examples.latency_us[mine]
            both = np.intersect1d(operator[of == 0], operator[of == 1])
            if not len(both):
                continue
            medians = ([np.median(us[(operator == one) & (of == number)]) for one in both] for number in (0, 1))
            ratio = np.log(np.divide(*reversed(list(medians))))
            beside = np.abs(np.expm1(ratio - np.median(ratio)))
            rows.append(
                {
                    "processor": _processor(together),
                    "times": state,
                    "threads": int(threads),
                    "operators": len(both),
                    "second_machine_slower_percent": round(100 * float(np.expm1(np.median(ratio))), 1),
                    "median_beside_that_percent": round(100 * float(np.median(beside)), 1),
                    "mean_beside_that_percent": round(100 * float(beside.mean()), 1),
                }
            )
            print(", ".join(f"{name} {value}" for name, value in rows[-1].items()))
    return rows


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_least(row["loops_told"], 0.99 * row["distinct_operators"]) for row in tables.get("contents", ()))


def main() -> None:
    from op_profiler.prediction.latency.open_predictor import examples_for
    from op_profiler.shipped import shipped_processors

    db = sys.argv[1] if len(sys.argv) > 1 else None
    print(provenance())
    held, probes = [], []
    for device in [one.folder.name for one in shipped_processors()] if db is None else [None]:
        examples = examples_for(db=db, device=device, note=print)
        processor = _processor(examples)
        print(f"\n{processor}")
        held.append({"processor": processor} | contents(examples))
        print(", ".join(f"{name} {value}" for name, value in held[-1].items()))
        probes += [{"processor": processor} | row for row in states(examples)]
    ships = [one.operators for one in shipped_processors() if one.operators is not None and db is None]
    tables = {"contents": held, "probe_over_its_median": probes}
    if between := [row for file in ships for row in machines(file)]:
        tables["machines_of_one_kind"] = between
    headline = "; ".join(
        f"{row['processor']}: {row['networks']} networks, {row['sampled_operators']:,} sampled operators, "
        f"{row['measurements']:,} measurements"
        for row in held
    )
    store(__file__, headline, tables, whole=db is None)


if __name__ == "__main__":
    main()
