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

from op_profiler.compilers.relay.applied_records import applied
from op_profiler.errors import OpProfilerError
from op_profiler.schedules import record_files
from op_profiler.schedules.record_files import keep, read_records
from op_profiler.schedules.records import Conditions, Record, choose, computation_of, parse_line
from op_profiler.schedules.usable_records import UsableRecords, ruled

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
        *(
            RECORD.to_json("0.19.0").replace(text, damaged)
            for text, damaged in (
                ('["tile_x", "ot", 2]', '["tile_x"]'),
                ('["tile_x", "ot", 2]', '["tile_x", "zz", 2]'),
                ('["tile_x", "ot", 2]', '["tile_x", "sp", [[2]]]'),
                ('["tile_x", "ot", 2]', '["tile_x", "sp", 2]'),
                ('["tile_x", "ot", 2]', '[["tile_x"], "ot", 2]'),
                (", 1.0]", ", 1e20]"),
                (", 1.0]", ", NaN]"),
                (", 1.0]", ", -1]"),
                ("[1e-05,", "[1" + "0" * 400 + ","),
                ('"llvm -keys=cpu"', '"llvm \\ud800"'),
                ("null", "[" * 100_000 + "]" * 100_000),
                ("null", "[" * 200 + "]" * 200),
            )
        ),
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


def test_conditions_are_read_back_and_those_that_say_nothing_are_unknown() -> None:
    assert RECORD.conditions is None and "conditions" not in json.loads(RECORD.to_json("0.19.0"))
    known = dataclasses.replace(RECORD, conditions=Conditions(4, "cold"))
    assert parse_line(known.to_json("0.19.0")) == known
    for strange in ("x", {}, {"threads": -1, "cache": "hot"}, {"threads": 1, "cache": []}, {"threads": 1.5}):
        found = parse_line(json.dumps(json.loads(known.to_json("0.19.0")) | {"conditions": strange}))
        assert found is not None and found.conditions is None


def test_a_record_is_replaced_by_one_that_was_measured_against_it_whatever_their_times(tmp_path: Path) -> None:
    file = tmp_path / "llvm" / "x.jsonl"
    first = dataclasses.replace(RECORD, conditions=Conditions(2, "model"))
    assert keep(file, first)
    slower = dataclasses.replace(first, seconds=(1.0,), config=RECORD.config | {"index": 6})
    faster = dataclasses.replace(first, seconds=(1e-9,), config=RECORD.config | {"index": 7})
    assert not keep(file, faster) and read_records(file)[0] == [first]  # nobody has compared them
    assert keep(file, slower, beaten=[first]) and read_records(file)[0] == [slower]
    assert not keep(file, faster, beaten=[first]) and read_records(file)[0] == [slower]
    assert sorted(path.name for path in file.parent.iterdir()) == ["x.jsonl"]


def test_other_conditions_and_other_computations_stand_beside_and_other_templates_do_not(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    two_hot = dataclasses.replace(RECORD, conditions=Conditions(2, "hot"), seconds=(1e-6,))
    one_cold = dataclasses.replace(RECORD, conditions=Conditions(1, "cold"), seconds=(1e-3,))
    other = dataclasses.replace(two_hot, arguments=(DATA, WEIGHT, None, "float16"))
    assert all(keep(file, record) for record in (RECORD, two_hot, one_cold, other))
    stock = dataclasses.replace(two_hot, template="dense_pack.x86")
    assert not keep(file, stock)
    assert keep(file, stock, beaten=[two_hot])
    assert read_records(file)[0] == [RECORD, one_cold, other, stock]


def test_lines_that_are_no_records_survive_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text("# mine\n" + RECORD.to_json("0.8.0") + "\n")
    assert keep(file, dataclasses.replace(RECORD, conditions=Conditions(1)))
    assert file.read_text().splitlines()[:2] == ["# mine", RECORD.to_json("0.8.0")]


def test_a_build_takes_the_record_of_its_conditions_else_the_nearest() -> None:
    def of(threads: int, cache: str, seconds: float) -> Record:
        return dataclasses.replace(RECORD, conditions=Conditions(threads, cache), seconds=(seconds,))

    unknown = dataclasses.replace(RECORD, seconds=(1e-9,))
    records_ = [unknown, of(1, "cold", 1e-3), of(2, "hot", 1e-7), of(2, "model", 1e-5), of(8, "model", 1e-8)]

    def taken(*records_: Record, threads: int, cache: str = "model") -> Conditions | None:
        (record,) = choose(records_, Conditions(threads, cache)).values()
        return record.conditions

    assert taken(*records_, threads=2) == Conditions(2, "model")
    assert taken(*records_, threads=2, cache="hot") == Conditions(2, "hot")
    assert taken(*records_, threads=1) == Conditions(1, "cold")
    assert taken(*records_, threads=6) == taken(*records_, threads=64) == Conditions(8, "model")
    assert taken(unknown, threads=2) is None
    assert taken(unknown, of(64, "cold", 1.0), threads=1) == Conditions(64, "cold")
    assert choose([dataclasses.replace(RECORD, seconds=())], Conditions(1)) == {}


def test_all_templates_of_an_operator_are_one_computation() -> None:
    data, rest = (
        ("TENSOR", (1, 4, 14, 14, 16), "float32"),
        ((1, 1), (1, 1, 1, 1), (1, 1), "NCHW16c", "NCHW32c", "float32"),
    )
    direct = (data, ("TENSOR", (8, 4, 3, 3, 16, 32), "float32"), *rest)
    winograd = (data, ("TENSOR", (6, 6, 8, 64, 32), "float32"), *rest)
    names = ("conv2d_NCHWc.x86", "conv2d_NCHWc.op_profiler")
    one = computation_of("conv2d_NCHWc_winograd.op_profiler", winograd)
    assert {computation_of(name, direct) for name in names} == {one}
    assert computation_of("depthwise_conv2d_NCHWc.x86", direct) != one
    assert computation_of("batch_matmul.x86", (data, data, 0)) == computation_of(
        "batch_matmul.x86", [*[data] * 2, False]
    )
    computation_of("conv2d_NCHWc_winograd.op_profiler", ("damaged", 3))


def test_the_digest_changes_with_the_records_that_a_build_asks_for_only(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    mine, other = RECORD.computation, dataclasses.replace(RECORD, template="other.x86").computation

    def digest(*asked: str, threads: int = 1) -> str:
        return UsableRecords.of_file(file, Conditions(threads)).digest(asked)

    assert UsableRecords.of_file(None, Conditions(1)).digest([mine]) == digest(mine) == ""
    keep(file, dataclasses.replace(RECORD, conditions=Conditions(2)))
    before = digest(mine, other)
    assert len(before) == 16 and digest(other) == ""
    keep(file, dataclasses.replace(RECORD, template="further.x86", conditions=Conditions(1)))
    assert digest(other, mine) == before
    keep(file, dataclasses.replace(RECORD, conditions=Conditions(1), config=RECORD.config | {"index": 9}))
    assert digest(mine) != before
    assert digest(mine, threads=2) == before


def test_processes_that_write_together_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    (tmp_path / "record.json").write_text(RECORD.to_json("0.19.0"))
    code = (
        "import dataclasses, pathlib, sys\n"
        "from op_profiler.schedules.record_files import keep, read_records\n"
        "folder, number = pathlib.Path(sys.argv[1]), sys.argv[2]\n"
        "record = read_records(folder / 'record.json')[0][0]\n"
        "for i in range(10):\n"
        "    assert keep(folder / 'x.jsonl', dataclasses.replace(record, template=f'{number}-{i}'))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", code, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(number)], env=environment) for number in range(3)]
    assert [process.wait(timeout=900) for process in processes] == [0, 0, 0]
    assert len(read_records(file)[0]) == 30


def test_autotvm_reads_and_applies_the_file(tmp_path: Path, tvm: Any) -> None:
    file = tmp_path / "x.jsonl"
    keep(file, dataclasses.replace(RECORD, conditions=Conditions(2, "model")))
    ((found, result),) = tvm.autotvm.record.load_from_file(str(file))
    assert found.config.index == 5 and result.costs == RECORD.seconds
    workload = (RECORD.template, *RECORD.arguments)
    target = tvm.target.Target("llvm -mcpu=core-avx2")
    with tvm.autotvm.apply_history_best(str(file)) as history:
        assert history.query(target, workload).index == 5


def test_a_build_is_told_which_records_it_got_and_for_which_conditions(tmp_path: Path, tvm: Any) -> None:
    file = tmp_path / "x.jsonl"
    keep(file, dataclasses.replace(RECORD, conditions=Conditions(2, "model")))
    with file.open("a") as lines:
        lines.write("rubbish\n" + dataclasses.replace(RECORD, template="unknown.x86").to_json("0.19.0"))
    target = tvm.target.Target("llvm -mcpu=core-avx2")

    def query(template: str) -> Any:
        return tvm.autotvm.task.DispatchContext.current.query(target, (template, *RECORD.arguments))

    records = UsableRecords.of_file(file, Conditions(2))
    with applied(records) as asked:
        assert not any("compiled with" in note for note in records.notes(asked))
        assert query(RECORD.template).index == 5 and query("other.x86").is_fallback
    assert asked == {RECORD.computation, ruled(RECORD.computation), computation_of("other.x86", RECORD.arguments)}
    compiled, skipped = records.notes(asked)
    assert compiled == f"compiled with schedule records: 1 of {file}" and skipped.startswith("1 lines")
    records = UsableRecords.of_file(file, Conditions(1))
    with applied(records) as asked:
        assert query(RECORD.template).index == query("unknown.x86").index == 5
    _, other, unknown, _ = records.notes(asked)
    assert "1 of them are of other conditions (2 threads, in a model)" in other and "(1 thread, in a model)" in other
    assert "unknown conditions" in unknown
    records = UsableRecords.of_file(tmp_path / "none", Conditions(1))
    with applied(records) as asked:
        assert query(RECORD.template).is_fallback
    assert asked == {RECORD.computation, ruled(RECORD.computation)} and not records.notes(asked)


def test_where_records_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OP_PROFILER_SCHEDULES", str(tmp_path))
    assert record_files.record_file("auto", "llvm", "AMD EPYC (Zen 5)") == tmp_path / "llvm" / "amd-epyc-zen-5.jsonl"
    assert record_files.record_file("none", "llvm", "x") is None
    assert record_files.record_file(str(tmp_path / "mine"), "llvm", "../x") == tmp_path / "mine" / "llvm" / "x.jsonl"


def test_a_checkout_reads_and_writes_what_ships(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OP_PROFILER_SCHEDULES", raising=False)
    assert record_files.default_folder() == ROOT / "schedules"
    for file in (ROOT / "schedules").glob("llvm/*.jsonl"):
        assert record_files.record_file("auto", "llvm", file.stem) == file


def test_an_installed_package_reads_what_ships_until_there_is_a_record_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "installed" / "schedules" / "llvm" / "x.jsonl"
    keep(installed, RECORD)
    monkeypatch.setattr("op_profiler.shipped._FOLDER", tmp_path / "installed")
    monkeypatch.delenv("OP_PROFILER_SCHEDULES", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own = tmp_path / "data" / "op_profiler" / "schedules" / "llvm" / "x.jsonl"
    assert record_files.record_file("auto", "llvm", "x") == installed
    assert record_files.record_file("auto", "llvm", "y") == own.with_name("y.jsonl"), "none ships"

    shipped = installed.read_text()
    first, second = (dataclasses.replace(RECORD, conditions=Conditions(n, "model")) for n in (2, 4))
    assert keep(installed, first) and keep(installed, second)
    assert installed.read_text() == shipped
    assert record_files.record_file("auto", "llvm", "x") == own
    assert read_records(own)[0] == [RECORD, first, second]

    monkeypatch.setenv("OP_PROFILER_SCHEDULES", str(tmp_path / "named"))
    assert record_files.record_file("auto", "llvm", "x") == tmp_path / "named" / "llvm" / "x.jsonl"
