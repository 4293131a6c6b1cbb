"""A kind of operator is one file, and its sizes go to a program, through the compiler, and back."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from op_profiler.collection.sampling import spaces
from op_profiler.collection.sampling.batches import operators_of_points
from op_profiler.operators import cost, kinds
from op_profiler.operators.kinds.convolutions import Conv2d
from op_profiler.operators.kinds.described import described
from op_profiler.operators.kinds.elementwise import Elementwise
from op_profiler.operators.kinds.norms import Softmax
from op_profiler.operators.kinds.point import Point
from op_profiler.operators.kinds.pooling import Pool2d
from op_profiler.operators.kinds.products import BatchMatmul, Dense
from op_profiler.operators.kinds.shapes import Conv, DenseLayer, Plain, Shape, shape_of

POINTS: tuple[Point, ...] = (
    *(
        Conv2d(1, 32, 14, 15, 48, 3, 1, 1, name)
        for name in ("none", "bias", "bias_relu", "bias_relu6", "residual_relu")
    ),
    Conv2d(2, 3, 30, 30, 20, 7, 2),
    Conv2d(1, 48, 12, 12, 48, 5, 2, 48, "bias"),
    Conv2d(1, 32, 9, 8, 48, 3, 2, 4),
    Dense(4, 96, 130, "bias_relu"),
    BatchMatmul(2, 9, 11, 16, transposed=False),
    Pool2d(1, 48, 15, 15, 3, 2, "max"),
    Softmax(3, 7, 20),
    Elementwise("relu", (1, 6, 40)),
)

NEGATED = """
import dataclasses

from op_profiler.operators.kinds.point import Point


@dataclasses.dataclass(frozen=True)
class Negated(Point):
    kind = "negated"
    described = True
    rows: int

    def expression(self, scope):
        return scope.relay.negative(scope.input(self.rows, 16))

    def work(self):
        return 16.0 * self.rows, 32.0 * self.rows


DRAWS = {"negated": lambda rng: Negated(rng.randint(8, 512))}
"""


@pytest.mark.parametrize("point", POINTS, ids=map(str, POINTS))
def test_sizes_come_back_from_what_the_compiler_made(point: Point, target: Any) -> None:
    found = {o.operator.key: o.operator for o in operators_of_points([point], target, 0)}
    ours = described(point, lanes_of(target))
    shape = shape_of(found[ours.key])
    assert in_one_order(shape) == in_one_order(shape_of(ours))
    if isinstance(point, Conv2d):
        assert isinstance(shape, Conv) and shape.convolution == point.convolution
        assert (shape.bias, shape.residual) == (point.epilogue != "none", point.epilogue == "residual_relu")
    elif isinstance(point, Dense):
        assert isinstance(shape, DenseLayer)
        assert (shape.batch, shape.in_features, shape.out_features) == (4, 96, 130)
    else:
        assert isinstance(shape, Plain) and shape.op == found[ours.key].anchor


def in_one_order(shape: Shape) -> Shape:
    """With its attributes sorted; versions of TVM list them in different orders."""
    return dataclasses.replace(shape, attrs=tuple(sorted(shape.attrs))) if isinstance(shape, Plain) else shape


def lanes_of(target: Any) -> int:
    """Of the blocks that TVM gives 64 channels."""
    found = operators_of_points([Conv2d(1, 64, 8, 8, 64, 1, 1)], target, 0)
    heavy = next(o.operator for o in found if o.operator.anchor in cost.HEAVY)
    return heavy.outputs[0].shape[-1]


def test_a_new_kind_is_one_file(tmp_path: Path, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = spaces.space_names()
    (tmp_path / "negated.py").write_text(NEGATED)
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    caches = (kinds.draws, kinds.described_classes)
    try:
        for cache in caches:
            cache.cache_clear()
        importlib.reload(spaces)
        assert "Negated" in kinds.described_kinds()
        assert set(spaces.space_names()) - set(before) == {"negated"}
        point = next(spaces.draw(random.Random(0), ["negated"]))
        (occurrence,) = operators_of_points([point], target, 0)
        assert occurrence.operator == described(point)
        everything = [x.identity() for x in itertools.islice(spaces.draw(random.Random(5), [spaces.ALL]), 50)]
    finally:
        monkeypatch.undo()
        for cache in caches:
            cache.cache_clear()
        importlib.reload(spaces)
    again = [x.identity() for x in itertools.islice(spaces.draw(random.Random(5), [spaces.ALL]), 50)]
    assert everything == again, "what a seed of all kinds draws changed"
