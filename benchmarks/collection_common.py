"""What a first and a second collection of a model cost, stage by stage, beside what the compiler alone takes."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import collect, in_own_process, requests_of

COMPILERS = ("relay", "relax")


def cost_of(name: str, compiler: str, db: Path | None = None) -> dict[str, Any] | None:
    """Collect a model twice with its default schedules, at first with an empty cache folder and an empty dataset.

    Args:
        name: source and name, with a colon between.
        db: file of the dataset, which is made anew and stays; None for one that goes.

    Returns:
        Seconds, but for the last: ``first`` and ``second`` of the commands; ``our_build`` in the first, from the
        imported model to kernels (`CompiledModel.build_seconds`); ``stock_build``, the same by the compiler's own
        function and default pipeline, in a process with nothing else, None where it fails; ``stages``, by the stage of
        the first's worker process; ``ratios``, by thread count the sum of operators over the whole model. None where a
        collection fails.
    """
    source, _, model = name.partition(":")
    seconds, summaries = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = db or Path(folder) / "figure.db"
        file.unlink(missing_ok=True)  # of a run that was stopped
        options = ["--modelsource", source, "--modelname", model, "--compiler", compiler, "--schedules", "none"]
        for _ in range(2):
            started = time.perf_counter()
            arguments = [*options, "--db", f"sqlite:///{file.resolve()}"]
            code, summary = collect(arguments, Path(folder), OP_PROFILER_CACHE=f"{folder}/cache")
            seconds.append(time.perf_counter() - started)
            summaries.append(summary)
            if code:
                return None
    first, second = summaries
    assert all(entry["measured"] == 0 and entry["reused"] == entry["operators"] for entry in second)
    alone = in_own_process(__file__, [name, compiler])
    return {
        "first": seconds[0],
        "second": seconds[1],
        "our_build": first[0]["build_seconds"],
        "stock_build": None if alone is None else alone["seconds"],
        "stages": first[0]["stage_seconds"],
        "ratios": {str(entry["threads"]): entry["ratio"] for entry in first},
    }


def cost_row(name: str, compiler: str, cost: dict[str, Any]) -> dict[str, Any]:
    """What `cost_of` found as a row of a table."""
    builds = {build: cost[f"{build}_build"] for build in ("stock", "our")}
    seconds = {f"{build}_build_seconds": took and round(took, 2) for build, took in builds.items()}
    seconds |= {f"{step}_collection_seconds": round(cost[step], 2) for step in ("first", "second")}
    first = cost["first"]
    over = {f"first_over_{build}_build": took and round(first / took, 2) for build, took in builds.items()}
    share = {"second_of_first_percent": round(100 * cost["second"] / cost["first"], 1)}
    return {"model": name, "compiler": compiler, **seconds, **over, **share}


def stage_row(name: str, compiler: str, cost: dict[str, Any]) -> dict[str, Any]:
    """Where the seconds of the first collection went; ``around`` is the process that starts the worker."""
    stages = {f"{stage.replace(' ', '_')}_s": round(seconds, 2) for stage, seconds in cost["stages"].items()}
    around = cost["first"] - sum(cost["stages"].values())
    return {"model": name, "compiler": compiler, "around_s": round(around, 2), **stages}


def stock_build_seconds(name: str, compiler: str) -> float:
    """Of ``relay.build`` at level 3, or of ``relax.build`` with its default pipeline, for this processor."""
    from op_profiler.building.requested_model import load_model
    from op_profiler.compilers.tvm_build import load_tvm

    (request,) = requests_of(name)
    model, _, target = load_model(dataclasses.replace(request, compiler=compiler, schedules="none"))
    tvm = load_tvm()
    started = time.perf_counter()
    if compiler == "relay":
        with tvm.transform.PassContext(opt_level=3):
            tvm.relay.build(model.mod, target=target, params=model.params)
    else:
        tvm.relax.build(model.mod, target)
    return time.perf_counter() - started


if __name__ == "__main__":
    print(json.dumps({"seconds": stock_build_seconds(*sys.argv[1:3])}))
