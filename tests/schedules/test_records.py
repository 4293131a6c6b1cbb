"""Schedule records: what is read, what is skipped, what stays."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from op_profiler.errors import OpProfilerError
from op_profiler.schedules import records
from op_profiler.schedules.records import Record, keep_best, parse_line, read_records

ROOT = Path(__file__).resolve().parents[2]
DATA = ("TENSOR", (1, 48), "float32")
WEIGHT = ("TENSOR", (2, 48, 32), "float32")
KNOBS = {"tile_x": 2, "split_k": 8, "outer": 0, "fuse": 1, "reorder": 0, "vectorize": 32, "unroll": 1}
RECORD = Record(
    target="llvm -keys=cpu",
    template="dense_pack.op_profiler",
    arguments=(DATA, WEIGHT, None, "float32"),
    config={"index": 5, "code_hash": None, "entity": [[n, "ot", v] for n, v in KNOBS.items()]},
    seconds=(1e-5, 1.2e-5),
    timestamp=1.0,
)


def test_a_line_is_read_back() -> None:
    assert parse_line(RECORD.to_json("0.19.0")) == RECORD


@pytest.mark.parametrize(
    "line",
    [
        RECORD.to_json("0.19.0")[:-20],
        "{}",
        "[]",
        "null",
        '"text"',
        "12",
        "not json",
        json.dumps({"input": ["llvm", "dense", [], {}], "result": [[1], 0, 0, 0]}),
        json.dumps({"input": ["llvm", "dense", [], {}], "config": {"entity": "x"}, "result": [[1], 0, 0, 0]}),
        json.dumps({"input": ["llvm", "dense", [], {}], "config": {"entity": []}, "result": [["x"], 0, 0, 0]}),
        json.dumps({"v": 0.1, "i": ["llvm", "dense"], "r": [[1], 0, 0, 0]}),
        "gASVCgAAAAAAAACMBmFsZXJ0lC4=",
    ],
)
def test_what_is_no_record_is_none(line: str) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("result", [[[1e9], 4, 0, 0], [[1e9], 0, 0, 0], [[], 0, 0, 0], [[-1.0], 0, 0, 0]])
def test_a_failed_trial_has_no_time(result: list[Any]) -> None:
    fields = json.loads(RECORD.to_json("0.19.0"))
    found = parse_line(json.dumps(fields | {"result": result}))
    assert found is not None and found.seconds == () and found.error_no != 0
    assert found.mean_seconds == float("inf")


def test_skipped_lines_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(RECORD.to_json("0.8") + "\n\nrubbish\n" + RECORD.to_json("0.8")[:50])
    found, skipped = read_records(file)
    assert (found, skipped) == ([RECORD], 2)
    with pytest.raises(OpProfilerError, match="cannot be read"):
        read_records(tmp_path / "missing")


def test_the_fastest_of_a_task_stays(tmp_path: Path) -> None:
    file = tmp_path / "llvm" / "x.jsonl"
    other = dataclasses.replace(RECORD, arguments=(DATA, WEIGHT, None, "float16"))
    assert keep_best(file, [RECORD, other]) == 2
    faster = dataclasses.replace(RECORD, seconds=(5e-6,))
    slower = dataclasses.replace(other, seconds=(1.0,))
    failed = dataclasses.replace(other, seconds=())
    assert keep_best(file, [faster, slower, failed]) == 2
    found = {r.task: r for r in read_records(file)[0]}
    assert found[RECORD.task].seconds == (5e-6,) and found[other.task].seconds == other.seconds
    assert not list(file.parent.glob("*.partial"))


def test_processes_that_write_together_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    (tmp_path / "record.json").write_text(RECORD.to_json("0.19.0"))
    code = (
        "import dataclasses, pathlib, sys\n"
        "from op_profiler.schedules.records import keep_best, read_records\n"
        "folder, number = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "record = read_records(folder / 'record.json')[0][0]\n"
        "for i in range(10):\n"
        "    keep_best(folder / 'x.jsonl', [dataclasses.replace(record, template=f'{number}-{i}')])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(number)], env=environment) for number in range(3)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    assert len(read_records(file)[0]) == 30


def test_autotvm_reads_and_applies_the_file(tmp_path: Path, tvm: Any) -> None:
    file = tmp_path / "x.jsonl"
    keep_best(file, [RECORD])
    assert len(list(tvm.autotvm.record.load_from_file(str(file)))) == 1
    workload = (RECORD.template, *RECORD.arguments)
    target = tvm.target.Target("llvm -mcpu=core-avx2")
    with tvm.autotvm.apply_history_best(str(file)) as history:
        assert history.query(target, workload).index == 5
    with file.open("a") as lines:
        lines.write("rubbish\n")
    with records.applied(file) as in_use:
        assert (in_use.count, in_use.skipped) == (1, 1)
        assert not tvm.autotvm.task.DispatchContext.current.query(target, workload).is_fallback
    with records.applied(tmp_path / "none") as in_use:
        assert (in_use.count, in_use.skipped) == (0, 0)


def test_where_records_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_SCHEDULES", str(tmp_path))
    assert records.record_file("auto", "llvm", "AMD EPYC (Zen 5)") == tmp_path / "llvm" / "amd-epyc-zen-5.jsonl"
    assert records.record_file("none", "llvm", "x") is None
    assert records.record_file(str(tmp_path / "mine"), "llvm", "../x") == tmp_path / "mine" / "llvm" / "x.jsonl"
    assert records.fingerprint(None) == records.fingerprint(tmp_path / "missing") == ""
    (tmp_path / "a").write_text("1")
    assert len(records.fingerprint(tmp_path / "a")) == 16
