"""What ``op-profiler analyze`` prints, draws and refuses."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import warnings
import xml.etree.ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from op_profiler.cli import application
from op_profiler.dataset import Dataset, Row
from op_profiler.errors import DatasetError, OpProfilerError, UnknownNameError, UsageError
from op_profiler.measure.measurement import Device, Measurement, Settings
from op_profiler.operators.operator import Operator, TensorSpec
from op_profiler.schedules.schedule import Schedule
from op_profiler.shipped import shipped_trials

from ..installed import needs

pytestmark = needs("pandas", "sklearn")


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(application(), ["analyze", *arguments])


def refused(*arguments: str) -> OpProfilerError:
    done = run(*arguments)
    assert isinstance(done.exception, OpProfilerError), done.output
    assert done.stdout == ""
    return done.exception


def operator(size: int) -> Operator:
    spec = TensorSpec((1, 16, size, size), "float32")
    return Operator(
        name="fused_nn_conv2d",
        anchor="nn.conv2d",
        op_names=("nn.conv2d",),
        inputs=(spec,),
        params=(TensorSpec((16, 16, 3, 3), "float32"),),
        outputs=(spec,),
        attrs=({"strides": [1, 1], "kernel_size": [3, 3]},),
        layouts={"data_layout": "NCHW", "kernel_layout": "OIHW", "out_layout": ""},
        structure="nn.conv2d(i0,p1)",
        flops=2 * 16 * 16 * 9 * size * size,
        bytes_read=4 * 16 * size * size,
        bytes_written=4 * 16 * size * size,
    )


def store(address: str, noise: Mapping[int, Mapping[str, Any]]) -> None:
    """Twelve convolutions at 1, 2 and 4 threads: half of the time is serial from 2 threads on.

    Args:
        noise: by thread count what is said of those measurements.
    """
    device = Device(kind="llvm", target="llvm", processor="p", cores=4, tvm_version="0", host_fingerprint="f")
    one = Settings(threads=1, threads_effective=1, cache="hot", cache_mechanism="repeated")
    rows = []
    with Dataset.open(address) as dataset:
        dataset.add_device(device)
        for size in range(4, 28, 2):
            dataset.add_anchor(operator(size))
            for threads, share in ((1, 1.0), (2, 0.6), (4, 0.59)):
                time = share * size**2
                times: dict[str, Any] = {"min_us": time, "median_us": time, "mean_us": time, "std_us": 0.0}
                times |= {"ci_low_us": time * 0.99, "ci_high_us": time * 1.01, **noise.get(threads, {})}
                fields: dict[str, Any] = {
                    "operator_key": operator(size).key,
                    "schedule": Schedule("conv2d", {}),
                    "settings": dataclasses.replace(one, threads=threads, threads_effective=threads),
                    "device": device,
                    "measurement": Measurement(samples_us=((time,),) * 9, **times),
                }
                rows.append(Row(**fields))
        dataset.record_all(rows)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What `store` stores, undisturbed."""
    address = f"sqlite:///{tmp_path_factory.mktemp('data')}/small.db"
    store(address, {})
    return address


def test_a_dataset_is_analyzed(url: str) -> None:
    done = run("--db", url, "--factor", "threads,flops,cache,input_size", "--format", "json", "--quiet")
    assert done.exit_code == 0 and done.stderr == "", done.output
    found = json.loads(done.stdout)
    by_factor = {c["factor"]: c for c in found["correlations"]}
    assert by_factor["threads"]["spearman"] == pytest.approx(-1) and by_factor["threads"]["samples"] == 36
    assert by_factor["flops"]["pearson"] == pytest.approx(1) and by_factor["flops"]["samples"] == 12
    assert by_factor["cache"]["not_enough"] == "it is hot in every measurement" and by_factor["cache"]["eta"] is None
    threads = [t for t in found["turnarounds"] if t["factor"] == "threads"]
    assert [t["value"] for t in threads] == [2.0] * 12 and threads[0]["values"] == [1, 2, 4]
    sizes = [t for t in found["turnarounds"] if t["factor"] == "input_size"]
    assert len(sizes) == 3 and {len(t["members"]) for t in sizes} == {12}
    assert {p["factor"]: p["operators"] for p in found["predictions"]} == {"threads": 12, "input_size": 1}
    assert all("not enough" in p["refused"] for p in found["predictions"])


def test_the_tables_say_what_was_found_and_what_was_not(url: str) -> None:
    done = run("--db", url, "--factor", "threads,flops,cache", "--anchor", "nn.conv2d")
    assert done.exit_code == 0, done.output
    for words in (
        "within operators",
        "between operators",
        "not enough: it is hot in every measurement: nn.conv2d (cache)",
    ):
        assert words in done.stdout
    assert done.stdout.startswith("threads: median speed-up over 1 thread"), "a summary by threads comes first"
    (summary, point) = [
        [cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "2 (1" in line
    ]
    assert summary == ["nn.conv2d", "12", "1.67", "1.69", "2 (100%)"]
    assert point == ["threads", "nn.conv2d", "2 (12)"]
    assert "predicted for operators that were not swept" in done.stdout and "not enough: 12 operators" in done.stdout
    assert "36 measurements; not used: none" in done.stderr
    stricter = run("--db", url, "--factor", "threads", "--threshold", "0.5")
    assert "threads: 12 sweeps, a larger value never pays in 12" in stricter.stdout
    assert "turnaround points (sweeps)" not in stricter.stdout, "only where there is one"
    unswept = run("--db", url, "--factor", "flops,batch,past")
    assert "no operator was measured at two values of: batch, past" in unswept.stdout


def test_disturbed_times_are_left_out_unless_they_are_asked_for(tmp_path: Path) -> None:
    some, all_of_them = (f"sqlite:///{tmp_path}/{name}.db" for name in ("some", "all"))
    store(some, {2: {"disturbed_by": "unsteady"}, 4: {"foreign_load": True}})
    arguments = ("--db", some, "--factor", "flops")
    assert "12 measurements; not used: 24 disturbed" in run(*arguments).stderr
    assert "36 measurements; not used: none" in run(*arguments, "--include-noisy").stderr
    store(all_of_them, dict.fromkeys((1, 2, 4), {"foreign_load": True}))
    reason = str(refused("--db", all_of_them, "--quiet"))
    assert "(36 disturbed)" in reason and "--include-noisy" in reason


def test_warnings_of_libraries_are_not_printed(tmp_path: Path) -> None:
    """Of times that hardly change, and of as many turnaround points as there are sweeps."""
    device = Device(kind="llvm", target="llvm", processor="p", cores=4, tvm_version="0", host_fingerprint="f")
    settings = Settings(threads=1, threads_effective=1, cache="hot", cache_mechanism="repeated")
    with Dataset.open(f"sqlite:///{tmp_path}/odd.db") as dataset:
        dataset.add_device(device)
        for number, size in enumerate(range(4, 30)):
            dataset.add_anchor(operator(size))
            for threads in range(1, number + 3):
                us = 100.0 / threads if number % 3 else 1.0 + 1e-15 * threads
                fields: dict[str, Any] = {"min_us": us, "median_us": us, "mean_us": us, "samples_us": ((us,),)}
                of = dataclasses.replace(settings, threads=threads, threads_effective=threads)
                measured = Measurement(**fields)
                key, schedule = operator(size).key, Schedule("conv2d", {"tile_ow": [-1, 1 + threads % 2]})
                dataset.record(
                    Row(operator_key=key, schedule=schedule, settings=of, device=device, measurement=measured)
                )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = run("--db", f"sqlite:///{tmp_path}/odd.db")
    assert {(one.category.__name__, str(one.message)) for one in caught} == set()
    assert done.exit_code == 0 and done.stderr.splitlines() == ["reading", "377 measurements; not used: none"]


def test_quiet_leaves_a_line_an_anchor(url: str) -> None:
    done = run("--db", url, "--factor", "threads,flops,cache", "--quiet")
    assert done.exit_code == 0 and done.stderr == "", done.output
    assert done.stdout == "nn.conv2d: most with flops, between operators: Spearman +1.00 (<1e-4)\n"
    told = run("--db", url, "--factor", "cache", "--quiet").stdout
    assert told.startswith("too few measurements to determine")


def test_csv_is_one_table(url: str) -> None:
    done = run("--db", url, "--factor", "threads,cache", "--format", "csv", "--quiet")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [r["result"] for r in rows] == ["correlation"] * 2 + ["turnaround"] * 12 + ["prediction"]
    assert rows[1]["eta"] == "" and float(rows[0]["spearman"]) == pytest.approx(-1)
    assert json.loads(rows[2]["values"]) == [1, 2, 4]


def test_pictures_are_drawn(url: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = run("--db", url, "--factor", "threads,flops,cache", "--plots", str(tmp_path / "new" / "folder"))
    assert done.exit_code == 0, done.output
    names = {path.name for path in (tmp_path / "new" / "folder").iterdir()}
    stems = {"threads_nn.conv2d", "flops_nn.conv2d", "correlations"}
    assert names == {f"{stem}.{end}" for stem in stems for end in ("png", "svg")}
    for name in names:
        data = (tmp_path / "new" / "folder" / name).read_bytes()
        if name.endswith("png"):
            assert data.startswith(b"\x89PNG") and len(data) > 5000
        else:
            assert xml.etree.ElementTree.fromstring(data).tag.endswith("svg")


@pytest.mark.parametrize("folder", ["file", "file/below", "/proc/pictures"])
def test_a_folder_for_pictures_that_cannot_be_written_is_refused_before_the_work(folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    error = refused("--db", f"sqlite:///{tmp_path}/none.db", "--plots", str(tmp_path / folder))
    assert f"--plots {tmp_path / folder}" in str(error) and error.exit_code == 5
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_parquet_file_is_read_and_the_default_is_what_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = shipped_trials()
    if path is None:
        pytest.skip("no results/schedule_trials.parquet here")
    arguments = ("--factor", "vectorize", "--anchor", "nn.conv2d", "--format", "json")
    from_file = run("--file", str(path), *arguments, "--quiet")
    monkeypatch.chdir(tmp_path)
    by_default = run(*arguments)
    assert from_file.exit_code == by_default.exit_code == 0
    assert "note:" in by_default.stderr and json.loads(by_default.stdout) == json.loads(from_file.stdout)
    (found,) = json.loads(from_file.stdout)["correlations"]
    assert found["pearson"] < -0.2 and found["anchor"] == "nn.contrib_conv2d_NCHWc"


def test_what_cannot_be_done_is_refused(url: str, tmp_path: Path) -> None:
    unknown = refused("--db", url, "--factor", "threds", "--quiet")
    assert isinstance(unknown, UnknownNameError) and "threads" in str(unknown)
    assert "nn.conv2d" in str(refused("--db", url, "--anchor", "nn.conv3d", "--quiet"))
    assert "table" in str(refused("--format", "tabel"))
    assert isinstance(refused("--db", url, "--file", "x.parquet"), UsageError)
    assert "--threshold 1" in str(refused("--db", url, "--threshold", "1"))
    assert isinstance(refused("--file", str(tmp_path / "none.parquet"), "--quiet"), DatasetError)
    assert isinstance(refused("--db", f"sqlite:///{tmp_path}/none.db", "--quiet"), DatasetError)
    with Dataset.open(f"sqlite:///{tmp_path}/empty.db"):
        pass
    empty = refused("--db", f"sqlite:///{tmp_path}/empty.db", "--quiet")
    assert isinstance(empty, DatasetError) and "op-profiler collect" in str(empty)


def test_help_has_examples() -> None:
    done = run("--help")
    assert done.exit_code == 0 and "Examples" in done.stdout and "--threshold" in done.stdout
