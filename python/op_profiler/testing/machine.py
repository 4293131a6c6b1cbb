"""The test suite of the contracts `Machine` and `LoadedModel`."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.measure.measurement import Cache
from op_profiler.targets.machine import LoadedModel, Machine


class MachineSuite:
    """Tests that a machine describes itself, and that a whole run and a walk over the kernels have the same outputs.

    Fixtures:
        machine: an open `op_profiler.targets.machine.Machine`; the fixture closes it.
        compiled: a model compiled for the machine (`op_profiler.compilers.compiled_model.CompiledModel`).
        inputs: arrays for the model's inputs, by name.
    """

    @pytest.fixture
    def machine(self) -> Machine:
        """The open `Machine` under test."""
        raise NotImplementedError

    @pytest.fixture
    def compiled(self) -> CompiledModel:
        """A model that was compiled for the machine."""
        raise NotImplementedError

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays by the names of the model's inputs."""
        raise NotImplementedError

    @pytest.fixture
    def loaded(self, machine: Machine, compiled: CompiledModel, inputs: dict[str, np.ndarray]) -> LoadedModel:
        """`compiled` on the machine, with `inputs`."""
        return machine.load(compiled, inputs)

    def test_it_says_what_it_is(self, machine: Machine) -> None:
        """Check that `device` has processor, target and a stable key, and can be written as JSON."""
        device = machine.device
        assert device.key == machine.device.key and device.processor and device.target
        json.dumps(dataclasses.asdict(device))

    def test_threads_are_read_back_where_they_can_be_counted(self, machine: Machine, loaded: LoadedModel) -> None:
        """Check that one thread is in effect after `use(1)`, or that the count is None."""
        machine.threads.use(1)
        loaded.run_model()
        assert machine.threads.effective_threads() in (1, None)

    def test_kernels_in_order_compute_what_the_model_computes(self, loaded: LoadedModel) -> None:
        """Compare the outputs of a walk over all kernels with those of a whole run, bit by bit."""
        loaded.run_model()
        expected = [array.copy() for array in loaded.output_arrays()]
        assert expected and all(array.size for array in expected)
        loaded.walk("model", [True] * len(loaded.labels))
        for ours, theirs in zip(loaded.output_arrays(), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize("cache", ["model", "hot"])
    def test_every_kernel_that_is_asked_for_has_a_time(self, loaded: LoadedModel, cache: Cache) -> None:
        """Check that `walk` returns positive microseconds for the chosen kernels and NaN for others."""
        timed = [index % 2 == 0 for index in range(len(loaded.labels))]
        times = loaded.walk(cache, timed)
        assert [bool(np.isfinite(time)) for time in times] == timed
        assert all(time > 0 for time, asked in zip(times, timed, strict=True) if asked)
        assert loaded.cache_mechanism(cache)

    def test_the_model_has_a_time_and_its_kernels_no_error(self, loaded: LoadedModel) -> None:
        """Check that `time_model` is positive, and `kernel_error` None for each kernel."""
        assert loaded.time_model() > 0
        assert [loaded.kernel_error(index) for index in range(len(loaded.labels))] == [None] * len(loaded.labels)

    def test_what_kernels_wrote_is_fetched_one_by_one(self, loaded: LoadedModel) -> None:
        """Check that `kernel_outputs` yields a finite array for each kernel."""
        outputs = list(loaded.kernel_outputs())
        assert len(outputs) == len(loaded.labels) and all(np.isfinite(array).all() for array in outputs)

    def test_what_it_counts_does_not_go_back(self, machine: Machine, loaded: LoadedModel) -> None:
        """Check that `running_seconds` and `energy_mj` never decrease, and stay None where they are None."""
        before = machine.running_seconds(), machine.energy_mj()
        loaded.run_model()
        for first, second in zip(before, (machine.running_seconds(), machine.energy_mj()), strict=True):
            assert (first is None) == (second is None) and (first is None or second >= first)  # type: ignore[operator]
