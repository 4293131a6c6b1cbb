"""How long do predictions of many torch modules take, as in an architecture search?

    python benchmarks/many_candidates.py [--count N]

Networks of inverted residuals, whose widths, depths and kernel sizes are drawn, are predicted with an empty cache:
lowered, compared with torch if they have a new kind of node, and predicted. They are passed to `op_profiler.predict` as
modules, which it exports, or to `op-profiler predict` as a list in a Python module. The seconds per candidate are those
of the second half, because the first half also waits for imports and for comparisons of outputs.

Goal: a thousand in 10 minutes on two cores, which is 0.6 s each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

from common import ROOT, at_most, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_COUNT = 40
_SIDE = 64
_DEVICE = "emeraldrapids"
_HOW_MANY = "MANY_CANDIDATES"


def drawn(seed: int) -> tuple[Any, Any]:
    """A network and an example of its input."""
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return x + self.inner(x)

    rng = random.Random(seed)
    torch.manual_seed(seed)
    channels = 8 * rng.randint(2, 4)
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU6()]
    for stage in range(1, 4):
        width = 8 * stage * rng.randint(2, 5)
        for block in range(rng.randint(1, 2)):
            inner, kernel, stride = channels * rng.choice((3, 4, 6)), rng.choice((3, 5)), 1 if block else 2
            body = nn.Sequential(
                *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU6()),
                nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False),
                *(nn.BatchNorm2d(inner), nn.ReLU6(), nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)),
            )
            layers.append(Residual(body) if stride == 1 and channels == width else body)
            channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 100)]
    return nn.Sequential(*layers), torch.zeros(1, 3, _SIDE, _SIDE)


def candidates() -> list[tuple[Any, Any]]:
    """Return the list that the command is given, of as many networks as the environment says."""
    return [drawn(seed) for seed in range(int(os.environ[_HOW_MANY]))]


def by_python(count: int) -> float:
    """Return the seconds in which the modules are predicted."""
    import op_profiler

    modules = [drawn(seed) for seed in range(count)]
    started = time.perf_counter()
    found = op_profiler.predict(modules, device=_DEVICE)
    seconds = time.perf_counter() - started
    assert isinstance(found, list) and len(found) == count and all(one.total_us > 0 for one in found)
    return seconds


def by_command(count: int) -> float:
    """Return the seconds of a command that predicts the list of this module."""
    line = [
        sys.executable,
        "-c",
        "from op_profiler.cli import main; main()",
        "predict",
        "many_candidates:candidates[*]",
    ]
    own = {_HOW_MANY: str(count), "PYTHONPATH": f"{ROOT}/python:{ROOT}/benchmarks"}
    started = time.perf_counter()
    done = subprocess.run(
        [*line, "--device", _DEVICE, "--format", "json", "--quiet"],
        capture_output=True,
        check=True,
        env=os.environ | own,
    )
    seconds = time.perf_counter() - started
    assert all(row["total_us"] > 0 for row in json.loads(done.stdout))
    return seconds


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_most(row["seconds_each"], 0.6) for row in tables.get("candidates", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=_COUNT, help="How many networks.")
    count = parser.parse_args().count
    print(provenance())
    rows = []
    for way, predicted in (("op_profiler.predict(modules)", by_python), ("op-profiler predict LIST", by_command)):
        seconds = []
        for some in (count // 2, count):
            with tempfile.TemporaryDirectory() as folder:
                os.environ["OP_PROFILER_CACHE"] = folder
                seconds.append(predicted(some))
        each = (seconds[1] - seconds[0]) / (count - count // 2)
        rows.append({"way": way, "candidates": count, "seconds": round(seconds[1], 1), "seconds_each": round(each, 2)})
        print(rows[-1], flush=True)
    headline = f"{rows[0]['seconds_each']} s for each further torch module, {rows[1]['seconds_each']} s in a list"
    print(headline)
    store(__file__, headline, {"candidates": rows}, whole=count == _COUNT)


if __name__ == "__main__":
    main()
