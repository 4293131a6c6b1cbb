"""Logs of other tuners, and folders of records that fit nothing, are named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from op_profiler.dataset import Dataset, import_autotvm
from op_profiler.errors import OpProfilerError, UsageError
from op_profiler.schedules.record_files import check_folder
from op_profiler.schedules.records import Conditions
from op_profiler.schedules.usable_records import UsableRecords

OLD = {"i": ["llvm", "topi_nn_dense", [["TENSOR", [1, 8], "float32"]], {}, None, {}], "r": [[1e-3], 0, 1, 1], "v": 0.1}
ANSOR = {"i": [['["0a", 1]', "llvm"], [[], []]], "r": [[1e-3], 0, 1, 1], "v": "v0.6"}
META = [0, [[[], []], [1e-3], {"kind": "llvm"}, []]]
DENSE = [["TENSOR", [1, 8], "float32"], ["TENSOR", [4, 8], "float32"], None, "float32"]
LINE = {
    "input": ["llvm", "dense_nopack.x86", DENSE, {}],
    "config": {"index": 1, "code_hash": None, "entity": []},
    "result": [[1e-3], 0, 1.0, 1.0],
}


@pytest.mark.parametrize(
    ("line", "name"), [(OLD, "AutoTVM 0.1"), (ANSOR, "auto_scheduler"), (META, "MetaSchedule")], ids=["0.1", "as", "ms"]
)
def test_logs_of_other_tuners_are_named(line: object, name: str, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text(f"# a comment\n{json.dumps(line)}\n")
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset, pytest.raises(OpProfilerError, match=name):
        import_autotvm(dataset, file)
    with pytest.raises(UsageError, match=name):
        check_folder(str(file))
    (note,) = UsableRecords.of_file(file, Conditions(1), str(tmp_path)).notes(["any"])
    assert "no effect" in note and name in note


def test_records_that_fit_nothing_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    (note,) = UsableRecords.of_file(file, Conditions(1), str(tmp_path)).notes(["any"])
    assert "no effect" in note and str(file) in note
    file.write_text(json.dumps(LINE))
    records = UsableRecords.of_file(file, Conditions(1), str(tmp_path))
    (note,) = records.notes(["any"])
    assert "none of the 1 records" in note
    assert "no effect" not in " ".join(records.notes(records.chosen))
    assert not UsableRecords.of_file(file, Conditions(1)).notes(["any"])
