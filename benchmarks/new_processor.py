"""How far off are predictions for a processor on which a few operators were measured, by their number?

    python benchmarks/new_processor.py [N ...]                (some minutes for each N; measures nothing)

Each processor with included data is treated as a new one in turn: only N of the operators sampled on it are known. They
are chosen as in a calibration, by their information about the networks of the other processors. The predictor is fitted
to them and to the included data of the other processors, as `op-profiler predict` does after a calibration. It predicts
all other operators above 20 us, in networks and sampled, and whole networks. "Elsewhere": the same operator was
measured on another processor. "Fit": duration of the fit, which the first prediction after a calibration includes once;
that fit is cross-validated with five parts of the operators, this one with two.

Goal: operators 12 % off from 200 operators, networks 8 %.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from common import at_most, every, provenance, store

if TYPE_CHECKING:
    import numpy as np
    from common import Tables

    from op_profiler.prediction.latency.examples import Examples

_COUNT = 200  # that our aim is for; without it nothing is stored
_HEAVY_US = 20.0
_LONG_US = 20_000.0  # calibrate leaves out what takes long to run once


def errors_of(own: Examples, others: list[Examples], count: int) -> dict[str, Any]:
    """Mean absolute errors in percent of what is not among `count` sampled operators, by where it is known from."""
    import numpy as np

    from op_profiler.prediction.latency.fit import fit
    from op_profiler.prediction.latency.held_out import predicted_networks
    from op_profiler.prediction.latency.operator_predictor import query_of

    few = chosen(own, others, count)
    rest = own.where(~np.isin(own.operator, np.unique(few.operator)) & (own.latency_us > _HEAVY_US))
    started = time.monotonic()
    predictor = fit(few, others=others, folds=2)
    seconds = time.monotonic() - started
    found = predictor.predict(query_of(rest))
    errors = np.abs(found.latency_us / rest.latency_us - 1)
    network = ~rest.sampled[rest.model]
    keys = {one.operators[number].key for one in others for number in np.unique(one.operator)}
    elsewhere = np.array([operator.key in keys for operator in rest.operators])[rest.operator]
    networks = list(predicted_networks(predictor, own.where(~own.sampled[own.model])))
    off = np.array([one.prediction.total_us / one.measured_us - 1 for one in networks])
    off = off[np.isfinite(off)]
    inside = (found.low_us <= rest.latency_us) & (rest.latency_us <= found.high_us)
    told = np.isfinite(errors)  # no number where a dtype was never measured
    return {
        "processor": own.only_device.processor,
        "operators_measured": count,
        "asked": len(rest),
        "without_estimate": int((~told).sum()),
        "all_percent": mean_percent(errors[told]),
        "median_percent": round(100 * float(np.median(errors[told])), 1),
        "of_networks_percent": mean_percent(errors[told & network]),
        "sampled_percent": mean_percent(errors[told & ~network]),
        "known_elsewhere_percent": mean_percent(errors[told & elsewhere]),
        "known_nowhere_percent": mean_percent(errors[told & ~elsewhere]),
        "inside_interval_percent": mean_percent(inside[told]),
        "networks": len(off),
        "networks_without_total": len(networks) - len(off),
        "network_percent": mean_percent(np.abs(off)),
        "network_median_percent": round(100 * float(np.median(np.abs(off))), 1),
        "networks_within_10_percent": mean_percent(np.abs(off) < 0.1),
        "fit_s": round(seconds, 1),
    }


def chosen(own: Examples, others: list[Examples], count: int) -> Examples:
    """The measurements of those sampled operators that tell most about the networks of others."""
    import numpy as np

    from op_profiler.prediction.latency.design import most_informative, of_networks
    from op_profiler.prediction.latency.open_predictor import open_predictor
    from op_profiler.prediction.latency.operator_predictor import query_of

    pool = own.where(own.sampled[own.model] & (own.latency_us < _LONG_US))
    single = pool.where(pool.threads == 1)
    used, first = np.unique(single.operator, return_index=True)
    candidates = query_of(single).take(first)
    known = candidates.has_loops
    wanted, weight = of_networks(others)
    device = others[0].only_device
    kernels = open_predictor(device=device.key).base.kernels
    assert kernels is not None, "the included data has loops"
    taken = most_informative(candidates.take(known), wanted, weight, kernels, count)
    return pool.where(np.isin(pool.operator, used[known][taken]))


def mean_percent(shares: np.ndarray) -> float | None:
    """One decimal; None where there are none."""
    return round(100 * float(shares.mean()), 1) if len(shares) else None


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    rows = [row for row in tables.get("errors", ()) if row["operators_measured"] == _COUNT]
    operators = [at_most(row["all_percent"], 12) for row in rows]
    return every([*operators, *(at_most(row["network_percent"], 8) for row in rows)])


def main() -> None:
    counts = [int(count) for count in sys.argv[1:]] or [_COUNT]
    from op_profiler.prediction.latency.open_predictor import shipped_examples
    from op_profiler.prediction.latency.steady_times import at_reference_state

    print(provenance())
    ships = [at_reference_state(one) for one in shipped_examples()]
    rows = []
    for number, own in enumerate(ships):
        others = [one for at, one in enumerate(ships) if at != number]
        for count in counts:
            rows.append(errors_of(own, others, count))
            print(rows[-1], flush=True)
    goal = [row for row in rows if row["operators_measured"] == _COUNT]
    operators, networks = (", ".join(f"{row[name]} %" for row in goal) for name in ("all_percent", "network_percent"))
    headline = f"a new processor after {_COUNT} of its operators: others {operators} off, networks {networks}"
    store(__file__, headline, {"errors": rows}, whole=_COUNT in counts)


if __name__ == "__main__":
    main()
