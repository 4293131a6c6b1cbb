"""How much longer is a first collection that compares outputs with the model's own framework?

    python benchmarks/check_cost.py [MODEL ...]     (SOURCE:NAME; default: three of them, twelve minutes)

Each model is collected twice with and twice without the comparison, in turns, at one thread with empty caches.

Goal: the comparison takes at most a tenth of a first collection.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_most, collect, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

MODELS = ("local:resnet18", "local:squeezenet1_1", "transformers:bert")
_REPEATS = 2


def seconds_of(model: str, check: str) -> float:
    """A first collection, from the command to its end."""
    source, name = model.split(":")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model_of = ["--modelsource", source, "--modelname", name, "--check-outputs", check]
        rest = ["--threads", "1", "--db", f"sqlite:///{folder}/results.db"]
        started = time.perf_counter()
        code, _ = collect([*model_of, *rest], folder, OP_PROFILER_CACHE=str(folder / "cache"))
        if code:
            sys.exit(f"{model}: the collector ended with {code}")
        return time.perf_counter() - started


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_most(row["longer_percent"], 10) for row in tables.get("models", ()))


def main() -> None:
    print(provenance())
    rows: list[dict[str, Any]] = []
    for model in sys.argv[1:] or MODELS:
        turns = [(seconds_of(model, "never"), seconds_of(model, "once")) for _ in range(_REPEATS)]
        without, compared = np.array(turns).T
        share = np.median(compared) / np.median(without) - 1
        rows.append(
            {
                "model": model,
                "without_s": round(float(np.median(without)), 1),
                "compared_s": round(float(np.median(compared)), 1),
                "spread_s": round(float(max(np.ptp(without), np.ptp(compared))), 1),
                "longer_percent": round(100 * float(share), 1),
            }
        )
        print(rows[-1], flush=True)
    worst = max(row["longer_percent"] for row in rows)
    headline = f"the comparison makes first collections of {len(rows)} models {worst:.1f}% longer at most"
    store("check_cost", headline, {"models": rows}, whole=len(sys.argv) == 1)


if __name__ == "__main__":
    main()
