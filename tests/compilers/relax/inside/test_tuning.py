"""Knobs of the default rules, and the search over them."""

from __future__ import annotations

from typing import Any

import pytest
from networks import constant
from tuned import convolution, dense, drawn, model_of, softmax, tunable

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.tvm_build import load_tvm
from op_profiler.tuning.reference import unwritten_array
from op_profiler.tuning.search import OperatorSearch
from op_profiler.tuning.task import InvalidPointError, Task
from op_profiler.tuning.trials.runner import TrialRunner


def of_three(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.matmul(data, constant(3, 20, 10))


def batched(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.matmul(data, relax.op.permute_dims(data, [0, 2, 1]))


def looked_up(builder: Any, relax: Any, data: Any) -> Any:
    places = builder.emit(relax.op.argmax(data, axis=-1))
    return relax.op.sum(relax.op.take(constant(5, 48), places, axis=0), axis=0)


def transposed(builder: Any, relax: Any, data: Any) -> Any:
    made = relax.op.nn.conv2d_transpose(data, constant(6, 24, 4, 4), strides=2, padding=1)
    return relax.op.nn.relu(builder.emit(made))


def pooling(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.max_pool2d(data, pool_size=(3, 2), strides=2, padding=1)


def pooling_of_blocks(builder: Any, relax: Any, data: Any) -> Any:
    made = builder.emit(relax.op.nn.conv2d(data, constant(48, 16, 1, 1)))
    return relax.op.nn.avg_pool2d(made, pool_size=3, strides=1, padding=1)


def sums(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.sum(data, axis=[0, 2])


def mean(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.mean(data, axis=[2, 3])


def layer_norm(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.gelu(relax.op.nn.layer_norm(data, constant(40), constant(40), axes=[-1]))


CASES = [
    ("conv2d_NCHWc", (2, 6, 9, 14), convolution((28, 6, 3, 3), padding=(1, 0, 2, 1), strides=2)),
    ("conv2d_NCHWc", (1, 24, 7, 10), convolution((24, 1, 3, 3), padding=2, groups=24, dilation=2)),
    ("conv2d_NCHWc", (1, 64, 8, 6), convolution((64, 16, 3, 3), padding=1, groups=4)),
    ("conv", (1, 12, 10, 9), convolution((8, 6, 3, 3), groups=2, padding=1)),
    ("matmul", (7, 33), dense),
    ("matmul", (3, 12, 20), of_three),
    ("matmul", (3, 12, 20), batched),
    ("conv2d_transpose", (2, 6, 5, 7), transposed),
    ("reduction", (2, 5, 11, 13), pooling),
    ("reduction", (1, 16, 9, 6), pooling_of_blocks),
    ("reduction", (3, 5, 4, 48), sums),
    ("reduction", (6, 5), looked_up),
    ("rows", (2, 6, 6, 8), mean),
    ("rows", (6, 8, 64), softmax),
    ("rows", (9, 40), layer_norm),
]


@pytest.mark.parametrize(("rule", "shape", "body"), CASES)
def test_points_compute_what_the_kernel_does_before_it_is_scheduled(
    quick: Any, rule: str, shape: tuple[int, ...], body: Any
) -> None:
    item = tunable(quick, shape, body, rule)
    (spec,) = item.tasks
    assert spec == item.default and spec.template == f"{rule}.relax"
    task, tvm = compiler_in_use().task(spec, quick), load_tvm()
    default = task.point(task.default().knobs)
    assert default is not None and task.schedule(default) == task.default()
    reference = task.reference()
    assert reference is not None
    arrays = [tvm.runtime.tensor(array) for array in reference.arrays]
    built = 0
    for point in [None, *_corners(task), *drawn(task, 2)]:
        try:
            made = task.build(point)
        except InvalidPointError:
            with pytest.raises(InvalidPointError):
                task.config(point)
            continue
        output = tvm.runtime.tensor(unwritten_array(*made.tensors[made.output]))
        made.function["main"](*arrays, output)
        assert reference.difference(output.numpy()) is None, point
        built += 1
    assert built >= 4


def _corners(task: Task) -> list[int]:
    """The default with the last value of one knob: each inlined, fused, unrolled and reordered as far as can be."""
    default = task.default().knobs
    changed = [default | {name: values[end]} for name, values in task.knobs.items() for end in (0, -1)]
    points = {task.point(knobs) for knobs in changed if knobs != default}
    valid = [point for point in points if point is not None]
    return sorted(valid)[:: max(len(valid) // 3, 1)]


def test_what_the_knobs_do_stands_in_the_columns_of_the_dataset(target: Any) -> None:
    task = compiler_in_use().task(
        tunable(target, (1, 64, 8, 6), convolution((32, 64, 3, 3), padding=1)).tasks[0], target
    )
    others = {"tile_oc": 1, "tile_oh": 2, "split_ici": 4, "fuse": 1, "compute_at": -1, "unroll": 2}
    knobs = task.default().knobs | others
    point = task.point(knobs | {"tile_ow": 3})
    assert point is not None
    factors = task.schedule(point).factors
    assert factors.tile == {"oc": 1, "oh": 2, "ow": 3} and factors.split == {"ici": 4}
    assert factors.compute_at == "inline" and factors.unroll == "tile and reduction"
    assert factors.reorder == "n oc oh ow | ic kh kw ici.o ici.i" and factors.parallel == "n oc" and factors.fuse == 2


@pytest.mark.parametrize("tuner", ["trees", "random"])
def test_a_search_in_processes_checks_the_outputs(
    target: Any, runner: TrialRunner, tuner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("op_profiler.tuning.search._FINAL_ROUNDS", 3)
    monkeypatch.setattr("op_profiler.tuning.tuners.trees._FIRST", 4)
    monkeypatch.setattr("op_profiler.tuning.search._BATCH", 5)
    item = tunable(target, (7, 33), dense)
    found = OperatorSearch(item.tasks, target, runner, tuner=tuner, trials=10, defaults=item.tasks).run()
    assert len(found.trials) == 11 and len({trial.candidate.index for trial in found.trials}) == 11
    assert all(trial.result.checked for trial in found.trials if trial.result.error is None)
    assert found.default is not None and found.finalists[0].result.median_us <= found.default.result.median_us
    default, *others = found.trials
    twins = [trial for trial in others if trial.schedule.key == default.schedule.key]
    assert not any(trial.new for trial in twins) and (twins or tuner != "trees")
    finalists = [finalist.schedule.key for finalist in found.finalists]
    assert len(finalists) == len(set(finalists))


def test_operators_that_differ_in_a_number_only_have_one_key_as_under_relay_and_are_tuned_apart(target: Any) -> None:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = data
        for least in (0.1, 0.2):
            made = builder.emit(relax.op.nn.conv2d(made, constant(16, 16, 3, 3), padding=1))
            made = builder.emit(relax.op.maximum(made, relax.const(least)))
        return made

    items, occurrences = compiler_in_use().tunables(model_of((1, 16, 12, 12), body), target, None)
    assert len({item.anchor.key for item in items}) == 1 and len({item.tasks for item in items}) == len(items) == 2
    structures = [one.operator.structure for one in occurrences if "conv2d" in one.operator.anchor]
    assert structures == ["nn.contrib_conv2d_NCHWc(i0,p1);maximum(%0,const:float32[])"] * 2


def test_a_cold_search_flushes_the_weights_only(target: Any) -> None:
    reference = compiler_in_use().task(tunable(target, (7, 33), dense).tasks[0], target).reference()
    assert reference is not None
    assert [reference.is_weight(array.shape) for array in reference.arrays] == [False, True]
