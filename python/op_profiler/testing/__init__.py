"""Test suites for authors of new implementations: one for each kind with a registry, and for other interfaces.

Derive a class from a suite, give its fixtures, and let pytest collect it::

    # tests/test_my_format.py
    import pytest
    from op_profiler.testing import FormatSuite

    class TestMyFormat(FormatSuite):
        @pytest.fixture
        def format(self):
            return my_package.FORMAT

        @pytest.fixture
        def example(self):
            return b"conv 3 224 224 30.9\\n"

Every suite names its fixtures in its docstring. A fixture with ``params`` tests several implementations with one class.

pytest is not among the dependencies of op_profiler: ``pip install pytest``.
"""

from __future__ import annotations

try:
    import pytest
except ImportError:
    from op_profiler.errors import MissingPackageError

    raise MissingPackageError("pytest", "op_profiler.testing", extra="test") from None

# So that a failed assertion shows its values; before the suites are imported.
_SUITES = (
    "compiler",
    "executor",
    "format",
    "frontend",
    "machine",
    "policy",
    "predictor",
    "resource",
    "target_kind",
    "tuner",
)
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))

from op_profiler.testing.compiler import CompilerSuite  # noqa: E402
from op_profiler.testing.executor import ExecutorSuite  # noqa: E402
from op_profiler.testing.format import FormatSuite  # noqa: E402
from op_profiler.testing.frontend import FrontendSuite  # noqa: E402
from op_profiler.testing.machine import MachineSuite  # noqa: E402
from op_profiler.testing.policy import PolicySuite  # noqa: E402
from op_profiler.testing.predictor import LibraryPredictorSuite, RegressorSuite  # noqa: E402
from op_profiler.testing.resource import ResourceSuite  # noqa: E402
from op_profiler.testing.target_kind import TargetKindSuite  # noqa: E402
from op_profiler.testing.tuner import TunerSuite  # noqa: E402

__all__ = [
    "CompilerSuite",
    "ExecutorSuite",
    "FormatSuite",
    "FrontendSuite",
    "LibraryPredictorSuite",
    "MachineSuite",
    "PolicySuite",
    "RegressorSuite",
    "ResourceSuite",
    "TargetKindSuite",
    "TunerSuite",
]
