"""Sampled operators: the grid of TinyNAS, random draws, operators of models, and a real run that is resumed."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from op_profiler.building.request import BuildRequest
from op_profiler.collection.request import CollectRequest, Measuring
from op_profiler.collection.sampling import adaptive, batch, grid, run, spaces
from op_profiler.collection.sampling.adaptive import adaptive_batches
from op_profiler.collection.sampling.descriptions import DESCRIPTIONS
from op_profiler.collection.sampling.mixtures import USUAL
from op_profiler.collection.summary import ModelReport
from op_profiler.collection.supervisor import Collection
from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.dataset import Dataset, flat_rows
from op_profiler.errors import ModelError, UnknownNameError, UsageError
from op_profiler.frontends import FRONTENDS
from op_profiler.frontends.frontend import ModelRequest
from op_profiler.frontends.sample import kept_batches, read_batch
from op_profiler.operators.kinds.convolutions import Conv1d, Conv2d, Conv2dDilated, Conv3d
from op_profiler.operators.kinds.norms import LayerNorm, Softmax
from op_profiler.operators.kinds.point import Point
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.operators.kinds.rearrangements import GrowingPast
from op_profiler.prediction.latency import devices
from op_profiler.report.collection import Screen
from op_profiler.schedules.record_files import keep
from op_profiler.schedules.records import Conditions, Record
from op_profiler.targets.llvm.identity import processor_name
from op_profiler.targets.machine import Place

from ...command_line import forked_workers, op_profiler

CONFIG = Path(__file__).resolve().parents[3] / "collector" / "configs" / "conv.in"


@pytest.fixture(scope="module")
def original() -> grid.Grid:
    return grid.read_grid(CONFIG)


def test_the_grid_has_the_sizes_and_points_of_the_original(original: grid.Grid) -> None:
    assert original.sizes() == [7, 8, 12, 14, 18, 24, 30, 38, 48, 60, 78, 98, 124, 158, 202, 256]
    assert len(list(original.points())) == 12_288
    assert len(original.valid_points(grid.ORIGINAL_RULES)) == 7_527


def test_a_stem_is_possible(original: grid.Grid) -> None:
    stems = [p for p in original.valid_points() if p.is_stem]
    assert stems
    assert {p.in_channels for p in stems} == {3}
    assert max(p.out_channels for p in stems) == 256
    assert not [p for p in original.valid_points(grid.ORIGINAL_RULES) if p.is_stem]


@pytest.mark.parametrize("rule", sorted(grid.RULES))
def test_every_rule_is_named_and_forbids_something(rule: str) -> None:
    values = {
        "batch": (1.0, 1024.0),
        "elmt_fused": (0.0, 1.0),
        "filter_size": (3.0, 9.0),
        "min_feature_size": (7.0,),
        "max_feature_size": (256.0,),
        "number_feature_size": (4.0,),
        "output_channel": (16.0, 64.0, 512.0, 4096.0),
        "stride": (1.0, 2.0),
        "type": (0.0, 1.0),
        "channel_ratio": (2.0, 1.0),
    }
    everything = grid.Grid(values)
    assert len(everything.valid_points([rule])) < len(everything.valid_points([]))
    assert len(grid.Grid(values, frozenset({rule})).valid_points([rule])) == len(everything.valid_points([]))


def test_configurations_may_hold_comments_and_blanks(tmp_path: Path) -> None:
    text = CONFIG.read_text().replace("stride 1 2", "# strides\n\n  stride   1  2   # both\n")
    (tmp_path / "c.in").write_text(text + "skip_rule no_stem work_fits\n")
    found = grid.read_grid(tmp_path / "c.in")
    assert found.values["stride"] == (1, 2)
    assert found.skipped_rules == {"no_stem", "work_fits"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("stride 1 2", "stride one"), "line .*: stride takes positive numbers, not 'one'"),
        (("stride 1 2", "strides 1 2"), "stride"),
        (("stride 1 2\n", ""), "lacks stride"),
        (("min_feature_size 7", "min_feature_size 7 8"), "takes one positive number"),
        (("batch 1", "batch -1"), "positive"),
        (("type 0", "type 0\nskip_rule no_stemm"), "no_stem"),
    ],
)
def test_wrong_configurations_say_where(change: tuple[str, str], message: str, tmp_path: Path) -> None:
    (tmp_path / "c.in").write_text(CONFIG.read_text().replace(*change))
    with pytest.raises((UsageError, UnknownNameError), match=message):
        grid.read_grid(tmp_path / "c.in")


def test_draws_are_the_same_for_a_seed_and_of_the_kinds_asked_for() -> None:
    first, again = (list(itertools.islice(spaces.draw(random.Random(3)), 200)) for _ in range(2))
    assert first == again
    assert len({type(p) for p in first}) >= 8
    only = list(itertools.islice(spaces.draw(random.Random(3), ["softmax", "layer_norm"]), 50))
    assert {type(p) for p in only} == {Softmax, LayerNorm}
    with pytest.raises(UnknownNameError, match="softmax"):
        next(spaces.draw(random.Random(0), ["softmaks"]))


def test_rare_kinds_are_drawn_where_they_are_named() -> None:
    rare = ["conv2d_dilated", "conv2d_grouped", "conv3d", "decoder_step"]
    assert set(rare) < set(spaces.space_names()) - set(USUAL)
    found = list(itertools.islice(spaces.draw(random.Random(3), rare), 100))
    assert {type(p) for p in found} >= {Conv2dDilated, Conv3d, GrowingPast, BatchMatmul}
    assert not {type(p) for p in itertools.islice(spaces.draw(random.Random(3)), 300)} & {Conv2dDilated, Conv3d}


@pytest.mark.parametrize(
    ("point", "anchor", "flops", "out"),
    [
        (Conv2dDilated(16, 14, 32, 2, epilogue="bias_relu"), "conv2d", 2 * 14 * 14 * 32 * 16 * 9, 14 * 14 * 32),
        (Conv1d(8, 40, 16, 3, 2, 2, epilogue="bias"), "conv1d", 2 * 20 * 16 * 8 * 3, 20 * 16),
        (Conv1d(16, 40, 16, 5, groups=16), "conv1d", 2 * 40 * 16 * 5, 40 * 16),
        (Conv3d(8, 4, 10, 16, 3, 2, "bias"), "conv3d", 2 * 2 * 5 * 5 * 16 * 8 * 27, 2 * 5 * 5 * 16),
        (GrowingPast(4, 9, 32), "concatenate", 0, 4 * 10 * 32),
    ],
)
def test_rare_kinds_compute_what_they_say(point: Point, anchor: str, flops: int, out: int, target: Any) -> None:
    from op_profiler.collection.sampling.batches import operators_of_points

    found = next(
        o.operator for o in operators_of_points([point], target, seed=1) if anchor in "".join(o.operator.op_names)
    )
    assert flops <= found.flops <= flops + 2 * out
    assert math.prod(found.outputs[0].shape) == out


def test_a_run_that_is_cut_short_covers_every_axis(original: grid.Grid) -> None:
    points = [p.convolution() for p in original.valid_points()]
    start = list(itertools.islice(batch.shuffled(points, 0), 200))
    assert start == list(itertools.islice(batch.shuffled(points, 0), 200))
    assert {p.kernel for p in start} == {1, 3, 5, 7}
    assert len({p.height for p in start}) == 16


POINTS: list[Point] = [
    Conv2d(1, 32, 14, 14, 48, 3, 1, epilogue="bias_relu"),
    Conv2d(1, 32, 14, 14, 32, 3, 2, groups=32, epilogue="bias_relu6"),
    Dense(8, 64, 96, epilogue="bias_gelu"),
    LayerNorm(16, 64),
]


@pytest.mark.parametrize("epilogue", ["none", "bias", "bias_relu", "bias_swish", "residual_relu"])
def test_points_become_the_operators_that_models_have(epilogue: str, target: Any) -> None:
    from op_profiler.collection.sampling.batches import operators_of_points

    found = operators_of_points([Conv2d(1, 32, 14, 14, 48, 3, 1, epilogue=epilogue)], target, seed=1)
    convolution = next(o for o in found if "conv2d" in o.operator.anchor)
    assert convolution.operator.flops >= 2 * 14 * 14 * 48 * 32 * 9
    assert len(convolution.operator.params) == (1 if epilogue == "none" else 2)
    assert len(convolution.operator.inputs) == (2 if epilogue == "residual_relu" else 1)


def test_a_batch_builds_to_the_operators_that_were_put_in(target: Any) -> None:
    from op_profiler.collection.sampling.batches import batch_name, operators_of_points, sampled
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends.sample import write_batch

    wanted = operators_of_points(POINTS, target, seed=0)
    name = batch_name("a test", [1])
    write_batch(name, [sampled(o) for o in wanted])
    model = FRONTENDS.get("sample").load(ModelRequest(source="sample", name=name))
    built = {o.operator.key for o in compile_model(model, target).by_label.values()}
    assert {o.operator.key for o in wanted} <= built


def test_a_batch_in_steps_calls_each_operator_as_often_with_the_same_weights(target: Any) -> None:
    from op_profiler.collection.sampling.batches import batch_name, operators_of_points, sampled
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends.sample import write_batch

    wanted = operators_of_points(POINTS, target, seed=0)
    name = batch_name("a test in steps", [1])
    write_batch(name, [sampled(o) for o in wanted], steps=3)
    model = FRONTENDS.get("sample").load(ModelRequest(source="sample", name=name))
    calls = [o.operator.key for o in compile_model(model, target).occurrences]
    assert {calls.count(o.operator.key) for o in wanted} == {3}
    write_batch(name, [sampled(o) for o in wanted])
    alone = FRONTENDS.get("sample").load(ModelRequest(source="sample", name=name))
    names, once = ({spec.name for spec in one.inputs} for one in (model, alone))
    scalars, scalars_once = ({name for name in of if name.startswith("scalar")} for of in (names, once))
    assert len(model.params) == len(alone.params) and len(scalars) == 3 * len(scalars_once)
    assert names - scalars == once - scalars_once, (
        "tensors of random values, of functions that branch on them, are shared"
    )


def test_inputs_of_one_shape_are_tensors_of_their_own(target: Any) -> None:
    """Of two that are written alike the compiler would leave one, and what reads it would read half as much."""
    from op_profiler.collection.sampling.batches import batch_name, operators_of_points, sampled
    from op_profiler.compilers.relay.lower import compile_model
    from op_profiler.frontends.sample import shares_inputs, write_batch
    from op_profiler.operators.kinds.elementwise import Elementwise

    points = [Elementwise("add", (1, 40, 32)), Elementwise("multiply", (1, 40, 32))]
    name = batch_name("alike", [1])
    write_batch(name, [sampled(o) for o in operators_of_points(points, target, seed=0)])
    model = FRONTENDS.get("sample").load(ModelRequest(source="sample", name=name))
    written = [o.operator.op_names for o in compile_model(model, target).occurrences]
    assert written.count(("broadcast_to",)) == 4
    assert not shares_inputs(name) and shares_inputs("draw7-0000-47498e7a91f2")


def test_lowering_for_prediction_finds_what_a_build_finds(compiled_small: Any, small_network: Any, target: Any) -> None:
    """Weights stay variables there, which must not change what is fused."""
    from op_profiler.compilers.relay.lower import optimize

    fused = [o.operator.key for o in optimize(small_network, target)]
    assert fused == [o.operator.key for o in compiled_small.occurrences]


def _sample(*arguments: str) -> subprocess.CompletedProcess[str]:
    return op_profiler("sample", *arguments)


def test_a_real_run_is_resumed(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path / 's.db'}"
    options = [
        "--kinds",
        "softmax,elementwise",
        "--count",
        "10",
        "--rounds",
        "3",
        "--threads",
        "1",
        "--db",
        db,
        "--json",
    ]
    first = _sample(*options)
    assert first.returncode == 0, first.stderr
    done = json.loads(first.stdout)
    assert done["operators"] >= 10
    assert done["measured"] >= done["operators"]
    assert done["failed"] == 0
    again = json.loads(_sample(*options).stdout)
    assert (again["measured"], again["reused"]) == (0, done["measured"])
    with Dataset.open(db, read_only=True) as dataset:
        rows = list(flat_rows(dataset, columns=["op_names", "scaffolding"]))
    sampled = [row["op_names"] for row in rows if not row["scaffolding"]]
    assert 10 <= len(sampled) < len(rows) and ["strided_slice"] not in sampled


def _winograd(point: Conv2d, target: Any) -> Record:
    """A record that makes a convolution one of Winograd's."""
    from op_profiler.collection.sampling.batches import operators_of_points
    from op_profiler.compilers.relay.chosen import chosen_schedules
    from op_profiler.compilers.relay.templates import register_templates
    from op_profiler.compilers.relay.templates.winograd import WINOGRAD
    from op_profiler.tuning.candidate import TaskSpec

    (direct,) = operators_of_points([point], target, seed=0)
    with chosen_schedules() as choices:
        choices.weigh(direct, target)
    data, (kind, (chunks, _, _, _, _, lanes), dtype), *rest = dict(choices.tasks_of(direct))["conv2d_NCHWc.x86"]
    register_templates()
    spec = TaskSpec(WINOGRAD, (data, (kind, (6, 6, chunks, point.in_channels, lanes), dtype), *rest))
    space = compiler_in_use().task(spec, target)
    config = space.config(next(point for point in range(space.size) if space.is_valid(point)))
    return Record(str(target), spec.template, spec.arguments, config, (1e-5,), conditions=Conditions(1))


def test_only_records_that_its_operators_ask_for_make_a_batch_another(target: Any, tmp_path: Path) -> None:
    point, foreign = Conv2d(1, 16, 8, 8, 16, 3, 1), Conv2d(1, 16, 8, 8, 32, 3, 1)
    build = BuildRequest(model=ModelRequest(source="sample", name=""), schedules=str(tmp_path))
    request = CollectRequest(build=build, measuring=Measuring(rounds=3), db=f"sqlite:///{tmp_path / 's.db'}")
    file = build.record_file()
    assert file is not None

    def measure() -> run.SampleReport:
        batches = batch.batches_of_points(iter([point]), "records", 0)
        with forked_workers(), Collection(request.db) as collection:
            return run.measure_batches(
                batches, request, collection, Screen(quiet=True), count=None, budget_seconds=None
            )

    def of_winograd() -> list[bool]:
        """Of every batch that is kept."""
        names = [name for name, _ in kept_batches("records-")]
        return sorted(any("winograd" in sampled.function for sampled in read_batch(name)[0]) for name in names)

    first = measure()
    assert first.measured > 0 and not first.failed and not first.errors
    keep(file, _winograd(foreign, target))
    again = measure()
    assert (again.measured, again.reused) == (0, first.measured) and of_winograd() == [False]
    keep(file, _winograd(point, target))
    tuned = measure()
    assert tuned.measured > 0 and not tuned.failed and of_winograd() == [False, True]
    assert measure().measured == 0
    file.unlink()
    assert measure().measured == 0 and of_winograd() == [False, True]


def test_a_run_of_which_nothing_comes_ends(target: Any, tmp_path: Path) -> None:
    def broken(_: object, __: object) -> list[Any]:
        raise ModelError("TVM cannot lower it")

    drawn = itertools.count()
    batches = (batch.Batch(f"broken-{number}", [number], broken) for number in drawn)
    build = BuildRequest(model=ModelRequest(source="sample", name=""))
    request = CollectRequest(build=build, measuring=Measuring(rounds=3), db=f"sqlite:///{tmp_path / 's.db'}")
    words = rf"^0 of 5 operators, and none came of {run.MOST_EMPTY} .*; the last: broken-9: TVM cannot lower it"
    with Collection(request.db) as collection, pytest.raises(ModelError, match=words):
        run.measure_batches(batches, request, collection, Screen(quiet=True), count=5, budget_seconds=None)
    assert next(drawn) == run.MOST_EMPTY


def test_operators_of_batches_that_fail_altogether_are_not_measured_ones(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = (Conv2d(1, 4, 8, 8, channels, 1, 1) for channels in itertools.count(1))
    batches = (next(batch.batches_of_points(iter([point]), f"failing-{n}", 0)) for n, point in enumerate(drawn))
    build = BuildRequest(model=ModelRequest(source="sample", name=""))
    request = CollectRequest(build=build, measuring=Measuring(rounds=3), db=f"sqlite:///{tmp_path / 's.db'}")
    monkeypatch.setattr(Collection, "run", lambda _, __, asked, ___: [ModelReport(asked[0], error="the board is gone")])
    words = "^0 of 2 operators, and none came .*: the board is gone"
    with Collection(request.db) as collection, pytest.raises(ModelError, match=words):
        run.measure_batches(batches, request, collection, Screen(quiet=True), count=2, budget_seconds=None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say how much"),
        (["--count", "5", "--kinds", "conv4d"], "conv4d"),
        (["--budget", "soon"], "90s, 10m or 2h"),
        (["--config", "nowhere.in"], "cannot be read"),
        (["--config", str(CONFIG), "--skip-rule", "nothing"], "rule"),
        (["--models", "resnet-18"], "source:name"),
        (["--models", "local:resnet-18", "--adaptive"], "one of --config"),
        (["--count", "5", "--rounds", "1"], "3 or more"),
    ],
)
def test_wrong_usage_says_what_to_do(arguments: list[str], message: str) -> None:
    done = _sample(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_adaptive_batches_are_drawn_by_what_is_known_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    here = devices.DeviceName("h", "llvm", processor_name(), 2, "llvm")
    gpu = devices.DeviceName("g", "cuda", "NVIDIA H100", 132, "cuda -arch=sm_90")
    board = devices.DeviceName("b", "pynq", "ARMv7", 2, "llvm -keys=arm_cpu")
    asked: list[str] = []

    def known(*, device: str, **_: Any) -> range:
        asked.append(device)
        return range(500)

    def drawn(target: str, *there: devices.DeviceName) -> tuple[str, list[str], list[str]]:
        asked.clear()
        told: list[str] = []
        monkeypatch.setattr(adaptive, "devices_in", lambda **_: list(there))
        place = Place(host="127.0.0.1", port=9190, key="pynq") if target == "pynq" else None
        build = BuildRequest(model=ModelRequest(source="sample", name=""), target=target, place=place)
        batches = adaptive_batches(CollectRequest(build=build, db="sqlite:///x.db"), ["dense"], 0, told.append)
        labels = [next(batches).label for _ in range(2)]
        return labels[0].rpartition("-")[0], asked[:1], told

    monkeypatch.setattr(adaptive, "examples_for", known)
    monkeypatch.setattr(adaptive, "fingerprint", lambda _: "f")
    monkeypatch.setattr("op_profiler.targets.cuda.tvm_build.device_name", lambda: "NVIDIA H100")
    for target, key in (("llvm", "h"), ("cuda", "g"), ("pynq", "b")):
        assert drawn(target, here, gpu, board) == ("adaptive0", [key], [])
    assert drawn("cuda", here, board) == ("draw0", [], [])
    label, _, told = drawn("pynq", here, board, dataclasses.replace(board, key="c"))
    assert label == "draw0" and len(told) == 1 and "(b, c)" in told[0]


def test_dry_runs_measure_nothing(tmp_path: Path) -> None:
    done = _sample("--config", str(CONFIG), "--dry-run", "--db", f"sqlite:///{tmp_path / 'none.db'}")
    assert done.stdout.startswith("8395 convolutions; rules left out: no_stem")
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("arguments", "told", "as_json"),
    [
        ("--count 3", ["until 3 operators are measured, in whole batches"], {"count": 3, "adaptive": False}),
        ("--adaptive --budget 2m", ["where the predictor is least sure", "120 s"], {"adaptive": True}),
        ("--cached --count 3", ["weights stay in the cache"], {"cached": True, "budget_seconds": None}),
        ("--models transformers:bert --sequence-lengths 32,64", ["batch 1, 32 tokens", "batch 1, 64 tokens"], {}),
        ("--models local:resnet-18 --resolutions 64", ["inputs ((1, 3, 64, 64),)", "all of them"], {"count": None}),
        (f"--config {CONFIG}", ["8395 convolutions"], {"convolutions": 8395, "rules_left_out": ["no_stem"]}),
    ],
)
def test_dry_runs_say_what_would_be_measured(arguments: str, told: list[str], as_json: dict[str, Any]) -> None:
    words = (*arguments.split(), "--dry-run")
    text = _sample(*words).stdout
    assert all(words in text for words in told), text
    found = json.loads(_sample(*words, "--json").stdout)
    assert as_json.items() <= found.items()
    if "models" in found:
        lengths = [one["sequence_length"] for one in found["models"]]
        assert lengths == ([32, 64] if "bert" in arguments else [None])


def test_lists_describe_what_they_name() -> None:
    assert json.loads(_sample("--kinds", "list", "--json").stdout)["conv3d"] == "convolutions of volumes and videos"
    assert "no_stem" in json.loads(_sample("--skip-rule", "list", "--json").stdout)
    line = next(one for one in _sample("--kinds", "list").stdout.splitlines() if "softmax" in one)
    assert [cell.strip() for cell in line.split("│")[1:4]] == ["softmax", "yes", DESCRIPTIONS["softmax"]]
