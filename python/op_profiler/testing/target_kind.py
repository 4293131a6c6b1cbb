"""The test suite of the contract `TargetKind`."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from typing import TypeVar

import pytest

from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import MeasureError, MissingPackageError, UsageError
from op_profiler.resources import local_resources
from op_profiler.targets import TARGETS
from op_profiler.targets.machine import Place
from op_profiler.targets.target import kind_of, resolve_target, tvm_identity
from op_profiler.targets.target_kind import TargetKind

_Answer = TypeVar("_Answer")
PLACE = Place(host="127.0.0.1", port=9, key="a board")


class TargetKindSuite:
    """Tests a kind of target, whether or not this machine has it.

    Fixtures:
        kind: a registered `op_profiler.targets.target_kind.TargetKind`.
        target: a target string, as users write it, that can be resolved on this machine.
    """

    @pytest.fixture
    def kind(self) -> TargetKind:
        """The registered `TargetKind` under test."""
        raise NotImplementedError

    @pytest.fixture
    def target(self, kind: TargetKind) -> str:
        """A target of the kind that can be resolved on this machine; for a GPU, with its architecture."""
        return f"{kind.name} -arch=sm_90" if kind.on_gpu else kind.name

    def test_it_is_found_by_its_name_with_and_without_options(self, kind: TargetKind) -> None:
        """Check that `kind_of` returns the registered instance for the name and for a target string."""
        assert kind.name in TARGETS
        assert kind_of(kind.name) is kind and kind_of(f" {kind.name} -mcpu=x ") is kind
        assert not inspect.isabstract(type(kind)) and type(kind).__doc__

    def test_it_says_where_its_kernels_run(self, kind: TargetKind) -> None:
        """Check that exactly one of `on_host`, `on_gpu` and `is_board` is set, and that a TVM is named."""
        assert [kind.on_host, kind.on_gpu, kind.is_board].count(True) == 1
        assert (kind.driving_cores == 0) == kind.is_board
        assert kind.tvm_packages and kind.tvm_build in ("default", *TARGETS)
        assert tvm_identity(kind.name)

    def test_usual_thread_counts_are_accepted(self, kind: TargetKind) -> None:
        """Check that default thread counts are sorted and valid, and -1 is not, on this machine and on another one."""
        for place in (None, PLACE):
            counts = kind.default_thread_counts(place)
            assert counts and list(counts) == sorted(set(counts))
            kind.check_threads(counts, place)
            with pytest.raises(UsageError, match="--threads -1"):
                kind.check_threads((-1,), place)

    def test_a_machine_here_is_named_locked_and_identified_or_there_is_none(self, kind: TargetKind) -> None:
        """Check that there is an identity exactly if there is a lock, and that boards have neither lock nor worker."""
        assert kind.processor_name()
        lock, identity, worker = _answer(kind.lock), _answer(kind.machine_identity), _answer(kind.trial_worker)
        assert (identity is None) == (lock is None)
        if kind.is_board:
            assert lock is None and worker is None
        else:
            assert worker is not None and worker.cold_mechanism

    def test_it_takes_the_resources_that_its_kernels_notice(self, kind: TargetKind) -> None:
        """Check that a rejected resource is named, and that only GPUs accept resources of GPUs."""
        for resource in local_resources():
            try:
                kind.check_resource(resource)
            except UsageError as error:
                assert resource.name in str(error)
            else:
                assert kind.on_gpu or not resource.of_gpu

    def test_it_is_resolved_to_what_tvm_compiles_for(self, kind: TargetKind, target: str) -> None:
        """Check that `resolve_target` returns TVM's target, and that int8 keeps the kind."""
        resolved = resolve_target(target)
        assert isinstance(resolved, load_tvm().target.Target)
        assert ("gpu" in resolved.keys) == kind.on_gpu
        assert kind.for_int8(resolved).kind.name == resolved.kind.name

    def test_a_place_has_no_vendor(self, kind: TargetKind) -> None:
        """Check that `--vendor true` is rejected for another machine, for boards, and if torch is not installed."""
        with pytest.raises(UsageError, match="--vendor true"):
            kind.check_vendor(PLACE)
        if kind.is_board:
            with pytest.raises(UsageError, match="--vendor true"):
                kind.check_vendor(None)
        elif importlib.util.find_spec("torch") is None:
            with pytest.raises(MissingPackageError, match="--vendor true"):
                kind.check_vendor(None)


def _answer(ask: Callable[[], _Answer]) -> _Answer | None:
    """Call a function and return its result; None if it raises MeasureError, because the machine is missing."""
    try:
        return ask()
    except MeasureError as error:
        assert str(error)
        return None
