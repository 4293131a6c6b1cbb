"""What the dataset that ships holds, and in which states of the machine it was measured.

    python benchmarks/shipped_dataset.py [DB]         (default: the dataset that ships; seconds)

The steadiness probe is two kernels that never change (`op_profiler.measure.steadiness`). Printed is how long
they took over their median, of all runs of networks and of batches of sampled operators.
"""

from __future__ import annotations

import sys

from common import provenance, store


def main() -> None:
    import numpy as np

    from op_profiler.measure.steadiness import PROBE_NAMES
    from op_profiler.predict.latency.open_predictor import examples_for
    from op_profiler.predict.latency.steady_times import FARTHEST

    examples = examples_for(db=sys.argv[1] if len(sys.argv) > 1 else None, device=None)
    sampled = examples.sampled[examples.model]
    operators = [len(np.unique(examples.operator[rows])) for rows in (sampled, slice(None))]
    networks = sorted({examples.models[model] for model in np.unique(examples.model[~sampled])})
    print(provenance())
    print(f"{len(networks)} networks: {', '.join(networks)}")
    print(f"{operators[0]} sampled operators, {operators[1]} distinct ones in all, {len(examples)} measurements")
    print(f"left out: {examples.left_out}")
    contents = {
        "networks": len(networks),
        "sampled_operators": operators[0],
        "distinct_operators": operators[1],
        "measurements": len(examples),
    }
    states = []
    print("\nthe probe over its median     runs    10 %    50 %    90 %    99 %  beyond what is learned from")
    for threads in np.unique(examples.threads):
        mine = examples.threads == threads
        _, first = np.unique(examples.model[mine], return_index=True)
        gauge = examples.gauge_us[mine][first]
        gauge = gauge[np.isfinite(gauge).all(axis=1)]
        for name, over in zip(PROBE_NAMES, (gauge / np.median(gauge, axis=0)).T, strict=True):
            parts = "".join(f"{part:>8.2f}" for part in np.quantile(over, [0.1, 0.5, 0.9, 0.99]))
            beyond = np.mean(np.abs(np.log(over)) > np.log(FARTHEST))
            print(f"{name:12} {threads} thread(s) {len(over):>7}{parts}  {beyond:.0%}")
            part = round(float(np.quantile(over, 0.9)), 2)
            states.append({"kernel": name, "threads": int(threads), "part_90_percent": part})
    headline = f"{len(networks)} networks, {operators[0]:,} sampled operators, {len(examples):,} measurements"
    tables = {"contents": [contents], "probe_over_its_median": states}
    store(__file__, headline, tables, whole=len(sys.argv) == 1)


if __name__ == "__main__":
    main()
