"""Planning policies: they decide which operators run side by side, on which cores, and with how many threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from op_profiler.registry import Entry, Registry

if TYPE_CHECKING:
    from op_profiler.parallel.planning.policies.policy import Policy

_HERE = "op_profiler.parallel.planning.policies"

POLICIES: Registry[Policy] = Registry(
    "policies",
    "policy",
    f"{_HERE}.policy:Policy",
    {
        "sequential": Entry(f"{_HERE}.sequential:sequential", "one operator after the other, each on all cores"),
        "threads": Entry(
            f"{_HERE}.sequential:own_threads",
            "one operator after the other, each with the thread count of its turnaround point",
        ),
        "greedy": Entry(
            f"{_HERE}.greedy:greedy",
            "list scheduling by earliest finish (HEFT), improved by a search over thread counts",
        ),
        "ios": Entry(f"{_HERE}.ios:ios", "the best stages by dynamic programming (IOS), with its pruning"),
        "nash": Entry(f"{_HERE}.nash:nash", "cores of parallel branches by a Nash equilibrium at each fork"),
        "exhaustive": Entry(
            f"{_HERE}.exhaustive:exhaustive", "the best of all ways to cut the graph into stages; for small graphs"
        ),
    },
)
