"""What every machine keeps to that models are measured on."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from op_profiler.compilers.compiled_model import CompiledModel
from op_profiler.measure.measurement import Cache
from op_profiler.targets.machine import LoadedModel, Machine


class MachineSuite:
    """A machine says what it is, and runs a model as a whole and kernel by kernel, with the same outputs.

    Fixtures:
        machine: an `op_profiler.targets.machine.Machine` that is open; the fixture closes it.
        compiled: a model that was compiled for it (`op_profiler.compilers.compiled_model.CompiledModel`).
        inputs: arrays by the names of its inputs.
    """

    @pytest.fixture
    def machine(self) -> Machine:
        raise NotImplementedError

    @pytest.fixture
    def compiled(self) -> CompiledModel:
        raise NotImplementedError

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray]:
        raise NotImplementedError

    @pytest.fixture
    def loaded(self, machine: Machine, compiled: CompiledModel, inputs: dict[str, np.ndarray]) -> LoadedModel:
        return machine.load(compiled, inputs)

    def test_it_says_what_it_is(self, machine: Machine) -> None:
        device = machine.device
        assert device.key == machine.device.key and device.processor and device.target
        json.dumps(dataclasses.asdict(device))

    def test_threads_are_read_back_where_they_can_be_counted(self, machine: Machine, loaded: LoadedModel) -> None:
        machine.threads.use(1)
        loaded.run_model()
        assert machine.threads.effective_threads() in (1, None)

    def test_kernels_in_order_compute_what_the_model_computes(self, loaded: LoadedModel) -> None:
        loaded.run_model()
        expected = [array.copy() for array in loaded.output_arrays()]
        assert expected and all(array.size for array in expected)
        loaded.walk("model", [True] * len(loaded.labels))
        for ours, theirs in zip(loaded.output_arrays(), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize("cache", ["model", "hot"])
    def test_every_kernel_that_is_asked_for_has_a_time(self, loaded: LoadedModel, cache: Cache) -> None:
        timed = [index % 2 == 0 for index in range(len(loaded.labels))]
        times = loaded.walk(cache, timed)
        assert [bool(np.isfinite(time)) for time in times] == timed
        assert all(time > 0 for time, asked in zip(times, timed, strict=True) if asked)
        assert loaded.cache_mechanism(cache)

    def test_the_model_has_a_time_and_its_kernels_no_error(self, loaded: LoadedModel) -> None:
        assert loaded.time_model() > 0
        assert [loaded.kernel_error(index) for index in range(len(loaded.labels))] == [None] * len(loaded.labels)

    def test_what_kernels_wrote_is_fetched_one_by_one(self, loaded: LoadedModel) -> None:
        outputs = list(loaded.kernel_outputs())
        assert len(outputs) == len(loaded.labels) and all(np.isfinite(array).all() for array in outputs)

    def test_what_it_counts_does_not_go_back(self, machine: Machine, loaded: LoadedModel) -> None:
        before = machine.running_seconds(), machine.energy_mj()
        loaded.run_model()
        for first, second in zip(before, (machine.running_seconds(), machine.energy_mj()), strict=True):
            assert (first is None) == (second is None) and (first is None or second >= first)  # type: ignore[operator]
