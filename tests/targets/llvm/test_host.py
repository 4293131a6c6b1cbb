"""This machine's processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from op_profiler.cores import available_cores
from op_profiler.targets.llvm.host import Host
from op_profiler.targets.machine import Machine
from op_profiler.testing import MachineSuite


@pytest.fixture(scope="module")
def host(target: Any) -> Iterator[Host]:
    opened = Host(target, available_cores())
    yield opened
    opened.close()


class TestHost(MachineSuite):
    @pytest.fixture
    def machine(self, host: Host) -> Machine:
        return host

    @pytest.fixture
    def compiled(self, compiled_small: Any) -> Any:
        return compiled_small

    @pytest.fixture
    def inputs(self) -> dict[str, np.ndarray]:
        return {"data": np.random.default_rng(1).standard_normal((1, 16, 32, 32)).astype("float32")}
