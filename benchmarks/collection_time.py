"""How long does a collection take, next to the compiler alone? First and second collection of resnet-18.

    python benchmarks/collection_time.py [MODEL]      (about two minutes)

For each compiler, the script times the stock build in a separate process, the first collection into an empty dataset
with an empty cache folder, and a second collection of the same model. The stock build is the compiler's own function
and pipeline. A collection builds differently (for Relay with shortcuts that change no kernel, for Relax with
op_profiler's schedules); the time of that build is reported, too.
"""

from __future__ import annotations

import argparse

from collection_common import COMPILERS, cost_of, cost_row, stage_row
from common import provenance, store


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="local:resnet-18")
    arguments = parser.parse_args()
    print(provenance())
    rows, stages = [], []
    for compiler in COMPILERS:
        cost = cost_of(arguments.model, compiler)
        assert cost is not None, f"a collection under {compiler} failed"
        rows.append(cost_row(arguments.model, compiler, cost))
        stages.append(stage_row(arguments.model, compiler, cost))
        for row in (rows[-1], stages[-1]):
            print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    told = [
        f"{row['first_over_stock_build']} times the stock build ({row['first_over_our_build']} times ours) under "
        f"{row['compiler']}, and the second {row['second_of_first_percent']} % of it"
        for row in rows
    ]
    headline = f"the first collection takes {'; '.join(told)}"
    whole = arguments.model == parser.get_default("model")
    store(__file__, headline, {"collections": rows, "stages": stages}, whole=whole)


if __name__ == "__main__":
    main()
