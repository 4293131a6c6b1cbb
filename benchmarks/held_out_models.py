"""Networks that the predictor has not seen: leave one model out, whole-model error at each thread count.

    python benchmarks/held_out_models.py [DB]         (default: the dataset that ships)

Each network is predicted by a predictor that was fitted without any measurement of it, twice: with what other networks
and sampled operators measured (exact look-ups of an operator that another network shares count, as for a user), and
strictly, without its operators wherever they were measured. Measured times are those at the machine's usual state
(`op_profiler.predict.latency.steady_times`), since on a shared host the same network takes longer for minutes.

Goal: 95 % of the networks are within 10 %, and 4 % off on average; operators are within 12 % on average.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from common import provenance, store

if TYPE_CHECKING:
    from op_profiler.predict.latency.examples import Examples


def held_out(examples: Examples, strict: bool) -> tuple[list[dict[str, Any]], dict[str, Any], dict[str, Any]]:
    """A record of each network, one over all of them, and one over their operators."""
    import numpy as np

    from op_profiler.predict.latency.held_out import HEAVY_US, held_out_networks

    print(f"{'network':28} {'threads':>7} {'measured us':>12} {'predicted':>10} {'error':>7}  interval holds  tiers")
    rows, errors, inside, heavy, covered = [], [], [], [], []
    for one in held_out_networks(examples, "default", strict=strict):
        found = one.prediction
        errors.append(found.total_us / one.measured_us - 1)
        inside.append(found.low_us <= one.measured_us <= found.high_us)
        row = {
            "network": found.network.name,
            "threads": found.threads,
            "measured_us": round(one.measured_us),
            "predicted_us": round(found.total_us),
            "error_percent": round(100 * errors[-1], 1),
            "interval_holds": bool(inside[-1]),
            "tiers": ", ".join(f"{share:.0%} {name}" for name, share in found.tiers.items()),
        }
        rows.append(row)
        print(
            f"{row['network']:28} {row['threads']:7d} {row['measured_us']:12} {row['predicted_us']:10} "
            f"{row['error_percent']:+6.1f}%  {'yes' if inside[-1] else 'NO':14}  {row['tiers']}",
            flush=True,
        )
        above, operators = one.operators_us > HEAVY_US, found.operators
        heavy.append(np.abs(operators.latency_us / one.operators_us - 1)[above])
        covered.append(((operators.low_us <= one.operators_us) & (one.operators_us <= operators.high_us))[above])
    size, off = np.abs(errors), np.concatenate(heavy)
    left_out = "strict: its operators too, wherever else they were measured" if strict else "one model"
    networks = {
        "left_out": left_out,
        "mean_error_percent": round(100 * float(size.mean()), 1),
        "within_10_percent": round(100 * float(np.mean(size <= 0.1))),
        "networks": len(size),
        "inside_interval_percent": round(100 * float(np.mean(inside))),
    }
    by_operator = {
        "left_out": left_out,
        "mean_error_percent": round(100 * float(off.mean()), 1),
        "median_error_percent": round(100 * float(np.median(off)), 1),
        "inside_interval_percent": round(100 * float(np.concatenate(covered).mean())),
        "operators": len(off),
    }
    return rows, networks, by_operator


def main() -> None:
    import numpy as np

    from op_profiler.predict.latency.held_out import HEAVY_US
    from op_profiler.predict.latency.open_predictor import examples_for
    from op_profiler.predict.latency.steady_times import steady

    examples = steady(examples_for(db=sys.argv[1] if len(sys.argv) > 1 else None, device=None))
    print(provenance())
    networks = np.unique(examples.model[~examples.sampled[examples.model]])
    print(f"# {len(examples)} measurements of {len(examples.operators)} operators, {len(networks)} networks")
    found = []
    for strict in (False, True):
        print(f"\n## {'strict: its operators are not known from anywhere' if strict else 'leave one model out'}")
        found.append(held_out(examples, strict))
        print(*(", ".join(f"{name} {value}" for name, value in record.items()) for record in found[-1][1:]), sep="\n")
    (rows, whole, operators), _ = found
    headline = (
        f"whole networks: mean error {whole['mean_error_percent']} %, within 10 % {whole['within_10_percent']} % of "
        f"{whole['networks']}; operators above {HEAVY_US:.0f} us: {operators['mean_error_percent']} %"
    )
    tables = {
        "networks": rows,
        "whole_networks": [networks for _, networks, _ in found],
        f"operators_above_{HEAVY_US:.0f}_us": [by_operator for _, _, by_operator in found],
    }
    store(__file__, headline, tables, whole=len(sys.argv) == 1)


if __name__ == "__main__":
    main()
