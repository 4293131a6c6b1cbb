"""The test suite of the contract `Compiler`."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiled_model import BuiltModel, CompiledModel
from op_profiler.compilers.compiler import Compiler, NotKept
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.compilers.sum_of_products import SumOfProducts
from op_profiler.compilers.tvm_build import runtime_device
from op_profiler.compilers.tvm_types import Target
from op_profiler.operators.cost import HEAVY
from op_profiler.parallel.runtime.memory import bind_in_one_piece
from op_profiler.schedules.records import Conditions
from op_profiler.schedules.usable_records import UsableRecords

NO_RECORDS = UsableRecords.of_file(None, Conditions(1))


class CompilerSuite:
    """Tests that operators, kernels and schedules come from one compilation, and that files restore a build.

    The process has to use the compiler: call `op_profiler.targets.target.use_build_for` before TVM is imported.

    Fixtures:
        compiler: a registered `Compiler`.
        model: an `ImportedModel` of the compiler for the graph executor, with a heavy operator whose schedules can be
            tuned; choose a small one, because it is built.
        target: `tvm.target.Target` of this machine's processor.
    """

    @pytest.fixture(scope="class")
    @classmethod
    def compiler(cls) -> Compiler:
        """The registered `Compiler` under test."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls) -> ImportedModel:
        """A small `ImportedModel` with a heavy operator that can be tuned."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls) -> Target:
        """The `tvm.target.Target` of this machine's processor."""
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def built(cls, compiler: Compiler, model: ImportedModel, target: Target) -> BuiltModel:
        """`model`, built for `target` without records; one build for the whole class."""
        return compiler.build(model, target, NO_RECORDS)

    def test_it_answers_everything_and_has_the_name_that_it_is_registered_by(self, compiler: Compiler) -> None:
        """Check that no method is abstract, and that the registry returns the class by `name`."""
        assert not inspect.isabstract(type(compiler))
        assert compiler.name in COMPILERS and type(COMPILERS.get(compiler.name)) is type(compiler)
        assert compiler.needs and compiler.tvm_identity(()).strip()

    def test_fusing_gives_the_operators_of_a_build(
        self, compiler: Compiler, model: ImportedModel, target: Target, built: BuiltModel
    ) -> None:
        """Compare the workload keys of `operators` and `fuse` with those of `build`, in order."""
        operators = compiler.operators(model, target)
        assert [o.operator.key for o in operators] == [o.operator.key for o in built.compiled.occurrences]
        fused = compiler.fuse(lambda: operators, target, NO_RECORDS)
        assert fused.occurrences == operators and fused.asked <= built.asked

    def test_kernels_come_in_the_order_of_their_producers(self, compiler: Compiler, built: BuiltModel) -> None:
        """Check that the producers of each call are sorted, distinct, earlier calls, and that kernels can be called."""
        calls = built.compiled.calls
        assert calls and {call.label for call in calls} <= built.compiled.by_label.keys()
        for number, call in enumerate(calls):
            assert list(call.inputs) == sorted(set(call.inputs)) and all(producer < number for producer in call.inputs)
            assert callable(compiler.kernel(built.compiled, call.name))
        assert {producer for call in calls for producer in call.inputs}

    def test_a_loaded_model_and_its_kernels_in_order_compute_the_same_wherever_tensors_lie(
        self, compiler: Compiler, model: ImportedModel, target: Target, built: BuiltModel
    ) -> None:
        """Compare outputs bit by bit: whole model, its kernels in order, and kernels bound to other memory."""
        compiled, device = built.compiled, runtime_device(target)
        rng = np.random.default_rng(0)
        inputs = {spec.name: spec.random(rng) for spec in model.inputs}
        loaded: Any = compiler.load(compiled, device, inputs)
        expected = loaded.output_arrays()
        assert loaded.labels == [call.label for call in compiled.calls] and expected
        blocks: list[int] = []
        for number, tensor in enumerate(compiled.tensors):
            blocks.append(number if tensor.view_of is None else blocks[tensor.view_of])
        bound: list[Any] = []
        if compiler.has("weights"):
            bound.append(bind_in_one_piece(compiled, blocks, inputs))
        if bound and compiler.takes_builds_of_targets:  # plans on GPUs too
            bound.append(compiler.bind(compiled, device, inputs, blocks))
        for kernels in (loaded, *bound):
            assert all(kernel.run() for kernel in kernels.kernels)
            for ours, theirs in zip(kernels.output_arrays(), expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_tensors_are_given_or_written_by_one_kernel(self, compiler: Compiler, built: BuiltModel) -> None:
        """Check that each computed tensor is written by exactly one call, and that copied weights keep their names."""
        compiled = built.compiled
        written = [number for call in compiled.calls for number in call.writes]
        computed = [n for n, tensor in enumerate(compiled.tensors) if not tensor.given and tensor.view_of is None]
        assert sorted(written) == computed
        assert compiled.outputs and max(compiled.outputs) < len(compiled.tensors)
        if not compiler.has("weights"):
            return
        given = {tensor.given for tensor in compiled.tensors} - {""}
        weights = compiler.weights(compiled)
        assert weights.keys() <= given
        own = compiler.weights(compiler.with_own_weights(compiled))
        assert own.keys() == weights.keys() and all(own[name] is not weights[name] for name in weights)

    @pytest.mark.parametrize("in_registers", [False, True])
    def test_sums_of_products_are_those_that_they_say(
        self, compiler: Compiler, target: Target, in_registers: bool
    ) -> None:
        """Compare a `SumOfProducts` of known sizes with numpy's einsum, to 1e-5."""
        sizes = {"p": 3, "a": 2, "k": 5, "i": 4, "j": 2, "l": compiler.vector_lanes(target)}
        sums = SumOfProducts("sums", ("ki", "pkjl"), "pijl", sizes, in_registers)
        rng, device = np.random.default_rng(0), runtime_device(target)
        arrays = [rng.random(shape, dtype="float32") for shape in sums.shapes]
        bound = [compiler.array_on(array, device) for array in arrays]
        kernel = compiler.bound_kernel(sums.name, "", compiler.build_sums(sums, target), bound)
        assert kernel.error() is None and kernel.run()
        assert sums.terms == 3 * 2 * 5 * 4 * 2 * compiler.vector_lanes(target)
        expected = sizes["a"] * np.einsum("ki,pkjl->pijl", *arrays[:2])
        np.testing.assert_allclose(bound[-1].numpy(), expected, rtol=1e-5)

    def test_every_operator_of_a_build_has_a_schedule(self, built: BuiltModel) -> None:
        """Compare the keys of `schedules` with the workload keys of the build."""
        operators = {occurrence.operator.key for occurrence in built.compiled.by_label.values()}
        assert built.schedules.keys() == operators

    def test_an_operator_is_built_alone_with_the_schedule_of_the_model(
        self, compiler: Compiler, built: BuiltModel, target: Target
    ) -> None:
        """Build one heavy operator, and compare its label and schedule with those in the model."""
        occurrence = next(o for o in built.compiled.occurrences if o.operator.anchor in HEAVY)
        model = compiler.single_operator(occurrence)
        assert len(model.inputs) == len(occurrence.operator.inputs) + len(occurrence.operator.params)
        alone = compiler.build_operator(occurrence, target, NO_RECORDS)
        assert [o.label for o in alone.compiled.occurrences] == [occurrence.label]
        assert [call.label for call in alone.compiled.calls] == [occurrence.label]
        assert alone.schedules == {occurrence.operator.key: built.schedules[occurrence.operator.key]}

    def test_a_model_without_parallel_operators_stays_as_it_is(self, compiler: Compiler, model: ImportedModel) -> None:
        """Check that `merge_parallel` reports no kinds and keeps the inputs."""
        merged, kinds = compiler.merge_parallel(model)
        assert kinds == () and [spec.name for spec in merged.inputs] == [spec.name for spec in model.inputs]

    def test_every_heavy_operator_can_be_tuned(self, compiler: Compiler, model: ImportedModel, target: Target) -> None:
        """Check that `tunables` has tasks for each heavy operator, and for a single one by its key."""
        if not compiler.has("task"):
            pytest.skip(f"{compiler.name} does not tune")
        items, occurrences = compiler.tunables(model, target, None)
        heavy = {o.operator.key for o in occurrences if o.operator.anchor in HEAVY}
        assert heavy <= {key for item in items for key in item.operators}
        assert all(item.tasks for item in items)
        one, _ = compiler.tunables(model, target, {items[0].operators[0]})
        assert [item.anchor.key for item in one] == [items[0].anchor.key]

    def test_what_can_be_tuned_has_tasks_in_place(
        self, compiler: Compiler, model: ImportedModel, built: BuiltModel, target: Target
    ) -> None:
        """Compare the operators with `tasks` in a build with those of `tunables`."""
        tunes = compiler.has("task")
        occurrences = built.compiled.occurrences
        found = {one.operator.key for one in occurrences if compiler.tasks(one, target)}
        items = compiler.tunables(model, target, None)[0] if tunes else []
        assert found == {key for item in items for key in item.operators}

    def test_a_built_model_is_read_back(self, compiler: Compiler, built: BuiltModel, tmp_path: Path) -> None:
        """Write the build to files, and compare the fields of what `read` returns."""
        written = built.compiled
        _write(compiler, tmp_path, written)
        read = compiler.read(tmp_path)
        assert read.by_label.keys() == written.by_label.keys()
        assert [o.operator for o in read.occurrences] == [o.operator for o in written.occurrences]
        assert (read.executor, read.calls, read.tensors, read.outputs, read.notes, read.loops, read.code) == (
            written.executor,
            written.calls,
            written.tensors,
            written.outputs,
            written.notes,
            written.loops,
            written.code,
        )
        again = compiler.read(tmp_path, written)
        assert again == dataclasses.replace(written, library=again.library) and again.library is not written.library

    def test_damaged_files_are_no_model(self, compiler: Compiler, built: BuiltModel, tmp_path: Path) -> None:
        """Check that `read` raises an error for files that do not contain a compiled model."""
        _write(compiler, tmp_path, built.compiled)
        for path in tmp_path.iterdir():
            path.write_bytes(b"nothing")
        with pytest.raises((NotKept, OSError, ValueError, KeyError, TypeError)):
            compiler.read(tmp_path)


def _write(compiler: Compiler, folder: Path, compiled: CompiledModel) -> None:
    try:
        compiler.write(folder, compiled)
    except NotKept as error:
        pytest.skip(str(error))
