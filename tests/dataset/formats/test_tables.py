"""Whole files into a dataset and out again."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from op_profiler.dataset import Dataset, Row, flat_rows, import_autotvm
from op_profiler.dataset.formats import exporting, gsoc, paddle, tinynas
from op_profiler.dataset.formats.exporting import export_table
from op_profiler.dataset.formats.importing import import_table
from op_profiler.errors import DatasetError, OpProfilerError, UnknownNameError, UsageError
from op_profiler.measure.measurement import Device, Settings
from op_profiler.measure.statistics import summarize
from op_profiler.operators.kinds.shapes import Conv, operator_of
from op_profiler.schedules.schedule import UNKNOWN

from ...command_line import op_profiler
from ...tables import LUT, TABLES

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
FILES = TABLES | {
    "tinynas": "{Regular,128,3,480,480,192,7,2,1} 30.9881\n{Depthwise,1,32,8,9,32,3,1,0} 0.01\n"
    "{Regular,1,32,8,8,32,3,1,0} -1\n",
}


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as opened:
        yield opened


CONVOLUTION = Conv(
    batch=1, in_channels=8, height=8, width=8, out_channels=8, kernel=(3, 3), stride=(1, 1), padding=(1, 1, 1, 1)
)


def write(folder: Path, text: str | bytes, name: str = "table.txt") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def lines_of(path: Path) -> list[str]:
    return sorted(path.read_text().splitlines())


@pytest.mark.parametrize("format", FILES)
def test_a_file_comes_back_as_it_was(format: str, dataset: Dataset, tmp_path: Path) -> None:
    path = write(tmp_path, FILES[format])
    done = import_table(dataset, path, format=format, device="phone" if format != "runtime_lut" else None)
    assert (done.unreadable, done.unknown, done.merged) == (0, {}, 0)
    before = list(flat_rows(dataset))
    assert import_table(dataset, path, format=format, device="phone" if format != "runtime_lut" else None) == done
    changing = ("measured_at",)
    after = list(flat_rows(dataset))
    key = "measurement_key"
    stripped = [
        sorted(({k: v for k, v in r.items() if k not in changing} for r in rows), key=lambda r: str(r[key]))
        for rows in (before, after)
    ]
    assert stripped[0] == stripped[1]
    written = export_table(dataset, tmp_path / "out", format=format)
    assert written.left_out == {} and written.slower == 0
    assert lines_of(tmp_path / "out") == lines_of(path)


def test_what_is_stored_of_a_row(dataset: Dataset, tmp_path: Path) -> None:
    import_table(dataset, write(tmp_path, FILES["tinynas"]), format="tinynas", device="V100")
    rows = {row["inputs"][0]["shape"][2]: row for row in flat_rows(dataset) if row["inputs"][0]["shape"][3] != 9}
    big, failed = rows[480], rows[8]
    assert big["median_us"] == pytest.approx(30988.1) and big["op_names"] == ["nn.conv2d", "add"]
    assert big["inputs"][1]["shape"] == [128, 192, 240, 240] and big["samples_us"] == [[big["median_us"]]]
    assert (big["processor"], big["cores"], big["device_kind"], big["threads"]) == ("V100", None, "unknown", 0)
    assert (big["template"], big["origin"], big["executor"], big["precision"]) == (
        *("unknown", "default", "kernel", "float32"),
    )
    assert failed["median_us"] is None and failed["error"] and failed["samples_us"] == []


def test_the_precision_of_a_table_that_does_not_say_it(dataset: Dataset, tmp_path: Path) -> None:
    import_table(dataset, write(tmp_path, FILES["paddle"]), format="paddle", precision="int8")
    row = next(flat_rows(dataset))
    assert (row["precision"], row["inputs"][0]["dtype"]) == ("int8", "int8")
    assert row["processor"] == "unnamed, of table.txt"


def test_percentiles_are_kept_and_the_latency_is_the_middle_one(dataset: Dataset, tmp_path: Path) -> None:
    import_table(dataset, write(tmp_path, FILES["runtime_lut"]), format="runtime_lut")
    row = next(row for row in flat_rows(dataset) if row["anchor"] == "nn.conv2d")
    assert (row["median_us"], row["min_us"], row["mean_us"], row["precision"]) == (960.0, 900.0, None, "int8")
    assert row["samples_us"] == [[900.0], [930.0], [960.0], [990.0], [1200.5]]
    assert row["processor"] == "SM-G950U"


def test_bad_lines_are_counted_duplicates_kept_and_suspicious_rows_reported(dataset: Dataset, tmp_path: Path) -> None:
    text = (
        "# comment\n\n{Regular,1,32,8,8,32,3,1,0}    0.010\n{Regular,1,32,8,8,32,3,1,0} 0.020\n"
        "{Regular,1,32,8,8,32,3,1,0} -1\n{Regular,1,32,8,8,32,3,1,0} -3\n{Regular,1,32,8,8,3"
    )
    done = import_table(dataset, write(tmp_path, text), format="tinynas")
    assert (done.rows, done.failed, done.unreadable, done.merged, done.failed_beside) == (1, 0, 2, 1, 1)
    assert done.suspicious == {"duplicate": 2} and done.examples[0].startswith("line 3: duplicate: 10 us")
    assert any(line.startswith("line 6") for line in done.problems)
    (row,) = flat_rows(dataset)
    assert row["samples_us"] == [[10.0], [20.0]] and row["median_us"] == 15.0


def test_mixed_up_axes_are_reported(dataset: Dataset, tmp_path: Path) -> None:
    text = gsoc.HEADER + "\nnet,3,32,3,224,224,2,same,1.5\n"
    done = import_table(dataset, write(tmp_path, text), format="gsoc")
    assert (done.rows, done.suspicious) == (1, {"axes": 1}) and "look exchanged" in done.examples[0]


def test_unknown_operators_are_counted_by_name(dataset: Dataset, tmp_path: Path) -> None:
    text = json.dumps(LUT | {"op_type": "LSTM"}) + "\n" + json.dumps(LUT)
    done = import_table(dataset, write(tmp_path, text), format="runtime_lut")
    assert (done.rows, done.unknown) == (1, {"LSTM": 1})


@pytest.mark.parametrize(
    ("format", "content", "message"),
    [
        ("paddle", "op_type\tdevice\tms\nconv,0,0,1,3,640,640,8,1,3,1,2,1\t2433\n", "unit is 'ms'"),
        ("paddle", "conv,0,0,1,3,640,640,8,1,3,1,2,1\t2433\n", "first line is neither"),
        ("paddle", "", "first line is neither"),
        ("gsoc", "kernel_size,stride\n3,1\n", "lacks the columns model_name, filter_size"),
        ("gsoc", "", "lacks the columns"),
        ("tinynas", b"\x80\xff\x00", "is no text file"),
        ("runtime_lut", b"\x89PNG\xff", "is no text file"),
    ],
)
def test_files_of_another_kind(
    format: str, content: str | bytes, message: str, dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(DatasetError, match=message):
        import_table(dataset, write(tmp_path, content), format=format)
    assert dataset.counts()["measurements"] == 0


def test_names_that_do_not_exist(dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="tinynas"):
        import_table(dataset, tmp_path / "x", format="tinynaz")
    with pytest.raises(UnknownNameError, match="paddle"):
        export_table(dataset, tmp_path / "x", format="padle")
    with pytest.raises(OpProfilerError, match="cannot be read"):
        import_table(dataset, tmp_path / "missing", format="paddle")


def test_choices_are_named_and_not_mixed(dataset: Dataset, tmp_path: Path) -> None:
    path = write(tmp_path, FILES["paddle"])
    for device in ("one", "it's two"):
        import_table(dataset, path, format="paddle", device=device)
    with pytest.raises(UsageError, match="--device 'one'"):
        export_table(dataset, tmp_path / "out", format="paddle")
    assert not (tmp_path / "out").exists()
    for options in ({"device": "it's two"}, {"device": "one", "threads": 0}, {"where": "processor = 'one'"}):
        assert export_table(dataset, tmp_path / "out", format="paddle", **options).rows == 2
    assert export_table(dataset, tmp_path / "out", format="csv", device="one").rows == 2
    with pytest.raises(DatasetError, match=r"no device fits 'three'; .* \(one\)"):
        export_table(dataset, tmp_path / "out", format="csv", device="three")
    assert export_table(dataset, tmp_path / "out", format="paddle", threads=3).rows == 0
    assert (tmp_path / "out").read_text() == paddle.HEADER + "\n"
    with pytest.raises(UsageError, match="parentheses"):
        export_table(dataset, tmp_path / "out", format="csv", where="1 = 1) or (1 = 1", device="one")


@pytest.mark.parametrize(
    ("of_device", "of_settings", "choices"),
    [
        ({"compiler": "relax"}, {}, "compiler = 'relax'\" or --where \"compiler = 'relay'"),
        ({"target": "llvm -mcpu=znver5"}, {}, "target = 'llvm -mcpu=znver5'"),
        ({}, {"executor": "vm"}, "executor = 'graph'\" or --where \"executor = 'vm'"),
        ({}, {"governor": "powersave"}, "governor IS NULL\" or --where \"governor = 'powersave'"),
        ({}, {"gpu_clock_mhz": 1200}, 'gpu_clock_mhz IS NULL" or --where "gpu_clock_mhz = 1200'),
    ],
)
def test_what_decides_a_time_is_not_mixed(
    of_device: dict[str, Any],
    of_settings: dict[str, Any],
    choices: str,
    dataset: Dataset,
    example: Any,
    tmp_path: Path,
) -> None:
    operator = operator_of(tinynas.parse_row("{Regular,1,32,8,8,32,3,1,0} 0.5").shape)
    dataset.add_anchor(operator)
    other = dataclasses.replace(example.device, **of_device)
    for device, settings in ((example.device, example.settings), (other, example.changed(**of_settings))):
        dataset.record(example.row(operator_key=operator.key, model_key="", device=device, settings=settings))
    with pytest.raises(UsageError) as refused:
        export_table(dataset, tmp_path / "out", format="tinynas")
    assert choices in str(refused.value)
    (where,) = str(refused.value).split('"')[3::4]
    assert export_table(dataset, tmp_path / "out", format="tinynas", where=where).rows == 1


def test_what_does_not_fit_is_counted(dataset: Dataset, tmp_path: Path) -> None:
    import_table(dataset, write(tmp_path, FILES["runtime_lut"]), format="runtime_lut", device="phone")
    import_table(dataset, write(tmp_path, FILES["tinynas"]), format="tinynas", device="phone")
    with pytest.raises(UsageError, match="precision = 'float32'"):
        export_table(dataset, tmp_path / "out", format="tinynas")
    done = export_table(dataset, tmp_path / "out", format="tinynas", where="precision = 'float32'")
    assert (done.rows, done.left_out) == (3, {"no two-dimensional convolution": 1})
    assert exporting.describe(done) == ["left out: 1 measurement: no two-dimensional convolution"]
    done = export_table(dataset, tmp_path / "out", format="runtime_lut")
    assert done.rows == 3 and done.left_out["fused with more than bias and ReLU"] == 1
    assert done.left_out["a failure, for which the format has no words"] == 1


def test_of_several_schedules_the_fastest(dataset: Dataset, example: Any, tmp_path: Path) -> None:
    from op_profiler.dataset import Row
    from op_profiler.dataset.formats.importing import _measurement
    from op_profiler.schedules.schedule import Schedule

    entry = tinynas.parse_row("{Regular,1,32,8,8,32,3,1,0} 0.5")
    operator = operator_of(entry.shape)
    dataset.add_anchor(operator)
    for index, factor in enumerate((3, 1, 2)):
        slower = dataclasses.replace(entry, samples_us=(500.0 * factor,), median_us=500.0 * factor)
        schedule = Schedule("conv2d_nchw.x86", {"tile_ow": [-1, index + 1]})
        settings = example.changed(cache="hot")
        dataset.record(
            Row(
                operator_key=operator.key,
                schedule=schedule,
                settings=settings,
                device=example.device,
                measurement=_measurement([slower]),
            )
        )
    done = export_table(dataset, tmp_path / "out", format="tinynas")
    assert (done.rows, done.slower) == (1, 2)
    assert (tmp_path / "out").read_text() == "{Regular,1,32,8,8,32,3,1,0} 0.5\n"
    assert export_table(dataset, tmp_path / "log", format="autotvm").rows == 3


LOG = SHARED / "resnet-18-xgb_knob-cuda-autotvm.json"


@pytest.mark.skipif(not LOG.is_file(), reason=f"{LOG} is not here")
@pytest.mark.parametrize("name", ["resnet-18-xgb_knob-cuda", "mobilenet-xgb_knob-llvm", "bert-xgb_knob-llvm"])
def test_autotvm_records_come_back(name: str, dataset: Dataset, tmp_path: Path) -> None:
    path = SHARED / f"{name}-autotvm.json"
    done = import_autotvm(dataset, path)
    written = export_table(dataset, tmp_path / "log", format="autotvm")
    assert written.rows + sum(written.left_out.values()) == done.rows and not written.left_out
    theirs, ours = ([json.loads(line) for line in p.read_text().splitlines()] for p in (path, tmp_path / "log"))

    def shown(record: dict[str, Any]) -> tuple[Any, ...]:
        target, task, arguments, _ = record["input"]
        return target, task, arguments, record["config"]["entity"]

    def costs(records: list[dict[str, Any]]) -> list[float]:
        return [cost for record in sorted(records, key=lambda r: repr(shown(r))) for cost in record["result"][0]]

    assert sorted(map(repr, map(shown, ours))) == sorted(map(repr, map(shown, theirs)))
    assert costs(ours) == pytest.approx(costs(theirs), abs=1e-9)  # samples are kept to a thousandth of a microsecond
    with Dataset.open(f"sqlite:///{tmp_path / 'again.db'}") as again:
        assert import_autotvm(again, tmp_path / "log", processor=f"unnamed, of {path.name}").rows == done.rows
        keys = [sorted(row["measurement_key"] for row in flat_rows(d)) for d in (dataset, again)]
    assert keys[0] == keys[1]


LIBRARY = SHARED / "tinynas_v100_fp32.txt"


@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not here")
def test_a_part_of_a_real_library_comes_back(dataset: Dataset, tmp_path: Path) -> None:
    chosen = random.Random(0).sample(LIBRARY.read_text().splitlines(), 1500)
    seen: list[tuple[int, int]] = []
    path = write(tmp_path, "\n".join(chosen) + "\n")
    done = import_table(dataset, path, format="tinynas", device="V100", progress=lambda *n: seen.append(n))
    assert done.rows + done.merged + done.failed_beside == len(chosen)
    assert done.failed + done.failed_beside == sum(line.endswith(" -1") for line in chosen)
    assert seen and seen[-1][0] == seen[-1][1]
    written = export_table(dataset, tmp_path / "out", format="tinynas")
    assert written.left_out == {}
    values = [
        {line.split()[0]: float(line.split()[1]) for line in p.read_text().splitlines()}
        for p in (path, tmp_path / "out")
    ]
    assert values[0] == pytest.approx(values[1])


def test_one_device_that_is_named_for_a_table_of_several_takes_the_rows_of_all(
    dataset: Dataset, tmp_path: Path
) -> None:
    rows = [LUT | {"runtime_us_p50": time_us, "device": phone} for phone, time_us in (("A", 100.0), ("B", 900.0))]
    for row in rows:
        for percentile in [name for name in row if name.startswith("runtime_us_") and name != "runtime_us_p50"]:
            del row[percentile]
    path = write(tmp_path, "\n".join(map(json.dumps, rows)))
    done = import_table(dataset, path, format="runtime_lut", device="mine")
    assert (done.rows, done.known, done.merged) == (1, 0, 1)
    (stored,) = flat_rows(dataset)
    assert (stored["processor"], stored["median_us"], stored["samples_us"]) == ("mine", 500.0, [[100.0], [900.0]])


@pytest.mark.parametrize(
    ("settings", "devices", "column", "where"),
    [
        ([{"core_set": (0, 2)}, {"core_set": (7,)}], [{}, {}], "core_set", "core_set = '[0,2]'"),
        ([{}, {}], [{"machine_id": "a"}, {"machine_id": "b"}], "machine_id", "machine_id = 'a'"),
        ([{}, {}], [{"llvm_version": "15"}, {"llvm_version": "19"}], "llvm_version", "llvm_version = '15'"),
        ([{}, {}], [{"l2_bytes": 1}, {"l2_bytes": 2}], "device_key", None),
    ],
    ids=["core set", "machine", "LLVM", "device"],
)
def test_times_of_other_conditions_are_not_mixed(
    settings: list[dict[str, Any]],
    devices: list[dict[str, Any]],
    column: str,
    where: str | None,
    dataset: Dataset,
    tmp_path: Path,
) -> None:
    operator = operator_of(CONVOLUTION)
    dataset.add_anchor(operator)
    for of_settings, of_device, time_us in zip(settings, devices, (5.0, 50.0)):
        dataset.record(
            Row(
                operator_key=operator.key,
                schedule=UNKNOWN,
                settings=Settings(threads=1, cache="hot", **of_settings),
                device=Device(kind="llvm", target="llvm", processor="p", cores=8, **of_device),
                measurement=summarize(np.full((8, 1), time_us)),
            )
        )
    with pytest.raises(UsageError, match=f"more than one {column} fit") as refused:
        export_table(dataset, tmp_path / "out", format="tinynas")
    if where is not None:
        assert f'--where "{where}"' in str(refused.value)
        assert export_table(dataset, tmp_path / "out", format="tinynas", where=where).rows == 1
        assert lines_of(tmp_path / "out")[0].endswith(" 0.005")


def test_the_first_line_that_paddleslim_documents_names_the_device(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("Snapdragon 845,Paddle-Lite,2021-06-01\nconv2d,0,0,1,3,64,64,8,1,3,1,2,1\t24.5\n")
    ((_, entry),) = paddle.FORMAT.read(tmp_path / "x.txt", "float32").entries
    assert (entry.device, entry.median_us) == ("Snapdragon 845", 24.5)


def test_a_precision_in_the_name_of_a_file_has_to_be_given(tmp_path: Path) -> None:
    (tmp_path / "conv.int8.out").write_text("{Regular,1,32,8,8,32,3,1,0} 0.5\n")
    command = (
        "import",
        str(tmp_path / "conv.int8.out"),
        "--format",
        "tinynas",
        "--db",
        f"sqlite:///{tmp_path / 'x.db'}",
    )
    refused = op_profiler(*command)
    assert refused.returncode == 2 and "--precision int8" in refused.stderr
    assert op_profiler(*command, "--precision", "int8").returncode == 0


def test_progress_counts_rows(tmp_path: Path) -> None:
    (tmp_path / "x.out").write_text("".join(f"{{Regular,1,32,{n},{n},32,3,1,0}} 0.5\n" for n in range(8, 20)))
    told: list[tuple[int, int]] = []
    with Dataset.open(f"sqlite:///{tmp_path / 'x.db'}") as dataset:
        import_table(dataset, tmp_path / "x.out", format="tinynas", progress=lambda *counts: told.append(counts))
    assert told == [(12, 12)]
