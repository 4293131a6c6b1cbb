"""Networks that the predictor has not seen: leave one model out, whole-model error at each thread count.

    python benchmarks/held_out_models.py [DB]         (default: the dataset that ships)

Each network is predicted by a predictor that was fitted without any measurement of it, twice: with what other networks
and sampled operators measured (exact look-ups of an operator that another network shares count, as for a user), and
strictly, without its operators wherever they were measured. Measured times are those at the machine's usual state
(`op_profiler.predict.latency.steady_times`), since on a shared host the same network takes longer for minutes.
"""

from __future__ import annotations

import sys

from common import provenance


def main() -> None:
    import numpy as np

    from op_profiler.predict.latency.held_out import HEAVY_US, held_out_networks
    from op_profiler.predict.latency.open_predictor import examples_for
    from op_profiler.predict.latency.steady_times import steady

    examples = steady(examples_for(db=sys.argv[1] if len(sys.argv) > 1 else None, device=None))
    print(provenance())
    networks = np.unique(examples.model[~examples.sampled[examples.model]])
    print(f"# {len(examples)} measurements of {len(examples.operators)} operators, {len(networks)} networks")
    for strict in (False, True):
        print(f"\n## {'strict: its operators are not known from anywhere' if strict else 'leave one model out'}")
        print(
            f"{'network':28} {'threads':>7} {'measured us':>12} {'predicted':>10} {'error':>7}  interval holds  tiers"
        )
        errors, inside, heavy, covered = [], [], [], []
        for one in held_out_networks(examples, "default", strict=strict):
            found = one.prediction
            errors.append(found.total_us / one.measured_us - 1)
            inside.append(found.low_us <= one.measured_us <= found.high_us)
            tiers = ", ".join(f"{share:.0%} {name}" for name, share in found.tiers.items())
            print(
                f"{found.network.name:28} {found.threads:7d} {one.measured_us:12.0f} {found.total_us:10.0f} "
                f"{errors[-1]:+7.1%}  {'yes' if inside[-1] else 'NO':14}  {tiers}",
                flush=True,
            )
            above = one.operators_us > HEAVY_US
            heavy.append(np.abs(found.operators.latency_us / one.operators_us - 1)[above])
            covered.append(
                ((found.operators.low_us <= one.operators_us) & (one.operators_us <= found.operators.high_us))[above]
            )
        size, operators = np.abs(errors), np.concatenate(heavy)
        print(
            f"whole networks: mean error {size.mean():.1%}, within 10 % {np.mean(size <= 0.1):.0%} of {len(size)}, "
            f"inside the interval {np.mean(inside):.0%}\n"
            f"operators above {HEAVY_US:.0f} us: MAPE {operators.mean():.1%}, median {np.median(operators):.1%}, "
            f"inside the interval {np.concatenate(covered).mean():.0%} of {len(operators)}"
        )


if __name__ == "__main__":
    main()
