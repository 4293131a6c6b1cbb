"""How long predictions of many torch modules take, as an architecture search asks for them.

    python benchmarks/many_candidates.py [--count N]

Networks of inverted residuals whose widths, depths, kernel sizes and expansions are drawn are predicted in one call of
`op_profiler.predict`, with an empty cache folder: exported, lowered, compared with torch and predicted.

Goal: a thousand in 10 minutes on two cores, which is 0.6 s each.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from typing import TYPE_CHECKING, Any

from common import at_most, every, provenance, store

if TYPE_CHECKING:
    from common import Tables

_COUNT = 40
_SIDE = 64


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


def reached(tables: Tables) -> bool | None:
    """Return whether the stored tables reach the goal, or None if a number that it needs is missing."""
    return every(at_most(row["seconds_each"], 0.6) for row in tables.get("candidates", ()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=_COUNT, help="How many networks.")
    count = parser.parse_args().count
    print(provenance())
    candidates = [drawn(seed) for seed in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["OP_PROFILER_CACHE"] = folder
        import op_profiler

        started = time.perf_counter()
        found = op_profiler.predict(candidates, device="emeraldrapids")
        seconds = time.perf_counter() - started
    assert len(found) == count and all(one.total_us > 0 for one in found)
    row = {"candidates": count, "seconds": round(seconds, 1), "seconds_each": round(seconds / count, 2)}
    headline = f"{count} torch modules in {seconds:.0f} s, {row['seconds_each']} s each"
    print(headline)
    store(__file__, headline, {"candidates": [row]}, whole=count == _COUNT)


if __name__ == "__main__":
    main()
