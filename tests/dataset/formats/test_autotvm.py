"""Logs of AutoTVM as others wrote them."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset, flat_rows, import_autotvm

from ...command_line import op_profiler

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared" / "data"
LOGS = sorted(SHARED.glob("*-autotvm.json"))


def tensor(*shape: int) -> list[Any]:
    return ["TENSOR", list(shape), "float32"]


def line(template: str, arguments: list[Any], costs: list[float], error: int = 0) -> str:
    config = {"index": 1, "code_hash": None, "entity": [["tile_x", "sp", [-1, 8]], ["unroll_kw", "ot", True]]}
    result = [costs, error, 0.5, 1662554099.0]
    return json.dumps({"input": ["llvm -keys=cpu", template, arguments, {}], "config": config, "result": result})


CONV = [tensor(1, 16, 8, 8), tensor(32, 16, 3, 3), [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"]
DENSE = [tensor(1, 16), tensor(8, 16), None, "float32"]
LINES = [
    line("conv2d_NCHWc.x86", CONV, [1e-5, 3e-5]),
    line("dense_nopack.x86", DENSE, [1e9], 4),
    line("dense_nopack.x86", DENSE, [2e-6]).replace("true", "false"),
    line("strange.template", DENSE, [2e-6]),
    "# a comment",
    line("dense_nopack.x86", DENSE, [2e-6])[:-9],
]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.json"
    path.write_text("\n".join(LINES))
    return path


def test_seconds_become_microseconds_and_nothing_is_lost_in_silence(log: Path, url: str) -> None:
    with Dataset.open(url) as dataset:
        done = import_autotvm(dataset, log, processor="Xeon")
        assert (done.rows, done.failed, done.unreadable, done.unknown) == (3, 1, 1, {"strange.template": 1})
        rows = list(flat_rows(dataset))
        again = import_autotvm(dataset, log, processor="Xeon")
        assert again == done and len(list(flat_rows(dataset))) == len(rows) == 3
    (conv,) = (r for r in rows if r["anchor"] == "nn.conv2d")
    assert conv["median_us"] == pytest.approx(20.0) and conv["samples_us"] == [[10.0], [30.0]]
    assert conv["flops"] == 2 * 32 * 8 * 8 * 16 * 9 and conv["outputs"][0]["shape"] == [1, 32, 8, 8]
    assert (conv["processor"], conv["cores"], conv["threads"], conv["threads_effective"]) == ("Xeon", None, 0, None)
    assert conv["tile"] == {"x": 8} and conv["unroll"] == "unroll_kw"
    (failed,) = (r for r in rows if r["error"] is not None)
    assert failed["median_us"] is None and "4" in failed["error"]


def test_repeats_of_a_configuration_are_samples_of_one_measurement(tmp_path: Path, url: str) -> None:
    log = tmp_path / "log.json"
    times = ([1e-5], [3e-5, 2e-5], [4e-5])
    failed = line("conv2d_NCHWc.x86", CONV, [1e9], 4)
    log.write_text("\n".join([*(line("conv2d_NCHWc.x86", CONV, costs) for costs in times), failed, failed]))
    with Dataset.open(url) as dataset:
        done = import_autotvm(dataset, log, processor="repeating")
        assert (done.rows, done.failed, done.merged, done.unreadable) == (2, 1, 3, 0)
        (row,) = (r for r in flat_rows(dataset) if r["processor"] == "repeating")
    assert row["samples_us"] == [[10.0], [30.0], [20.0], [40.0]] and row["error"] is None


@pytest.mark.parametrize(
    ("text", "damaged"),
    [
        ('[["tile_x", "sp", [-1, 8]], ', '[["tile_x"], '),
        ('["tile_x", "sp", [-1, 8]]', '["tile_x", "sp", [-1, NaN]]'),
        ("1662554099.0", "1e20"),
        ("1662554099.0", "Infinity"),
        ('["TENSOR", [1, 16], "float32"]', "[" * 5000 + "]" * 5000),
        ('["TENSOR", [1, 16], "float32"]', "[" * 100 + "]" * 100),
        ("[2e-06]", "[" + "9" * 5000 + "]"),
    ],
)
def test_a_damaged_line_costs_itself_only(text: str, damaged: str, tmp_path: Path) -> None:
    whole = line("dense_nopack.x86", DENSE, [2e-6])
    assert text in whole
    (tmp_path / "log.json").write_text(whole.replace(text, damaged) + "\n" + whole)
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset:
        done = import_autotvm(dataset, tmp_path / "log.json")
    assert (done.rows, done.unreadable) == (1, 1)


def test_a_suspicious_record_is_told_by_its_line(tmp_path: Path) -> None:
    records = [line("dense_nopack.x86", DENSE, [2e-6]).replace("-1, 8", f"-1, {tile}") for tile in range(1, 40)]
    wrong = line("dense_nopack.x86", DENSE, [1e-11]).replace("-1, 8", "-1, 50")
    (tmp_path / "log.json").write_text("\n".join(["no record", "", *records, wrong]))
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset:
        done = import_autotvm(dataset, tmp_path / "log.json")
    assert done.rows == 40 and done.examples[0].startswith("line 42: ")


@pytest.mark.skipif(not LOGS, reason=f"no AutoTVM logs in {SHARED}")
@pytest.mark.parametrize("path", LOGS, ids=lambda p: p.stem)
def test_real_logs_are_imported_whole(path: Path, tmp_path: Path) -> None:
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset:
        done = import_autotvm(dataset, path)
        assert (done.rows + done.merged, done.unreadable, done.unknown) == (len(lines), 0, {})
        rows = list(flat_rows(dataset))
    if done.merged:
        return
    assert Counter(r["template"] for r in rows) == Counter(entry["input"][1] for entry in lines)
    wanted = sorted(sum(e["result"][0]) / len(e["result"][0]) * 1e6 for e in lines if not e["result"][1])
    assert sorted(r["mean_us"] for r in rows if not r["error"]) == pytest.approx(wanted, rel=1e-3, abs=1e-3)


def test_the_command_counts_and_refuses(log: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return op_profiler("import", *arguments, "--db", f"sqlite:///{tmp_path / 'x.db'}")

    done = run("--format", "autotvm", str(log))
    assert done.returncode == 0, done.stderr
    assert "3 measurements" in done.stdout and "1 lines" in done.stdout and "strange.template" in done.stdout
    assert json.loads(run(str(log), "--json").stdout)["rows"] == 3
    assert run(str(log), "--format", "autotvn").returncode == 2
    assert "does not exist" in run(str(tmp_path / "missing")).stderr
    (tmp_path / "empty.txt").write_text("nothing\n")
    nothing = run(str(tmp_path / "empty.txt"))
    assert nothing.returncode == 5 and "could be imported" in nothing.stderr
