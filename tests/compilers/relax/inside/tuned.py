"""What tests of tuning share: bodies of models, and what can be tuned in them."""

from __future__ import annotations

import random
from typing import Any

from networks import constant, module

from op_profiler.compilers.compiler import compiler_in_use
from op_profiler.compilers.imported_model import ImportedModel, InputSpec
from op_profiler.schedules.records import Conditions, Record
from op_profiler.tuning.task import Task
from op_profiler.tuning.tunable import Tunable


def model_of(shape: tuple[int, ...], body: Any) -> ImportedModel:
    """One input ``data``."""
    return ImportedModel("one", "test", module(shape, body), {}, (InputSpec("data", shape),))


def tunable(target: Any, shape: tuple[int, ...], body: Any, rule: str = "") -> Tunable:
    """What can be tuned in a model of one op, or the one that gets a rule."""
    items, _ = compiler_in_use().tunables(model_of(shape, body), target, None)
    (item,) = [one for one in items if one.tasks[0].template.startswith(rule)]
    return item


def convolution(weight: tuple[int, ...], **options: Any) -> Any:
    def body(builder: Any, relax: Any, data: Any) -> Any:
        made = relax.op.add(relax.op.nn.conv2d(data, constant(*weight), **options), constant(1, weight[0], 1, 1))
        return relax.op.nn.relu(made)

    return body


def dense(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.relu(relax.op.matmul(data, constant(33, 48)))


def softmax(builder: Any, relax: Any, data: Any) -> Any:
    return relax.op.nn.softmax(data, axis=-1)


def drawn(task: Task, count: int) -> list[int]:
    random.seed(0)
    return [task.random_point() for _ in range(count)]


def record_of(target: Any, item: Tunable, knobs: dict[str, int]) -> Record:
    """Of the default with other values of some knobs."""
    (spec,) = item.tasks
    task = compiler_in_use().task(spec, target)
    point = task.point(task.default().knobs | knobs)
    assert point is not None
    config = task.config(point)
    return Record(str(target), spec.template, spec.arguments, config, (1e-5,), conditions=Conditions(1))
