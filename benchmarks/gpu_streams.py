"""How fast are plans on streams of a GPU, launched as graphs, next to TVM's executor?

    python benchmarks/gpu_streams.py [--keep FOLDER] [--models squeezenet_v1.1 ...] [--streams 1 2 ...]
    python benchmarks/gpu_streams.py --read FOLDER         (without a GPU: from the files of an earlier run)

`auto` measures a plan of each policy and selects the fastest. The plan `sequential` is one stream, launched as a graph:
what other plans gain over it is due to streams. Stored results of plans that a run does not contain are kept. `outputs`
compares with TVM's executor: `equal` bit for bit, `agree` within the tolerance for other kernels, which a plan of
merged operators runs (`policy` names them), or `WRONG`.

Goal: no outputs are wrong.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common import about_all, every, measured_on, outputs_verdict, run_command, store, with_earlier

if TYPE_CHECKING:
    from common import Tables

MODELS = ("squeezenet_v1.1", "inception_v3", "randwire-0", "nasnetamobile")
STREAMS = (1, 2, 4, 8)
_ARE_RIGHT = {outputs_verdict(equal, agree): agree for equal, agree in ((True, True), (False, True), (False, False))}


def planned(model: str, streams: int, folder: Path) -> None:
    """The result of one command, in a file."""
    words = ["--target", "cuda", "--streams", str(streams), "--schedules", "none", "--quiet"]
    try:
        run_command(["corun", model, *words, "--json", str(folder / f"{model}-{streams}.json")])
    except subprocess.CalledProcessError as error:
        print(f"{model}, {streams} streams: exit code {error.returncode}", flush=True)


def row_of(path: Path) -> dict[str, Any]:
    """What came of one command."""
    model, _, streams = path.stem.rpartition("-")
    found = json.loads(path.read_text())
    best = {tried["policy"]: tried["measured_us"] for tried in found["tried"]}
    numbers = {name: round(found[name], 1) for name in ("sequential_us", "plan_us")}
    low, high = found["speedup_interval"]
    return {
        "model": model,
        "streams": int(streams),
        "policy": found["compared_policy"],
        **numbers,
        "speed_up": round(found["speedup"], 3),
        "low": round(low, 3),
        "high": round(high, 3),
        **{
            f"{policy}_plan_us": round(best[policy], 1) if policy in best else None
            for policy in ("sequential", "greedy", "ios", "nash")
        },
        "outputs": outputs_verdict(found["outputs_equal"], found["outputs_agree"]),
    }


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing.

    Outputs that differ by an amount that was not stored count as unknown.
    """
    return every(_ARE_RIGHT.get(row["outputs"]) for row in tables.get("plans", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=MODELS)
    parser.add_argument("--streams", nargs="*", type=int, default=STREAMS)
    parser.add_argument("--keep", type=Path, help="folder for the result of each command")
    parser.add_argument("--read", type=Path, help="folder that --keep has filled; nothing is run")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.read or arguments.keep or Path(scratch)
        if not arguments.read:
            folder.mkdir(parents=True, exist_ok=True)
            for model in arguments.models:
                for streams in arguments.streams:
                    planned(model, streams, folder)
            (folder / "about.json").write_text(json.dumps(measured_on()))
        about = json.loads((folder / "about.json").read_text())
        rows = [row_of(path) for path in sorted(folder.glob("*-*.json"))]
    if not rows:
        sys.exit("no plan came to a result")
    rows = sorted(with_earlier(__file__, "plans", rows, ["model", "streams"]), key=lambda r: (r["model"], r["streams"]))
    print(json.dumps(rows, indent=1))
    told = ", ".join(f"{row['model']} {row['speed_up']:.2f}" for row in rows if row["streams"] == max(STREAMS[:3]))
    headline = (
        f"speed-up over TVM's executor with four streams: {told} ({len(rows)} of {len(MODELS) * len(STREAMS)} runs)"
    )
    print(headline)
    store(__file__, headline, {"plans": rows}, whole=True, provenance=about_all(__file__, about))


if __name__ == "__main__":
    main()
