"""How much of a collection on a board is overhead, and what does a second board save in a search? Emulated boards.

    python benchmarks/boards.py [--model resnet-18] [--trials 48] [--rounds 3]

The first figure is the share of a collection's wall time in which nothing was built and nothing ran on the board. The
second is the time of a search (random, the same candidates) with two boards, divided by its time with one. Each
emulated board uses a core of this machine, and so does building for it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, collect, provenance, store

sys.path.insert(0, str(ROOT / "tests" / "boards"))


def overhead(lab: Any, model: str, folder: Path) -> dict[str, Any]:
    """Wall time of a collection, and what of it was building and running."""
    place = ["--target", "pynq", "--host", "127.0.0.1", "--port", str(lab.port)]
    db = f"sqlite:///{folder / 'boards.db'}"
    arguments = ["--modelname", model, *place, "--threads", "1", "--schedules", "none", "--db", db]
    started = time.monotonic()
    code, entries = collect(arguments, folder)
    wall = time.monotonic() - started
    entry = entries[0]
    build, run = entry["build_seconds"], entry["running_seconds"]
    print(
        f"{model}: {wall:.1f} s in all, {build:.1f} s building, {run:.1f} s running on the board: "
        f"{(wall - build - run) / wall:.1%} outside of both (exit code {code}, {entry['operators']} operators, "
        f"sum over whole {entry['ratio']:.3f}, {entry['rounds']} rounds)",
        flush=True,
    )
    return {
        "model": model,
        "all_s": round(wall, 1),
        "building_s": round(build, 1),
        "running_s": round(run, 1),
        "outside_percent": round(100 * (wall - build - run) / wall, 1),
        "exit_code": code,
        "operators": entry["operators"],
        "sum_over_whole": round(entry["ratio"], 3),
        "rounds": entry["rounds"],
    }


def tuning(lab: Any, trials: int) -> float:
    """Seconds for the candidates of one convolution, with the boards that the lab has."""
    import numpy as np

    from op_profiler.compilers.compiler import compiler_in_use
    from op_profiler.targets.machine import Place
    from op_profiler.targets.remote.trial_runner import BoardRunner
    from op_profiler.targets.target import resolve_target
    from op_profiler.tuning.candidate import Candidate, TaskSpec

    def tensor(*shape: int) -> tuple[str, tuple[int, ...], str]:
        return ("TENSOR", shape, "float32")

    target = resolve_target("pynq")
    arguments = (tensor(1, 32, 28, 28), tensor(32, 32, 3, 3), (1, 1), (1, 1, 1, 1), (1, 1), "float32")
    spec = TaskSpec("conv2d_nchw_spatial_pack.arm_cpu", arguments)
    space = compiler_in_use().task(spec, target)
    indices = np.random.default_rng(0).choice(space.size, trials, replace=False)
    candidates = [Candidate(spec, int(i)) for i in indices]
    place = Place(host="127.0.0.1", port=lab.port, key="pynq")
    with BoardRunner("pynq", str(target), place, 1) as runner:
        runner.run(candidates[: 2 * len(lab.boards)], float("inf"))  # starts the processes, fills their caches
        started = time.monotonic()
        results = runner.run(candidates, float("inf"))
        seconds = time.monotonic() - started
    failed = sum(1 for r in results if r.error is not None)
    boards = len({r.machine for r in results})
    print(f"  {boards} board(s): {seconds:.1f} s, {failed} of {trials} failed", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet-18")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    import lab as labs

    print(provenance(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lab = labs.Lab(labs.built_board(), folder)
        try:
            lab.board()
            collection = overhead(lab, arguments.model, folder)
            ratios = []
            for _ in range(arguments.rounds):
                one = tuning(lab, arguments.trials)
                second = lab.board()
                two = tuning(lab, arguments.trials)
                second.stop()
                lab.boards.remove(second)
                time.sleep(3.0)  # until the tracker has noticed
                ratios.append(two / one)
            middle, low, high = (round(one, 2) for one in (statistics.median(ratios), min(ratios), max(ratios)))
            print(f"two boards over one: {middle} ({low} to {high}), {arguments.trials} trials each")
            headline = (
                f"{collection['outside_percent']} % of a collection is outside of building and running; a second board "
                f"takes {middle} of the time"
            )
            boards = {"trials": arguments.trials, "median": middle, "low": low, "high": high}
            tables = {"collection": [collection], "two_boards_over_one": [boards]}
            store(__file__, headline, tables, whole=len(sys.argv) == 1)
        finally:
            lab.stop()


if __name__ == "__main__":
    main()
