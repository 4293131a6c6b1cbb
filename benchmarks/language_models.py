"""How far off are predicted seconds to the first token and tokens per second of language models?

    python benchmarks/language_models.py [MODEL]     (a name, or a folder with a config.json; default: llama)

The compiler is Relax. Steps of a decoder are collected into a dataset at some lengths of the prompt and of the past. A
prompt and the tokens after it are then predicted from this dataset, which contains no step of the same length. The step
of the prompt, and the first and the last step of one token, are measured afterwards and stored in another dataset. The
measured tokens per second are interpolated between these two steps.

Goal: seconds to the first token and tokens per second are at most 10 % off.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from common import at_most, collect, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

    from op_profiler.prediction.latency.generation import GenerationPrediction

_MODEL = "llama"
_THREADS = (1, 2)
_LEARNED = ("--prefill", "64,256", "--decode", "1", "--past", "64,512,1024")
_PREFILL, _DECODE = 128, 256
_PASTS = (128, 383)


def measured_us(model: str, lengths: tuple[str, ...], db: Path, folder: Path) -> dict[tuple[str, int], float]:
    """Times of whole steps, by the title of the step and the thread count."""
    threads = ",".join(map(str, _THREADS))
    line = ["--modelname", model, "--compiler", "relax", *lengths, "--threads", threads, "--schedules", "none"]
    code, summary = collect([*line, "--db", f"sqlite:///{db}"], folder)
    if code:
        sys.exit(f"{model}: the collector ended with {code}")
    return {(row["model"], row["threads"]): row["whole_model_us"] for row in summary}


def predicted(model: str, db: Path, threads: int) -> GenerationPrediction:
    """The answer that is learned from a dataset."""
    import op_profiler

    address = f"sqlite:///{db}"
    found: Any = op_profiler.predict(model, threads=threads, prefill=_PREFILL, decode=_DECODE, db=address)
    return found


def rows_of(
    model: str, threads: int, found: GenerationPrediction, measured: dict[tuple[str, int], float]
) -> list[dict[str, Any]]:
    """Prompt, steps and rate: predicted next to measured."""
    prompt_us = measured[f"{model} (prefill {_PREFILL})", threads]
    steps_us = [measured[f"{model} (decode 1 after {past})", threads] for past in _PASTS]
    behind = np.arange(_PREFILL, _PREFILL + _DECODE)
    rate = _DECODE * 1e6 / float(np.interp(behind, _PASTS, steps_us).sum())
    assert found.tokens_per_second is not None
    asked = [
        ("seconds to the first token", found.first_token_seconds, prompt_us / 1e6),
        ("tokens per second", found.tokens_per_second, rate),
    ]
    return [
        {
            "model": model,
            "threads": threads,
            "what": what,
            "predicted": _rounded(middle),
            "low": _rounded(low),
            "high": _rounded(high),
            "measured": _rounded(truth),
            "error_percent": round(100 * (middle / truth - 1), 1),
            "interval_holds": bool(low <= truth <= high),
        }
        for what, (middle, low, high), truth in asked
    ]


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_most(abs(row["error_percent"]), 10) for row in tables.get("answers", ()))


def main() -> None:
    print(provenance(), flush=True)
    model = sys.argv[1] if len(sys.argv) > 1 else _MODEL
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        measured_us(model, _LEARNED, folder / "learned.db", folder)
        answers = {threads: predicted(model, folder / "learned.db", threads) for threads in _THREADS}
        lengths = ("--prefill", str(_PREFILL), "--decode", "1", "--past", ",".join(map(str, _PASTS)))
        measured = measured_us(model, lengths, folder / "measured.db", folder)
    rows, steps = [], []
    for threads, found in answers.items():
        rows += rows_of(model, threads, found, measured)
        times = [one.total_us for one in found.steps]
        for past in _PASTS:
            truth = measured[f"{model} (decode 1 after {past})", threads]
            told = float(np.interp(past, list(found.generation.steps), times))
            steps.append(
                {
                    "threads": threads,
                    "past": past,
                    "predicted_us": round(told),
                    "measured_us": round(truth),
                    "error_percent": round(100 * (told / truth - 1), 1),
                }
            )
    for row in (*rows, *steps):
        print(json.dumps(row), flush=True)
    worst = max(abs(row["error_percent"]) for row in rows)
    held = sum(row["interval_holds"] for row in rows)
    headline = f"first token and tokens per second are at most {worst:.1f} % off; {held} of {len(rows)} intervals hold"
    store(__file__, headline, {"answers": rows, "steps": steps}, whole=len(sys.argv) == 1 and math.isfinite(worst))


if __name__ == "__main__":
    main()
