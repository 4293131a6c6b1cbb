"""How far off each predictor is on held-out rows of a convolution library: MAPE per split, side by side.

python benchmarks/library_splits.py ../shared/data/tinynas_v100_fp32.txt
"""

from __future__ import annotations

import argparse
from pathlib import Path

from common import provenance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    arguments = parser.parse_args()
    print(provenance())

    from op_profiler.dataset.formats.tinynas import read_library
    from op_profiler.predict.library import PREDICTORS
    from op_profiler.predict.library.evaluate import evaluate
    from op_profiler.predict.library.splits import DESCRIPTIONS, SPLITS

    table = read_library(arguments.library)
    print(f"{len(table)} rows, {table.failed} failed ones left out; MAPE")
    print(f"{'held out':48}" + "".join(f"{name:>15}" for name in PREDICTORS))
    for split in SPLITS:
        scores = [evaluate(table, split, name) for name in PREDICTORS]
        print(f"{DESCRIPTIONS[split]:48}" + "".join(f"{score.mape:15.1%}" for score in scores), flush=True)


if __name__ == "__main__":
    main()
