"""Every format, with a small file of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset
from op_profiler.dataset.formats import FORMATS
from op_profiler.dataset.formats.format import Format
from op_profiler.testing import FormatSuite

from ...tables import TABLES

CONVOLUTION = [["TENSOR", [1, 16, 8, 8], "float32"], ["TENSOR", [32, 16, 3, 3], "float32"], [1, 1], [1, 1, 1, 1]]
RECORD: dict[str, Any] = {
    "input": ["llvm", "conv2d_NCHWc.x86", [*CONVOLUTION, [1, 1], "NCHW", "NCHW", "float32"], {}],
    "config": {"index": 1, "code_hash": None, "entity": [["tile_ow", "sp", [-1, 8]], ["unroll_kw", "ot", True]]},
    "result": [[1e-5], 0, 0.5, 1662554099.0],
    "version": 0.2,
    "tvm_version": "0.19.0",
}
TINYNAS = "{Regular,128,3,480,480,192,7,2,1} 30.9881\n{Depthwise,1,32,8,9,32,3,1,0} 0.01\n"
EXAMPLES = TABLES | {"tinynas": TINYNAS, "autotvm": json.dumps(RECORD) + "\n"}


class TestFormats(FormatSuite):
    @pytest.fixture(params=FORMATS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def format(self, name: str) -> Format:
        return FORMATS.get(name)

    @pytest.fixture
    def example(self, name: str, format: Format, tmp_path: Path) -> bytes:
        """Of the flat formats what they write of a small table."""
        if name in EXAMPLES:
            return EXAMPLES[name].encode()
        (tmp_path / "table").write_text(EXAMPLES["tinynas"])
        with Dataset.open(f"sqlite:///{tmp_path / 'made.db'}") as dataset:
            FORMATS.get("tinynas").read_into(dataset, tmp_path / "table")
            format.write_from(dataset, tmp_path / "flat")
        return (tmp_path / "flat").read_bytes()
