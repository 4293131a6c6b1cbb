"""How long does a collection take, against the compiler alone? First and second collection of resnet-18.

    python benchmarks/collection_time.py [MODEL]

`relay.build` alone, the first collection into an empty dataset and the second of the same are timed in one run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from common import collect, in_own_process, provenance, store


def build(name: str) -> dict[str, float]:
    """Seconds that `relay.build` of a model takes, without anything of this project around it."""
    from op_profiler.compilers.tvm_build import load_tvm
    from op_profiler.frontends import FRONTENDS
    from op_profiler.frontends.frontend import ModelRequest
    from op_profiler.targets.target import resolve_target

    tvm = load_tvm()
    model = FRONTENDS.get("local").load(ModelRequest(source="local", name=name))
    target = resolve_target("llvm")
    started = time.perf_counter()
    with tvm.transform.PassContext(opt_level=3):
        tvm.relay.build(model.mod, target=target, params=model.params)
    return {"seconds": time.perf_counter() - started}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="resnet-18")
    parser.add_argument("--build", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        print(json.dumps(build(arguments.build)))
        return
    print(provenance())
    alone = in_own_process(__file__, ["--build", arguments.model])
    assert alone is not None, "relay.build alone failed"
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            started = time.perf_counter()
            code, summary = collect(
                ["--modelname", arguments.model, "--schedules", "none", "--db", f"sqlite:///{folder}/figure.db"],
                Path(folder),
            )
            seconds.append(time.perf_counter() - started)
            assert code == 0, f"the collection ended with {code}"
        assert all(entry["measured"] == 0 and entry["reused"] == entry["operators"] for entry in summary)
    first, second = seconds
    print(f"relay.build alone   {alone['seconds']:8.2f} s")
    print(f"first collection    {first:8.2f} s   {first / alone['seconds']:.2f} times the build")
    print(f"second collection   {second:8.2f} s   {second / first:.1%} of the first")
    over, share = round(first / alone["seconds"], 2), round(100 * second / first, 1)
    steps = (
        ("relay.build alone", alone["seconds"], None, None),
        ("first collection", first, over, None),
        ("second collection", second, None, share),
    )
    rows = [
        {"model": arguments.model, "step": name, "seconds": round(s, 2), "over_build": times, "of_first_percent": part}
        for name, s, times, part in steps
    ]
    headline = f"the first collection takes {over} times the build, the second {share} % of the first"
    store(__file__, headline, {"collection": rows}, whole=arguments.model == parser.get_default("model"))


if __name__ == "__main__":
    main()
