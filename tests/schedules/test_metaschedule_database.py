"""Records in the form of MetaSchedule's databases, without TVM."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from op_profiler.schedules.metaschedule_database import ANNOTATION, note_of
from op_profiler.schedules.record_files import keep, read_records, record_file
from op_profiler.schedules.records import DATABASES, FUNCTION, LINES, Conditions, Record, computation_of, parse_line

KNOBS = {"tile_x": 32, "compute_at": -1, "unroll": 2}
TRACE = [[["GetSBlock", [], ["root", "main"], ["b0"]]], []]
NOTED = [[*TRACE[0], ["Annotate", ["b0", f'"{note_of("matmul.relax", KNOBS)}"'], [ANNOTATION], []]], []]
RECORD = Record(
    target='{"kind": "llvm"}',
    template="matmul.relax",
    arguments=(FUNCTION, "12345678901234567890", "text"),
    config={
        "index": 0,
        "entity": [[name, "ot", value] for name, value in KNOBS.items()],
        "trace": NOTED,
        "args_info": [["TENSOR", "float32", [1, 2]]],
    },
    seconds=(1e-5,),
    conditions=Conditions(2),
)


def test_a_record_is_read_back_with_its_conditions(tmp_path: Path) -> None:
    others = [
        dataclasses.replace(RECORD, conditions=Conditions(1, "hot")),
        dataclasses.replace(RECORD, arguments=(FUNCTION, "7", "other")),
        dataclasses.replace(RECORD, conditions=None),
    ]
    for record in (RECORD, *others):
        assert keep(tmp_path, record)
    found, skipped = read_records(tmp_path)
    assert skipped == 0 and sorted(found, key=repr) == sorted([RECORD, *others], key=repr)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"2-threads-model", "1-threads-hot"}


def test_a_workload_stands_once_and_each_record_names_its_line(tmp_path: Path) -> None:
    other = dataclasses.replace(RECORD, arguments=(FUNCTION, "7", "other"))
    better = dataclasses.replace(RECORD, seconds=(5e-6,))
    assert keep(tmp_path, RECORD) and keep(tmp_path, other) and keep(tmp_path, better, [RECORD])
    folder = tmp_path / "2-threads-model"
    workloads = [json.loads(line) for line in (folder / "database_workload.json").read_text().splitlines()]
    assert workloads == [["12345678901234567890", "text"], ["7", "other"]]
    lines = [json.loads(line) for line in (folder / "database_tuning_record.json").read_text().splitlines()]
    assert sorted((number, costs) for number, (_, costs, _, _) in lines) == [(0, [5e-6]), (1, [1e-5])]


def test_all_templates_of_one_function_are_one_computation() -> None:
    assert RECORD.computation == computation_of("metaschedule", RECORD.arguments)
    assert RECORD.computation != computation_of("matmul.relax", (FUNCTION, "7", "text"))


def test_it_is_also_one_line_as_a_run_keeps_it() -> None:
    assert parse_line(RECORD.to_json("0.27.0")) == RECORD


def test_a_trace_without_a_note_has_no_knobs(tmp_path: Path) -> None:
    keep(tmp_path, dataclasses.replace(RECORD, config=RECORD.config | {"trace": TRACE}))
    (read,) = read_records(tmp_path)[0]
    assert read.template == "metaschedule" and read.knobs == {}


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        "null",
        "not json",
        json.dumps([9, [NOTED, [1e-5], {}, []]]),
        json.dumps([-1, [NOTED, [1e-5], {}, []]]),
        json.dumps([0, [NOTED, [1e-5], {}]]),
        json.dumps([0, [[{}, []], [1e-5], {}, []]]),
        json.dumps([0, [[[1], []], [1e-5], {}, []]]),
        json.dumps([0, [[[["Annotate", [], [ANNOTATION], []]], []], [1e-5], {}, []]]),
        json.dumps([0, [[[["Annotate", ["b0", 3], [ANNOTATION], []]], []], [1e-5], {}, []]]),
        json.dumps([0, [[[["Annotate", ["b0", "x y=z"], [ANNOTATION], []]], []], [1e-5], {}, []]]),
        json.dumps([0, [NOTED, ["slow"], {}, []]]),
        "[" * 5000,
    ],
)
def test_damaged_lines_are_counted_and_stay(tmp_path: Path, line: str) -> None:
    keep(tmp_path, RECORD)
    file = tmp_path / "2-threads-model" / "database_tuning_record.json"
    file.write_text(file.read_text() + line + "\n")
    assert read_records(tmp_path) == ([RECORD], 1)
    assert keep(tmp_path, dataclasses.replace(RECORD, arguments=(FUNCTION, "7", "other")))
    assert line in file.read_text().splitlines() and len(read_records(tmp_path)[0]) == 2


@pytest.mark.parametrize("costs", [None, [], [1e9], [0.0]])
def test_a_failed_trial_is_no_schedule_to_choose(tmp_path: Path, costs: Any) -> None:
    keep(tmp_path, RECORD)
    file = tmp_path / "2-threads-model" / "database_tuning_record.json"
    file.write_text(json.dumps([0, [NOTED, costs, {"kind": "llvm"}, []]]) + "\n")
    (read,) = read_records(tmp_path)[0]
    assert read.seconds == () and read.error_no == 1


def test_a_record_is_kept_in_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "database_workload.json").touch()
    monkeypatch.chdir(tmp_path)
    place = record_file(".", "relax/llvm", "Some CPU", DATABASES)
    assert place == tmp_path.resolve() and keep(place, RECORD)
    assert read_records(place)[0] == [RECORD]


def test_each_form_has_its_place(tmp_path: Path) -> None:
    assert record_file(str(tmp_path), "llvm", "Some CPU", LINES) == tmp_path / "llvm" / "some-cpu.jsonl"
    place = record_file(str(tmp_path), "relax/llvm", "Some CPU", DATABASES)
    assert place == tmp_path / "relax" / "llvm" / "some-cpu.metaschedule"
    (tmp_path / "database_workload.json").touch()
    assert record_file(str(tmp_path), "relax/llvm", "Some CPU", DATABASES) == tmp_path
    assert record_file(str(tmp_path), "llvm", "Some CPU", LINES) == tmp_path / "llvm" / "some-cpu.jsonl"
