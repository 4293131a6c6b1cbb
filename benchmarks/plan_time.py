"""How long does each policy take to plan, and how fast is its simulated plan, by number of operators?

    python benchmarks/plan_time.py [--cores 2]

The graphs are random layered graphs, graphs like those of RandWire (Xie et al. 2019, ICCV: stages of 32 nodes, wired as
Watts-Strogatz graphs with K = 4 and P = 0.75), and two models side by side. Latencies are random (5 to 500 us, scaled
with the thread count by Amdahl's law), so the results are about planning, not about a model.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from common import provenance, store

SIZES = (10, 50, 100, 200, 500, 1000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=2)
    arguments = parser.parse_args()
    cores = tuple(range(arguments.cores))
    print(provenance())

    from op_profiler.parallel.planning.costs import simulate
    from op_profiler.parallel.planning.policies import POLICIES
    from op_profiler.parallel.planning.policies.exhaustive import LARGEST
    from op_profiler.testing.graphs import chains, layered, random_costs, randwire

    POLICIES.get("nash")(layered(10, 0), random_costs(layered(10, 0), 0), cores)  # imports pygambit
    print(f"{len(cores)} cores; seconds to plan, and simulated latency over that of one operator after the other")
    print(f"{'graph':10}{'operators':>10}" + "".join(f"{name:>16}" for name in POLICIES))
    families = {
        "layered": lambda size: layered(size, seed=size, width=6),
        "randwire": lambda size: randwire(size, seed=size),
        "two chains": lambda size: chains(2, size // 2),
    }
    rows = []
    for family, make in families.items():
        for size in SIZES:
            graph = make(size)
            costs = random_costs(graph, 1, threads=tuple(range(1, len(cores) + 1)), handover_us=3.0, slowdown=1.1)
            alone_us = simulate(graph, POLICIES.get("sequential")(graph, costs, cores), costs).total_us
            row: dict[str, Any] = {"graph": family, "operators": size}
            columns = []
            for name in POLICIES:
                if name == "exhaustive" and size > LARGEST:
                    columns.append("-")
                    row |= {f"{name}_s": None, f"{name}_over_sequential": None}
                    continue
                started = time.perf_counter()
                stages = POLICIES.get(name)(graph, costs, cores)
                seconds = time.perf_counter() - started
                over = simulate(graph, stages, costs).total_us / alone_us
                columns.append(f"{seconds:.3f} s {over:.3f}")
                row |= {f"{name}_s": round(seconds, 3), f"{name}_over_sequential": round(over, 3)}
            rows.append(row)
            print(f"{family:10}{size:>10}" + "".join(f"{column:>16}" for column in columns), flush=True)
    longest = max(row[f"{name}_s"] or 0 for row in rows for name in POLICIES)
    headline = f"a plan for up to {max(SIZES):,} operators takes at most {longest:.1f} s"
    store(__file__, headline, {"policies": rows}, whole=arguments.cores == parser.get_default("cores"))


if __name__ == "__main__":
    main()
