"""Print names of drawn networks, which ``collector/drawn_plan.sh`` collects, or what the networks are made of."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .seeds import KINDS, kind_of_seed, names, seed_of

if TYPE_CHECKING:
    from op_profiler.operators.operator import Operator


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m drawn_networks", description=__doc__)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="one more than the last seed")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of seeds; default: all")
    parser.add_argument(
        "--describe",
        action="store_true",
        help="lower the networks, print kind, operators and GFLOP of each, and the share of each kind of operator "
        "next to that of the included networks; exit code 1 if a network cannot be lowered",
    )
    arguments = parser.parse_args()
    found = names(arguments.first, arguments.end, tuple(arguments.kinds))
    if arguments.describe:
        describe(found)
    else:
        print("\n".join(found))


def describe(drawn: Iterable[str]) -> None:
    """Print a line a network, and shares of calls by kind of operator.

    Raises:
        SystemExit: a network does not lower.
    """
    from op_profiler.errors import OpProfilerError
    from op_profiler.prediction.latency.features import KINDS as KINDS_OF_OPERATORS
    from op_profiler.prediction.latency.features import kind_of

    calls: Counter[str] = Counter()
    failed = []
    for name in drawn:
        try:
            operators = lowered(name)
        except OpProfilerError as error:
            failed.append(name)
            print(f"{name}: {error}", flush=True)
            continue
        calls.update(map(kind_of, operators))
        work = sum(operator.flops for operator in operators) / 1e9
        kind = kind_of_seed(seed_of(name) or 0)
        print(f"{name:46} {kind:12} {len(operators):5} operators {work:8.3f} GFLOP", flush=True)
    ships = shares_that_ship()
    print(f"{'share of calls, percent':24}{'drawn':>8}{'included':>9}")
    for operator_kind in KINDS_OF_OPERATORS:
        print(f"{operator_kind:24}{100 * calls[operator_kind] / calls.total():8.1f}{ships[operator_kind]:9.1f}")
    if failed:
        raise SystemExit(f"{len(failed)} networks do not lower: {' '.join(failed)}")


def lowered(name: str) -> list[Operator]:
    """Operators of all calls of a network, as the default compiler leaves them. Outputs are not compared with torch's.

    Raises:
        OpProfilerError: it does not lower.
    """
    from op_profiler.building.request import BuildRequest
    from op_profiler.building.requested_model import load_model
    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.frontends.frontend import ModelRequest

    request = BuildRequest(model=ModelRequest(source="file", name=name), check_outputs="never")
    model, _, target = load_model(request)
    return [occurrence.operator for occurrence in compiler_in_use().operators(model, target, layers=False)]


def shares_that_ship() -> Counter[str]:
    """Return the percentage of calls of each kind of operator in the included networks, at one thread."""
    import numpy as np

    from op_profiler.prediction.latency.features import kind_of
    from op_profiler.prediction.latency.open_predictor import shipped_examples

    calls: Counter[str] = Counter()
    for examples in shipped_examples():
        of_networks = ~examples.sampled[examples.model] & (examples.threads == 1)
        counts = np.bincount(examples.operator[of_networks], examples.occurrences[of_networks])
        for operator in np.flatnonzero(counts):
            calls[kind_of(examples.operators[operator])] += int(counts[operator])
    return Counter({kind: 100 * count / calls.total() for kind, count in calls.items()})


if __name__ == "__main__":
    main()
