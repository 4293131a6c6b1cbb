"""What a page holds, before a browser sees it."""

from __future__ import annotations

import dataclasses
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from op_profiler.dataset import Dataset
from op_profiler.errors import UnknownNameError
from op_profiler.measure.measurement import Device
from op_profiler.report.page.document import ModelPart, OperatorPart, RooflinePart, RunPart, SchedulePart, Time
from op_profiler.report.page.explanations import how_to_explain
from op_profiler.report.page.models import _attained, model_part
from op_profiler.report.page.operators import loops_of
from op_profiler.report.page.report import chosen_models, write_model_report
from op_profiler.report.page.verdict import verdict, warnings

CODE = """
@T.prim_func
def kernel(p0: T.Buffer((1, 64), "float32"), out: T.Buffer((1, 64), "float32")):
    T.func_attr({"tir.noalias": T.bool(True)})
    for i in T.parallel(4):
        for k, j in T.grid(8, 2):
            for lane in T.vectorized(16):
                out[0, i * 16 + lane] = out[0, i * 16 + lane] + p0[0, k]
        for l in T.unroll(3):
            out[0, l] = T.float32(0)
"""


@pytest.fixture(scope="module")
def mlp(collected: str) -> ModelPart:
    with Dataset.open(collected, read_only=True) as dataset:
        (model,) = chosen_models(dataset, ["mlp"])
        return model_part(dataset, model)


def test_loops_are_read_from_code() -> None:
    found = [(loop.depth, loop.name, loop.extent, loop.kind) for loop in loops_of(CODE)]
    assert found == [
        (0, "i", "4", "parallel"),
        (1, "k", "8", "serial"),
        (2, "j", "2", "serial"),
        (3, "lane", "16", "vectorized"),
        (1, "l", "3", "unrolled"),
    ]
    bodies = [loop.body for loop in loops_of(CODE)]
    assert bodies[3] == "out[0, i * 16 + lane] = out[0, i * 16 + lane] + p0[0, k]" and bodies[4] and not any(bodies[:3])


@pytest.mark.parametrize("text", ["", "no code at all {", "def f(:\n", "x = 1", "(" * 5000])
def test_what_is_no_code_has_no_loops(text: str) -> None:
    assert loops_of(text) == []


def test_a_collected_model_knows_its_graph_its_loops_and_its_code(mlp: ModelPart) -> None:
    assert mlp.reads == [[], [0], [1], [2]]
    for operator in mlp.operators[:3]:
        assert operator.code is not None and "T.prim_func" in operator.code
        assert "vectorized" in {loop.kind for loop in operator.loops}


def test_times_are_those_of_the_dataset(mlp: ModelPart, collected: str) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        stored = dataset.measurements_of(mlp.key, threads=1, cache="model")
    assert {o.key for o in mlp.operators} == set(stored)
    for operator in mlp.operators:
        time = operator.times["1"]
        assert time.median_us == stored[operator.key].measurement.median_us
        assert 2 <= len(time.rounds_us) <= 200
    (run,) = mlp.runs
    assert run.whole.median_us is not None and all(us is not None and us >= 0 for us in run.one_run_us)
    assert len(run.one_run_us) == 4 and run.threads == 1


def test_the_verdict_says_what_is_there(mlp: ModelPart) -> None:
    assert mlp.verdict[0].startswith("One run takes ") and "1 thread" in mlp.verdict[0]
    assert any("4 operators, called 4 times, add up to" in sentence for sentence in mlp.verdict)
    assert "op_profiler's revision" in dict(mlp.about) and dict(mlp.about)["measured"].endswith(" UTC")


def test_a_search_is_found_by_the_op_that_it_was_for(mlp: ModelPart) -> None:
    (tuning,) = mlp.tunings
    first = mlp.operators[0]
    assert tuning.operators == [first.key] and first.tuning == 0
    assert [o.tuning for o in mlp.operators[1:]] == [None, None, None]
    (search,) = tuning.searches
    assert (search.trials, search.failed, search.default_us, search.best_us) == (20, 0, 9.0, 6.0)
    assert [trial.us for trial in search.best[:2]] == [5.0, 100 / 19]
    assert search.progress["dense.op_profiler"][0] == (1, 100.0) and search.progress["dense.op_profiler"][-1] == (
        20,
        5.0,
    )
    (factor,) = (factor for factor in tuning.factors if factor.name == "tile.x")
    assert factor.spearman == pytest.approx(-1) and factor.trials == 20
    assert {(one.what, one.median_us) for one in first.alone if one.origin == "vendor"} == {("torch", 7.0)}


def test_predictions_stand_beside_times(mlp: ModelPart) -> None:
    (prediction,) = mlp.predictions
    assert prediction.us is not None and prediction.threads == 1 and sum(prediction.tiers.values()) == pytest.approx(1)
    for operator in mlp.operators:
        estimate = operator.estimates["1"]
        assert estimate.low_us is not None and estimate.us is not None and estimate.high_us is not None
        assert estimate.low_us <= estimate.us <= estimate.high_us


def test_why_operators_take_what_they_take_is_there_or_how_to_get_to_know_it(mlp: ModelPart, collected: str) -> None:
    explained = [operator for operator in mlp.operators if operator.explained is not None]
    assert explained and all(one.explained.found.key == one.key for one in explained if one.explained)
    assert all(one.explained.found.sentence and one.explained.at for one in explained if one.explained)
    assert mlp.unknown["explain"].startswith("`op-profiler explain local:mlp` ")
    with Dataset.open(collected, read_only=True) as dataset:
        stored = dataset.find_model(mlp.key)
        assert stored is not None
    long = dataclasses.replace(
        stored,
        source="transformers",
        name="my bert",
        batch_size=8,
        recipe={"request": {"model": {"sequence_length": 64}}, "schedules": ["a record"]},
    )
    command = "`op-profiler explain 'transformers:my bert' --batchsize 8 --sequence-length 64` "
    assert how_to_explain(long).startswith(command) and "`--schedules`" in how_to_explain(long)
    on_gpu, int8 = dataclasses.replace(stored, target="cuda"), dataclasses.replace(stored, precision="int8")
    of_relax = dataclasses.replace(stored, recipe={"request": {"compiler": "relax"}})
    for other in (on_gpu, int8, of_relax, dataclasses.replace(stored, executor="vm")):
        assert "cannot explain" in how_to_explain(other)


def part(title: str, flops: int, time: Time, template: str | None = None) -> OperatorPart:
    return OperatorPart(
        key=title,
        name=title,
        title=title,
        anchor="a",
        ops=[],
        attrs=[],
        layouts={},
        inputs=[],
        params=[],
        outputs=[],
        flops=flops,
        bytes=1,
        calls=[0],
        times={"2": time},
        schedule=None if template is None else SchedulePart(template=template, origin="default"),
    )


def test_the_largest_rate_that_was_seen_is_the_peak_unless_winograd_ran() -> None:
    probed = RooflinePart(threads=2, flops_per_us=100.0, roofs=[])
    fast = part("dense", 1200, Time(median_us=10.0), "dense.x")
    winograd = part("conv2d", 3000, Time(median_us=10.0), "conv2d_winograd.x")
    raised = _attained(probed, [fast, winograd])
    assert (raised.flops_per_us, raised.attained_by) == (120.0, "dense")
    assert _attained(probed, [winograd]) == probed
    told = {
        name: " ".join(verdict([RunPart(threads=2, whole=Time(median_us=10.0))], operators, [line]))
        for name, operators, line in (("raised", [fast], raised), ("winograd", [winograd], probed))
    }
    assert "100% of what" in told["raised"] and "dense attains, more than the probe" in told["raised"]
    assert "Winograd" not in told["raised"] and "300% of what" in told["winograd"] and "Winograd" in told["winograd"]


def test_failures_and_load_are_told_in_words() -> None:
    failed = part("conv", 0, Time(error="it crashed"))
    whole = Time(median_us=3.0, foreign_load=True, settled=False, discarded_share=0.25)
    run = RunPart(threads=2, whole=whole, missing=["conv"])
    told = " ".join(warnings([run], [failed]))
    for words in (
        "others used the machine",
        "not all operators converged",
        "25% of the rounds were disturbed, discarded and repeated",
        "missing from the sum: conv",
        "1 operator failed: conv",
    ):
        assert words in told
    assert verdict([RunPart(threads=2, whole=Time(error="no memory"))], [failed], []) == [
        "The whole model has no time."
    ]
    assert verdict([], [], []) == ["Nothing of this model was measured."]


def test_models_are_found_by_name_source_and_key(collected: str) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        (model,) = chosen_models(dataset, ["mlp"])
        assert chosen_models(dataset, ["local:mlp", model.key[:8], "mlp"]) == [model]
        with pytest.raises(UnknownNameError, match="mlp"):
            chosen_models(dataset, ["mlq"])


def test_a_name_means_the_model_on_every_device_and_a_key_one_of_them(collected: str, tmp_path: Path) -> None:
    with Dataset.open(collected, read_only=True) as dataset:
        (stored,) = chosen_models(dataset, ["mlp"])
        here = dataset.find_device(str(stored.device_key))
    assert here is not None and stored.recipe is not None
    names = ("name", "source", "batch_size", "precision", "executor", "target", "label", "recipe")
    same = {name: getattr(stored, name) for name in names}
    another = {"recipe": stored.recipe | {"content": "of other shapes"}}
    twin, newer = (dataclasses.replace(here, machine_id=name) for name in ("a twin", "a third machine"))
    relax = dataclasses.replace(twin, compiler="relax")
    with Dataset.open(f"sqlite:///{tmp_path}/several.db") as dataset:
        runs: list[tuple[str, Device, dict[str, Any]]] = [
            ("1", twin, {"label": "after"}),
            ("2", twin, another),
            ("3", relax, {}),
            ("4", twin, {}),
            ("5", twin, {}),
            ("6", newer, {}),
            ("7", here, {}),
        ]
        for key, device, other in runs:
            dataset.add_device(device)
            dataset.add_model(key=key * 16, device_key=device.key, **(same | other))
        found = chosen_models(dataset, ["local:mlp"])
        assert [model.key[0] for model in found] == ["7", "5", "6"]
        assert [model.key[0] for model in chosen_models(dataset, ["4" * 6, "mlp"])] == ["4", "7", "5", "6"]


def test_nothing_in_a_model_can_end_the_data_or_start_a_script(collected: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with Dataset.open(collected, read_only=True) as dataset:
        write_model_report(path, dataset, ["f" * 16])
    text = path.read_text()
    assert "<img src=x" not in text
    data: dict[str, Any] = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', text)[0])
    assert data["models"][0]["name"].startswith("</script><img")
    policy = html.unescape(re.findall(r'Content-Security-Policy" content="([^"]*)"', text)[0])
    assert "default-src 'none'" in policy and "connect-src" not in policy and "http" not in policy
    assert path.stat().st_size < 6e6
