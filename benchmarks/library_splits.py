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
    from op_profiler.predict.library import PREDICTORS, without_suspicious
    from op_profiler.predict.library.evaluate import evaluate
    from op_profiler.predict.library.splits import DESCRIPTIONS, SPLITS

    read = read_library(arguments.library)
    table, findings = without_suspicious(read)
    print(
        f"{len(table)} rows; left out: {read.failed} failed, {len(findings)} suspicious. MAPE; of the default also how"
    )
    print("many of the held-out rows lie inside its 90 % interval")
    print(f"{'held out':42}" + "".join(f"{name:>14}" for name in PREDICTORS) + f"{'inside':>8}")
    for split in SPLITS:
        scores = {name: evaluate(table, split, name) for name in PREDICTORS}
        inside = scores["default"].coverage_90
        columns = "".join(f"{score.mape:14.2%}" for score in scores.values())
        print(f"{DESCRIPTIONS[split]:42}{columns}{'-' if inside is None else f'{inside:.1%}':>8}", flush=True)


if __name__ == "__main__":
    main()
