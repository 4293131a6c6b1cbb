"""The test suite of the contract `Executor`, which runs plans."""

from __future__ import annotations

import numpy as np
import pytest

from op_profiler.parallel.planning.graph import KernelGraph
from op_profiler.parallel.planning.plan import Plan
from op_profiler.parallel.runtime.executor import Executor

_RUNS = 20  # a race would not show every time


class ExecutorSuite:
    """Tests that an executor runs a plan correctly, and reports where operators ran.

    The outputs must be those of the models, and operators must run in an order that the graph allows.

    Fixtures:
        executor: an `op_profiler.parallel.runtime.executor.Executor` whose context the fixture enters and exits.
        plan: the plan that it runs.
        graph: the graph of the plan.
        expected: outputs of the models, model after model.
    """

    @pytest.fixture
    def executor(self) -> Executor:
        """The `Executor` under test, whose context was entered."""
        raise NotImplementedError

    @pytest.fixture
    def plan(self) -> Plan:
        """The `Plan` that the executor runs."""
        raise NotImplementedError

    @pytest.fixture
    def graph(self) -> KernelGraph:
        """The `KernelGraph` of the plan."""
        raise NotImplementedError

    @pytest.fixture
    def expected(self) -> list[np.ndarray]:
        """Outputs of the models, model after model."""
        raise NotImplementedError

    def test_outputs_are_those_of_the_models(self, executor: Executor, expected: list[np.ndarray]) -> None:
        """Compare the outputs of 20 runs with `expected`, bit by bit."""
        for _ in range(_RUNS):
            executor.run()
            for ours, theirs in zip(executor.outputs(), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_an_operator_starts_after_what_it_reads(self, executor: Executor, graph: KernelGraph) -> None:
        """Check the times of the last run, shape (nodes, 2): no operator starts before its inputs end."""
        executor.run()
        spans = executor.timeline_us()
        assert spans.shape == (len(graph), 2) and (spans[:, 0] <= spans[:, 1]).all() and spans.min() >= 0
        for node in graph.nodes:
            assert all(spans[source, 1] <= spans[node.index, 0] for source in node.inputs), node.name

    def test_it_says_where_and_with_how_many_threads_operators_ran(
        self, executor: Executor, plan: Plan, graph: KernelGraph
    ) -> None:
        """Check that cores and thread counts that were read back are within those of the plan."""
        executor.run()
        planned = {step.node: (step.threads, group.cores) for step, group in plan.steps}
        used, ran_on = executor.threads_used(), executor.ran_on()
        assert len(used) == len(ran_on) == len(planned) == len(graph)
        for node, (threads, cores) in planned.items():
            assert 1 <= used[node] <= threads and ran_on[node] in cores
        assert set(executor.bound_to()) == {core for _, cores in planned.values() for core in cores}

    def test_functions_can_be_put_back(self, executor: Executor, expected: list[np.ndarray]) -> None:
        """Check that outputs are as expected after `use({})`."""
        executor.use({})
        executor.run()
        for ours, theirs in zip(executor.outputs(), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)
