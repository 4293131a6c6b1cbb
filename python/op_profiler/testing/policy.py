"""The test suite of the contract `Policy`, which makes plans."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.errors import OpProfilerError
from op_profiler.parallel.planning.costs import simulate
from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Plan
from op_profiler.parallel.planning.policies.policy import Policy
from op_profiler.testing.graphs import chain, chains, diamond, graph_of, inception, layered, random_costs, randwire

GRAPHS = {
    "one operator": chain(1),
    "chain": chain(9),
    "diamond": diamond(),
    "inception": inception(3),
    "two chains": chains(2, 6),
    "wired at random": randwire(24, seed=1),
    "independent": graph_of([()] * 7),
    **{f"random {nodes}/{seed}": layered(nodes, seed) for nodes, seed in ((8, 0), (8, 1), (12, 2), (40, 1))},
}


class PolicySuite:
    """Tests that plans are valid, and equal for equal arguments.

    Fixtures:
        policy: an `op_profiler.parallel.planning.policies.policy.Policy`.
        largest: largest number of operators that the policy accepts; larger graphs have to be rejected.
    """

    @pytest.fixture
    def policy(self) -> Policy:
        """The `Policy` under test."""
        raise NotImplementedError

    @pytest.fixture
    def largest(self) -> int:
        """Number of operators beyond which the policy rejects a graph."""
        return 1_000_000

    @pytest.mark.parametrize("cores", [(0,), (0, 1), (2, 5, 7, 8)], ids=lambda cores: f"{len(cores)} cores")
    @pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS.keys())
    def test_a_plan_can_be_run_and_is_the_same_twice(
        self, policy: Policy, largest: int, graph: KernelGraph, cores: tuple[int, ...]
    ) -> None:
        """Check the plans of 11 graphs on 1, 2 and 4 cores: valid, finite simulated times, equal at a second call."""
        costs = random_costs(graph, 1, threads=(1, 2, 4), handover_us=3.0, slowdown=1.1)
        if len(graph) > largest:
            with pytest.raises(OpProfilerError, match=str(largest)):
                policy(graph, costs, cores)
            return
        stages = policy(graph, costs, cores)
        plan = Plan("tested", graph.models, graph.digest, "device", "processor", stages)
        plan.check(graph, device="device", processor="processor", cores=cores)
        assert np.isfinite(simulate(graph, stages, costs).end_us).all()
        assert policy(graph, costs, cores) == stages
