"""A processor of which a few operators were measured: how far off is the rest, by how many they are?

    python benchmarks/new_processor.py [N ...]                (some minutes for each N; measures nothing)

Each processor that ships is taken for a new one in turn. Of what was sampled on it N operators are known; the predictor
is fitted to them and to what ships of the other processors, as `op-profiler predict` does after a calibration. Asked
are all other operators above 20 us: those of networks, and sampled ones. "Elsewhere": another processor has a time of
the same operator. "Fit": what the fit takes, which the first prediction after a calibration waits for once; there it
divides the operators in five for the held-out errors, here in two.

Goal: 12 % off from 200 operators.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from common import provenance, store

if TYPE_CHECKING:
    import numpy as np

    from op_profiler.predict.latency.examples import Examples

_COUNT = 200  # that our aim is for; without it nothing is stored
_HEAVY_US = 20.0


def errors_of(own: Examples, others: list[Examples], count: int) -> dict[str, Any]:
    """Mean absolute errors in percent of what is not among `count` sampled operators, by where it is known from."""
    import numpy as np

    from op_profiler.predict.latency.adapt import chosen_samples
    from op_profiler.predict.latency.fit import fit
    from op_profiler.predict.latency.predictor import query_of

    few = chosen_samples(own.where(own.sampled[own.model]), count)
    rest = own.where(~np.isin(own.operator, np.unique(few.operator)) & (own.latency_us > _HEAVY_US))
    started = time.monotonic()
    predictor = fit(few, others=others, folds=2)
    seconds = time.monotonic() - started
    found = predictor.predict(query_of(rest))
    errors = np.abs(found.latency_us / rest.latency_us - 1)
    network = ~rest.sampled[rest.model]
    keys = {one.operators[number].key for one in others for number in np.unique(one.operator)}
    elsewhere = np.array([operator.key in keys for operator in rest.operators])[rest.operator]
    inside = (found.low_us <= rest.latency_us) & (rest.latency_us <= found.high_us)
    return {
        "processor": own.devices[int(own.device[0])].processor,
        "operators_measured": count,
        "asked": len(rest),
        "all_percent": mean_percent(errors),
        "median_percent": round(100 * float(np.median(errors)), 1),
        "of_networks_percent": mean_percent(errors[network]),
        "sampled_percent": mean_percent(errors[~network]),
        "known_elsewhere_percent": mean_percent(errors[elsewhere]),
        "known_nowhere_percent": mean_percent(errors[~elsewhere]),
        "inside_interval_percent": mean_percent(inside),
        "fit_s": round(seconds, 1),
    }


def mean_percent(shares: np.ndarray) -> float | None:
    """One decimal; None where there are none."""
    return round(100 * float(shares.mean()), 1) if len(shares) else None


def main() -> None:
    counts = [int(count) for count in sys.argv[1:]] or [_COUNT]
    from op_profiler.predict.latency.open_predictor import shipped_examples
    from op_profiler.predict.latency.steady_times import steady

    print(provenance())
    ships = [steady(one) for one in shipped_examples()]
    rows = []
    for number, own in enumerate(ships):
        others = [one for at, one in enumerate(ships) if at != number]
        for count in counts:
            rows.append(errors_of(own, others, count))
            print(rows[-1], flush=True)
    errors = ", ".join(f"{row['all_percent']} %" for row in rows if row["operators_measured"] == _COUNT)
    headline = f"operators of a new processor after {_COUNT} of its operators: {errors} off, by processor"
    store(__file__, headline, {"errors": rows}, whole=_COUNT in counts)


if __name__ == "__main__":
    main()
