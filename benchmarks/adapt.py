"""A new device from few samples: error against the number of operators that were measured on it.

    python benchmarks/adapt.py sqlite:///adapt.db        (the dataset to sample into; resumable)

The new device is this processor with code for another one (llvm -mcpu=haswell: vectors of half the length and fewer
registers), on which some hundred operators are sampled. The predictor that ships is adapted to N of them; the others
are what it is tested on. Beside it: the predictor as it ships, and one that was fitted to the N operators alone.
"""

from __future__ import annotations

import math
import sys

from common import provenance, run_command, store

_TARGET = "llvm -mcpu=haswell"
_COUNTS = (10, 50, 200)
_SEEDS = range(8)
_SAMPLED = 420
_HEAVY_US = 20.0
_ESTIMATES = ("adapted", "those_alone", "as_it_ships", "inside_interval")


def main() -> None:
    import numpy as np

    from op_profiler.errors import DatasetError
    from op_profiler.predict.latency.adapt import adapted, chosen_samples
    from op_profiler.predict.latency.fit import fit
    from op_profiler.predict.latency.open_predictor import examples_for, open_predictor
    from op_profiler.predict.latency.predictor import query_of
    from op_profiler.predict.latency.steady_times import steady

    if len(sys.argv) != 2:
        sys.exit(__doc__)
    db = sys.argv[1]
    run_command(["sample", "--count", str(_SAMPLED), "--rounds", "15", "--seed", "5", "--target", _TARGET, "--db", db])
    print(provenance())
    examples = steady(examples_for(db=db, device=None))
    source = open_predictor()
    print(f"# {len(np.unique(examples.operator))} operators on {examples.devices[int(examples.device[0])].target}")
    print(f"operators above {_HEAVY_US:.0f} us that were not among the N: MAPE, mean and standard deviation over")
    print(f"{len(_SEEDS)} choices of the N")
    print(f"{'N':>4} {'adapted':>15} {'N alone':>15} {'as it ships':>15} {'in 90 % interval':>17}")
    rows = []
    for count in _COUNTS:
        figures = []
        for seed in _SEEDS:
            few = chosen_samples(examples, count, seed=seed)
            rest = examples.where(~np.isin(examples.operator, np.unique(few.operator)))
            rest = rest.where(rest.latency_us > _HEAVY_US)
            query = query_of(rest)
            found = adapted(source, few).predict(query)
            shipped = source.predict(query)
            try:
                alone = fit(few, choice="xgboost", folds=3).predict(query).latency_us
            except DatasetError:  # too few to fit anything to
                alone = np.full(len(rest), np.nan)
            errors = [np.abs(e / rest.latency_us - 1).mean() for e in (found.latency_us, alone, shipped.latency_us)]
            inside = ((found.low_us <= rest.latency_us) & (rest.latency_us <= found.high_us)).mean()
            figures.append([*errors, inside])
        means, deviations = np.mean(figures, axis=0), np.std(figures, axis=0)
        errors_of = " ".join(f"{f'{mean:.1%} +- {sd:.1%}':>15}" for mean, sd in zip(means[:3], deviations))
        print(f"{count:4d} {errors_of} {f'{means[3]:.0%} +- {deviations[3]:.0%}':>17}", flush=True)
        row: dict[str, float | None] = {"operators_measured": count}
        for name, mean, sd in zip(_ESTIMATES, means, deviations):
            digits = 0 if name == "inside_interval" else 1
            row[f"{name}_percent"] = percent(mean, digits)
            row[f"{name}_sd_percent"] = percent(sd, digits)
        rows.append(row)
    device = {
        "target": examples.devices[int(examples.device[0])].target,
        "operators": len(np.unique(examples.operator)),
        "choices_of_n": len(_SEEDS),
    }
    headline = (
        "from {operators_measured} operators of a new device: MAPE {adapted_percent} %, beside {as_it_ships_percent} % "
        "as it ships and {those_alone_percent} % from those alone"
    ).format_map(rows[1])
    store(__file__, headline, {"new_device": [device], "errors": rows}, whole=True)


def percent(share: float, digits: int) -> float | None:
    """A share in percent; None where there is none."""
    return None if math.isnan(share) else round(100 * float(share), digits or None)


if __name__ == "__main__":
    main()
