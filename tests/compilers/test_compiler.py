"""Every compiler, by the suite of its contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from op_profiler.compilers import COMPILERS
from op_profiler.compilers.compiled_model import BuiltModel
from op_profiler.compilers.compiler import Compiler, NotKept
from op_profiler.compilers.imported_model import ImportedModel
from op_profiler.operators.cost import HEAVY
from op_profiler.testing import CompilerSuite


class TestRelay(CompilerSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def compiler(cls) -> Compiler:
        return COMPILERS.get("relay")

    @pytest.fixture(scope="class")
    @classmethod
    def model(cls, small_network: ImportedModel) -> ImportedModel:
        return small_network

    @pytest.fixture(scope="class")
    @classmethod
    def target(cls, target: Any) -> Any:
        return target

    def test_a_build_asks_for_records_of_its_heavy_operators(
        self, compiler: Compiler, model: ImportedModel, target: Any, built: BuiltModel
    ) -> None:
        assert built.asked
        heavy = [o for o in built.compiled.occurrences if o.operator.anchor in HEAVY]
        assert heavy and all(built.schedules[o.operator.key].template != "injective" for o in heavy)

    def test_damaged_code_is_no_model(self, compiler: Compiler, built: BuiltModel, tmp_path: Path) -> None:
        compiler.write(tmp_path, built.compiled)
        next(tmp_path.glob("*.bc")).write_bytes(b"nothing")
        with pytest.raises(NotKept):
            compiler.read(tmp_path)
