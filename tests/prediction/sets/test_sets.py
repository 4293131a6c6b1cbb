"""Readers of public sets on a few rows of each format, and the methods that answer."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from op_profiler.errors import DatasetError, UsageError
from op_profiler.prediction.evaluation import EvaluateRequest
from op_profiler.prediction.sets import SETS, aiconfigurator, deepbench, neusight, pipeweave, tlcbench
from op_profiler.prediction.sets.kernel_problem import KernelPredictor, KernelProblem
from op_profiler.prediction.sets.kernels import Kernels, Processor
from op_profiler.prediction.sets.ncnn import read_table
from op_profiler.prediction.sets.public_set import METHODS, Reading, read_csv, spearman
from op_profiler.prediction.sets.scores import evaluate_sets, sets_folder
from op_profiler.prediction.sets.tophub import fastest, sizes_of
from op_profiler.prediction.sets.transfer import TransferProblem, completed
from op_profiler.schedules.record_files import read_records

from ...command_line import op_profiler
from ...installed import needs


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def synthetic(processors: Sequence[Processor], rows: int, seed: int) -> Kernels:
    """Products whose time is that of whole tiles, and 7 us."""
    random = np.random.default_rng(seed)
    sizes = np.column_stack([np.ones(rows), *(2.0 ** random.integers(6, 12, (3, rows)))])
    number = random.integers(0, len(processors), rows)
    flops, moved = 2 * sizes.prod(axis=1), 4 * (sizes[:, 1:3].sum(axis=1) * sizes[:, 3] + sizes[:, 1] * sizes[:, 2])
    table = Kernels(
        sizes=sizes,
        flops=flops,
        moved=moved,
        kind=np.zeros(rows),
        processor=number,
        processors=processors,
        time_us=np.ones(rows),
        more=np.zeros((rows, 0)),
    )
    tiles = np.ceil(sizes[:, 1] / 128) * np.ceil(sizes[:, 2] / 128)
    waves = np.ceil(tiles / table.peak("units")) * table.peak("units") * 128 * 128 * sizes[:, 3] * 2
    times = np.maximum(waves / table.peak("flops_per_us"), table.memory_us) * 1.3 + 7
    return Kernels(**{**vars(table), "time_us": times * np.exp(random.normal(0, 0.02, rows))})


SMALL, MIDDLE = Processor("small", 8e6, 3e5, 40, 4e6), Processor("middle", 1.4e7, 9e5, 80, 6e6)
LARGE = Processor("large", 2e7, 1.5e6, 108, 4e7)


def test_a_kernel_is_predicted_on_known_processors_and_on_one_that_was_never_measured() -> None:
    task = KernelProblem(synthetic([SMALL, MIDDLE], 3000, 0), 0)
    known = task.split("known", synthetic([SMALL, MIDDLE], 500, 1), "other draws")
    unknown = task.split("unknown", synthetic([LARGE], 500, 2), "a processor")
    for split, limit in ((known, 0.05), (unknown, 0.3)):
        errors = {}
        for method in METHODS:
            predicted = split.answer(method)
            errors[method] = float(np.abs(predicted.latency_us / split.truth_us - 1).mean())
        assert errors["default"] < limit and errors["default"] < errors["factor"]
    widths = [np.log(split.answer("default").high_us / split.answer("default").low_us) for split in (known, unknown)]
    assert widths[0].mean() < widths[1].mean()
    inside = known.answer("default")
    assert 0.8 < np.mean((inside.low_us <= known.truth_us) & (known.truth_us <= inside.high_us)) <= 1


def test_kernels_larger_than_all_known_ones_have_wider_intervals() -> None:
    table = synthetic([SMALL], 1500, 0)
    work = table.flops + table.moved
    small = work < np.quantile(work, 0.7)
    fitted = KernelPredictor.fit(table.where(small), 0)
    inside, widths = {}, {}
    for name, rows in (("known", small), ("larger", ~small)):
        truth = table.where(rows)
        predicted = fitted.predict(truth)
        inside[name] = np.mean((predicted.low_us <= truth.time_us) & (truth.time_us <= predicted.high_us))
        widths[name] = np.median(np.log(predicted.high_us / predicted.low_us))
    assert inside["larger"] > 0.85 and widths["larger"] > 1.5 * widths["known"]


def test_kernels_of_one_size_have_an_interval_too() -> None:
    table = synthetic([SMALL], 400, 0)
    table = table.where((table.sizes == table.sizes[0]).all(axis=1).nonzero()[0].repeat(50))
    predicted = KernelPredictor.fit(table, 0).predict(table)
    assert (predicted.low_us < predicted.latency_us).all() and (predicted.latency_us < predicted.high_us).all()


def test_one_processor_alone_has_an_interval_too() -> None:
    predicted = KernelPredictor.fit(synthetic([SMALL], 800, 0), 0).predict(synthetic([SMALL], 50, 1))
    assert (predicted.low_us < predicted.latency_us).all() and (predicted.latency_us < predicted.high_us).all()


def devices_of(count: int, noise: float, random: np.random.Generator, items: np.ndarray) -> list[np.ndarray]:
    """Return times of devices with slopes of their own; `noise` is the part that no other device explains."""
    slopes = (random.normal(1, 0.3, items.shape[1]) for _ in range(count))
    return [np.exp(random.normal() + items @ slope + random.normal(0, noise, len(items))) for slope in slopes]


def test_a_new_device_is_predicted_from_a_few_items_of_it() -> None:
    random = np.random.default_rng(0)
    items = random.normal(size=(120, 3))
    known = {str(number): [times] for number, times in enumerate(devices_of(8, 0.02, random, items))}
    split = TransferProblem(known, 10, items, 0).split("new", devices_of(1, 0.02, random, items), "all but ten")
    assert len(split.truth_us) == 110 and split.ranked is not None
    errors = {name: np.abs(split.answer(name).latency_us / split.truth_us - 1).mean() for name in METHODS}
    assert errors["default"] < 0.05 and errors["default"] < min(errors["trees"], errors["factor"])
    predicted = split.answer("default")
    assert np.mean((predicted.low_us <= split.truth_us) & (split.truth_us <= predicted.high_us)) > 0.75


def test_a_device_whose_samples_fit_less_well_has_wider_intervals() -> None:
    random = np.random.default_rng(0)
    items = random.normal(size=(200, 3))
    times = [devices_of(1, noise, random, items)[0] for noise in 4 * [0.02, 0.05, 0.1, 0.2]]
    task = TransferProblem({str(number): [each] for number, each in enumerate(times)}, 10, items, 0)
    widths = []
    for noise in (0.02, 0.2):
        predicted = task.split("new", devices_of(1, noise, random, items), "all but ten").answer("default")
        widths.append(np.median(np.log(predicted.high_us / predicted.low_us)))
    assert widths[1] > 1.2 * widths[0]


def test_settings_of_a_device_are_left_out_together() -> None:
    random = np.random.default_rng(0)
    items = random.normal(size=(120, 3))
    times = devices_of(6, 0.1, random, items)
    twice = {str(number): [each, 2 * each] for number, each in enumerate(times)}
    new = devices_of(1, 0.1, random, items)
    once = TransferProblem({name: pair[:1] for name, pair in twice.items()}, 10, items, 0).split("", new, "")
    both = TransferProblem(twice, 10, items, 0).split("", new, "")
    widths = [np.median(each.high_us / each.low_us) for each in (once.answer("default"), both.answer("default"))]
    assert widths[1] > 0.8 * widths[0]


def test_missing_times_of_known_devices_are_completed() -> None:
    whole = np.add.outer(np.arange(6.0), np.linspace(0, 3, 8))
    holed = whole.copy()
    holed[2, 3] = holed[5, 0] = np.nan
    assert np.allclose(completed(holed), whole, atol=0.05)


def test_ranks_share_their_mean_where_values_are_equal() -> None:
    assert spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 9.0])) == pytest.approx(1)
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(0.866, abs=1e-3)


def test_neusight(tmp_path: Path) -> None:
    data = tmp_path / neusight.SET.needs[0].removesuffix("dataset/test/linear.csv")
    about = {"Device": "Tesla T4", "Mem_Bw": 320, "Num_Sm": 40, "SingleFLOPs": 8141, "L2Cache": 4}
    (data / "device_configs").mkdir(parents=True)
    (data / "device_configs/Tesla_T4.json").write_text(json.dumps(about))
    processors = neusight.processors_of(tmp_path)
    product = {"OPName": "bmm", "Latency": "0.5", "Device": "Tesla T4", "B": "2", "M": "3", "N": "5", "K": "7"}
    table = neusight.kernels([product, {**product, "OPName": "linear"}], processors)
    assert list(table.flops) == [420, 420] and list(table.moved) == [4 * (2 * 3 * 12 + 70), 4 * (2 * 3 * 12 + 35)]
    assert list(table.time_us) == [500, 500] and table.peak("units")[0] == 40
    added = neusight.kernels([{"OPName": "add", "Latency": "1", "Device": "Tesla T4", "B": "4", "H": "8"}], processors)
    assert list(added.sizes[0]) == [1, 4, 8, 1] and added.moved[0] == 4 * 32 * 3


def test_pipeweave(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    chips = {"NVIDIA H20": (78, 1024), "NVIDIA H800": (132, 4096), "NVIDIA H200": (132, 4096)}

    def rows(names: Sequence[str], count: int) -> list[dict[str, object]]:
        about = {"sm_freq": 1830, "mem_bandwidth": 3352.32}
        made: list[dict[str, object]] = []
        for name in names:
            for high, wide, depth in 2 ** random.integers(6, 12, (count, 3)):
                us = 2.0 * high * wide * depth / (4.0 * chips[name][1] * chips[name][0] * 1830) + 5
                sizes = {"M": high, "N": wide, "K": depth, "avg_duration": us, "hardware": name}
                made.append({**sizes, "num_sms": chips[name][0], "tc_bf16": chips[name][1], **about})
        return made

    write_csv(tmp_path / pipeweave.SET.needs[0], rows(["NVIDIA H20", "NVIDIA H800"], 300))
    asked = rows(["NVIDIA H200", "NVIDIA H20"], 40)
    asked[0]["avg_duration"] = ""
    write_csv(tmp_path / pipeweave.SET.needs[1], asked)
    reading = pipeweave.SET.read(tmp_path, 0)
    assert [split.name for split in reading.splits] == ["fp8 GEMM, H200", "fp8 GEMM, all"]
    assert dict(reading.skipped) == {"no time in the column avg_duration": 1}
    unseen, _ = reading.splits
    assert len(unseen.truth_us) == 39 and unseen.published is not None and unseen.published.percent == 5.23
    assert np.abs(unseen.answer("default").latency_us / unseen.truth_us - 1).mean() < 0.2


def record(model: str, channels: int, seconds: float, target: str = "llvm -device=arm_cpu") -> str:
    tensors = [["TENSOR", [1, channels, 8, 8], "float32"], ["TENSOR", [8, channels, 1, 1], "float32"]]
    task = [f"{target} -model={model}", "conv2d_nchw_spatial_pack.arm_cpu", [*tensors, [1, 1], [0, 0, 0, 0]], {}]
    config = {"index": 0, "code_hash": None, "entity": [["tile_co", "sp", [-1, 8]]]}
    result = [[seconds], 0 if seconds < 1e8 else 4, 1.0, 1.6e9]
    return json.dumps({"input": task, "config": config, "result": result, "version": 0.2, "tvm_version": "0.8"})


def test_tophub(tmp_path: Path) -> None:
    log, reading = tmp_path / "arm.log", Reading()
    lines = [record("pynq", 8, 2e-3), record("pynq", 8, 1e-3), record("pynq", 16, 1e9), record("x", 8, 5e-3)]
    log.write_text("\n".join(["# a comment", *lines]) + "\n")
    records, unreadable = read_records(log)
    found = fastest(records, reading)
    assert unreadable == 0 and {name: [*tasks.values()] for name, tasks in found.items()} == {"pynq": [1e3], "x": [5e3]}
    assert reading.skipped == {"failed": 1, "slower than another record of its task": 1}
    assert sizes_of(records[0])[:2] == [1.0, np.log2(9)]


def test_tlcbench(tmp_path: Path) -> None:
    log = tmp_path / "bert.log"
    tensors = [["TENSOR", [4, 768], "float32"], ["TENSOR", [512, 768], "float32"], None, "float32"]
    config = {"index": 0, "code_hash": None, "entity": [["tile_y", "sp", [-1, 4]], ["auto", "ot", True]]}
    fields = {"input": ["llvm", "dense_nopack.x86", tensors, {}], "config": config, "result": [[1e-4], 0, 1, 1]}
    log.write_text(json.dumps({**fields, "version": 0.2, "tvm_version": "0.8"}) + "\n")
    table = tlcbench.kernels(read_records(log)[0], SMALL)
    assert list(table.sizes[0]) == [1, 4, 512, 768] and table.time_us[0] == pytest.approx(100)
    assert list(table.more[0][:4]) == [1.0, 1.0, pytest.approx(np.log2(5)), -2.0]


def test_ncnn() -> None:
    row = "  resnet18  min =  {}  max =  9.0  avg =  8.5\n"
    run = "loop_count = 4\nnum_threads = {}\npowersave = 0\ngpu_device = {}\n" + row
    text = "### A board (Cortex-A53)\n" + run.format(1, -1, 8.0) + run.format(4, 0, 2.0) + run.format(1, -1, 7.0)
    reading = Reading()
    assert read_table(text, reading) == {("A board (Cortex-A53)", "1", "0"): {"resnet18": 7000.0}}
    assert reading.skipped == {"on a GPU": 1, "measured again, the shorter is used": 1}


def test_deepbench(tmp_path: Path) -> None:
    space = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    numbers = [
        (14, 14, 512, 8, 64, 3, 3, 1, 1, 1, 1, 0.5),
        (14, 14, 512, 8, 64, 3, 3, 0, 0, 1, 1, 0.5),
        (700, 161, 1, 4, 32, 20, 5, 0, 0, 2, 2, 0.1),
    ]
    cells = [
        "".join(f'<c r="{letter}{at}"><v>{value}</v></c>' for letter, value in zip(deepbench._COLUMNS, row))
        for at, row in enumerate(numbers, 3)
    ]
    head = '<row><c r="A1" t="s"><v>0</v></c></row>'
    rows = head + "".join(f"<row>{each}</row>" for each in cells)
    book = tmp_path / "book.xlsx"
    with zipfile.ZipFile(book, "w") as file:
        file.writestr("xl/sharedStrings.xml", f"<sst {space}><si><t>Convolution</t></si></sst>")
        file.writestr("xl/worksheets/sheet1.xml", f"<worksheet {space}><sheetData>{rows}</sheetData></worksheet>")
    reading = Reading()
    table = deepbench.convolutions(deepbench.rows_of(book), reading)
    assert table.matrix.tolist() == [[0, 8, 512, 14, 64, 3, 1, 0]] and list(table.latency_us) == [500]
    assert sum(reading.skipped.values()) == 2
    book.write_text("no workbook")
    with pytest.raises(DatasetError, match="no workbook"):
        deepbench.rows_of(book)


def test_aiconfigurator() -> None:
    peaks = {"mem_bw": "3350000000000 # 3350GB/s", "bfloat16_tc_flops": "989000000000000", "fp8_tc_flops": "1978e12"}
    text = "gpu:\n" + "".join(f"  {name}: {value}\n" for name, value in peaks.items())
    processors = aiconfigurator.processors_of(text, "h100", 132, 50e6)
    columns = {name: np.array([value]) for name, value in {"m": 2, "n": 3, "k": 5, "latency": 0.01}.items()}
    table = aiconfigurator.kernels({**columns, "gemm_dtype": np.array(["fp8"])}, processors)
    assert table.peak("flops_per_us")[0] == 1.978e9 and table.flops[0] == 60 and table.time_us[0] == 10


def test_help_networks(tmp_path: Path) -> None:
    needs("torch")
    import torch

    from op_profiler.prediction.sets import help_networks

    random = np.random.default_rng(0)
    for space, (known, new, _) in help_networks._SPACES.items():
        folder = tmp_path / f"data/{space}/latency"
        folder.mkdir(parents=True)
        base = random.normal(1, 0.3, 40)
        for name in (*known, *new):
            times = np.exp(base + random.normal() + random.normal(0, 0.02, 40))
            torch.save([float(time) for time in times], folder / f"{name}.pt")
    torch.save(random.integers(0, 9, (40, 22)).tolist(), tmp_path / "data/fbnet/arch.pt")
    names = {f"|nor_conv_3x3~0|+|none~0|skip_connect~{number}|": number for number in range(40)}
    torch.save(names, tmp_path / "data/nasbench201/str_arch2idx.pt")
    splits = {split.name: split for split in help_networks.SET.read(tmp_path, 0).splits}
    whole = splits["fbnet, all"]
    assert len(whole.truth_us) == 3 * 30 and whole.published is not None and whole.published.measure == "Spearman"
    assert np.abs(whole.answer("default").latency_us / whole.truth_us - 1).mean() < 0.1


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:b69f\nsize 130910784\n")
    with pytest.raises(DatasetError, match="git lfs pull"):
        read_csv(tmp_path / "rows.csv")


def test_an_absent_set_is_named_with_the_command_that_fetches_it(tmp_path: Path) -> None:
    done = op_profiler("evaluate", "--set", "all", "--from", str(tmp_path), folder=tmp_path)
    assert done.returncode == 5, "nothing was scored"
    for name in SETS:
        assert f"{name} is absent; fetch it with: mkdir -p {tmp_path} && cd {tmp_path} && " in done.stdout
    unknown = op_profiler("evaluate", "--set", "tophup", folder=tmp_path)
    assert unknown.returncode == 2 and "the nearest known: tophub" in unknown.stderr


def test_options_that_do_not_go_together_are_refused() -> None:
    for request, flag in (
        (EvaluateRequest(sets=("ncnn",), library=Path("x")), "--library"),
        (EvaluateRequest(sets=("ncnn",), splits=("random",)), "--split"),
        (EvaluateRequest(sets_from=Path("x")), "--set"),
    ):
        with pytest.raises(UsageError, match=flag):
            request.check()


@pytest.mark.parametrize("name", ["tophub"])
def test_what_is_fetched_is_read(name: str) -> None:
    missing = SETS.get(name).missing(sets_folder(None) / name)
    if missing:
        pytest.skip(f"the set {name} is not fetched: {missing[0]} is not in {sets_folder(None) / name}")
    (result,) = evaluate_sets([name], None, 0, lambda text: None)
    assert all(score.mape < score.trees for score in result.scores)
