"""The test suite of the contract `Frontend`, a source of models."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from typing import Any

import pytest

from op_profiler.child_processes import python_path
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.frontends.frontend import Frontend, ModelRequest

_LISTED = """
import importlib, sys
from op_profiler.errors import OpProfilerError
from op_profiler.frontends.frontend import Frontend, ModelRequest
module, source, name = sys.argv[1:]
found = [value for value in vars(importlib.import_module(module)).values() if isinstance(value, Frontend)]
(frontend,) = [one for one in found if one.source == source]
frontend.names(), frontend.default_names()
try:
    frontend.check(ModelRequest(source=source, name=name))
except OpProfilerError:
    pass
print([name for name in ("numpy", "tvm", "torch", "tensorflow", "transformers", "onnx") if name in sys.modules])
"""


class FrontendSuite:
    """Tests that a source lists names without heavy imports, rejects impossible requests, and lowers reproducibly.

    Fixtures:
        frontend: the `op_profiler.frontends.frontend.Frontend` under test; the module that defines its class must
            contain it as a module-level variable.
        model: a request for a model of the source, as small as possible.
        unknown: a name that the source rejects.
    """

    @pytest.fixture
    def frontend(self) -> Frontend:
        """The `Frontend` under test."""
        raise NotImplementedError

    @pytest.fixture
    def model(self) -> ModelRequest:
        """A request for a small model of the source."""
        raise NotImplementedError

    @pytest.fixture
    def unknown(self) -> str:
        """A name that the source rejects."""
        return "no-such-model"

    def test_default_names_are_names(self, frontend: Frontend) -> None:
        """Check that `names` is sorted without duplicates and contains `default_names`."""
        names = frontend.names()
        assert names == sorted(set(names))
        assert not names or set(frontend.default_names()) <= set(names)

    def test_a_model_is_accepted(self, frontend: Frontend, model: ModelRequest) -> None:
        """Check that `check` raises nothing for `model`."""
        assert model.source == frontend.source
        frontend.check(model)

    def test_an_unknown_name_is_refused_with_the_name(self, frontend: Frontend, unknown: str) -> None:
        """Check that the error of `check` contains the name."""
        with pytest.raises(OpProfilerError) as refused:
            frontend.check(ModelRequest(source=frontend.source, name=unknown))
        assert unknown in str(refused.value)

    @pytest.mark.parametrize("change", [{"name": " "}, {"batch_size": 0}, {"sequence_length": 0}], ids=str)
    def test_what_makes_no_sense_is_refused(
        self, frontend: Frontend, model: ModelRequest, change: dict[str, Any]
    ) -> None:
        """Check that a blank name, a batch of 0 and a sequence of 0 raise UsageError."""
        with pytest.raises(UsageError):
            frontend.check(dataclasses.replace(model, **change))

    def test_names_and_checks_import_nothing_heavy(self, frontend: Frontend, unknown: str) -> None:
        """List names and check a request in a new Python, and look for numpy, TVM and frameworks in `sys.modules`."""
        words = [type(frontend).__module__, frontend.source, unknown]
        done = subprocess.run(
            [sys.executable, "-c", _LISTED, *words],
            env={**os.environ, "PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr

    def test_a_fingerprint_follows_from_the_request(self, frontend: Frontend, model: ModelRequest) -> None:
        """Check that fingerprints of one request are equal, and differ for another batch size."""
        first = frontend.fingerprint(model)
        assert first == frontend.fingerprint(model)
        if first is not None:
            assert first != frontend.fingerprint(dataclasses.replace(model, batch_size=model.batch_size + 1))

    def test_a_request_lowers_to_the_same_operators_twice(self, frontend: Frontend, model: ModelRequest) -> None:
        """Load a model twice: equal structural hash, inputs and parameter names."""
        hashed = load_tvm().ir.structural_hash
        first, second = frontend.load(model), frontend.load(model)
        assert hashed(first.mod) == hashed(second.mod)
        assert first.inputs == second.inputs and first.inputs and first.batch_size == model.batch_size
        assert set(first.params) == set(second.params)
        named = [variable.name_hint for variable in first.mod["main"].params]
        assert [spec.name for spec in first.inputs] == [name for name in named if name not in first.params]
